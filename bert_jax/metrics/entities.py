"""Entities of tag sequences, and precision, recall and F1 of labeled spans."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

OUTSIDE = 'O'
_NO_LABEL = '_'  # of entities whose tags are only B, I and O
_END = {'L': 'E', 'U': 'S'}  # prefixes of BILOU → of BIOES

Span: TypeAlias = tuple[int, int, str]  # start, end, label
ParsedTags: TypeAlias = Mapping[str, tuple[str, str]]  # see `parse_tags`


class Entity(NamedTuple):
    """An entity of words start … end − 1."""

    start: int
    end: int
    label: str


class SpanScore(NamedTuple):
    """Scores of spans, and the numbers of gold and predicted spans."""

    precision: float
    recall: float
    f1: float
    gold: int
    predicted: int


def parse_tags(labels: Collection[str]) -> ParsedTags | None:
    """Find out how a set of tags marks entities.

    Known are B-x, I-x, E-x and S-x (BIO, IOB1, BIOES), L-x and U-x (BILOU), also written B_x or
    x-B; I-x alone; these letters without a label; and, beside O, labels without any prefix. A label
    without a prefix, or a tag that has one among others without, is inside an entity of this label,
    which ends where the label changes. This is how conlleval (CoNLL-2000) reads I-x.

    Returns:
        Tag → prefix (B, I, E, S or O) and label; None if the tags mark no entities, such as parts
        of speech.
    """
    inside = [label for label in labels if label != OUTSIDE]
    has_outside = len(inside) < len(labels)
    prefixed, suffixed = (
        {label: match for label in inside if (match := re.fullmatch(pattern, label))}
        for pattern in (
            '(?P<prefix>[BIESLU])[-_](?P<label>.+)',
            '(?P<label>.+)-(?P<prefix>[BIESLU])',
        )
    )
    plain: dict[str, tuple[str, str]] = {}
    if not inside:
        return None
    if len(prefixed) < len(inside) and not has_outside:
        return None
    if 2 * len(prefixed) >= len(inside):
        found = prefixed
        plain = {label: ('I', label) for label in inside if label not in prefixed}
    elif len(suffixed) == len(inside):
        found = suffixed
    elif set(inside) <= set('BIESLU'):
        return {OUTSIDE: (OUTSIDE, '')} | {tag: (_END.get(tag, tag), _NO_LABEL) for tag in inside}
    elif min(map(len, inside)) > 1:  # single letters are parts of speech, whose O is not "outside"
        found, plain = {}, {label: ('I', label) for label in inside}
    else:
        return None
    parsed = {
        label: (_END.get(match['prefix'], match['prefix']), match['label'])
        for label, match in found.items()
    }
    return {OUTSIDE: (OUTSIDE, '')} | plain | parsed


def _split_tag(tag: str) -> tuple[str, str]:
    prefix, _, label = tag.partition('-')
    return prefix, label


def entities_from_tags(tags: Sequence[str], parsed: ParsedTags | None = None) -> list[Entity]:
    """Convert tags to entities.

    Follows conlleval (CoNLL-2000): I or E after B or I of the same label continues an entity; any
    other tag except O starts a new entity. So every tag sequence is valid.

    Args:
        tags: a tag for each word.
        parsed: see `parse_tags`; None for BIO, IOB1 or BIOES.
    """
    entities: list[Entity] = []
    previous = ('', '')
    for number, tag in enumerate(tags):
        prefix, label = parsed[tag] if parsed else _split_tag(tag)
        if prefix != OUTSIDE:
            is_continued = prefix in ('I', 'E') and previous in (('B', label), ('I', label))
            start = entities.pop().start if is_continued else number
            entities.append(Entity(start, number + 1, label))
        previous = prefix, label
    return entities


class SpanCounts(NamedTuple):
    """Numbers of spans, for each label that a text has in gold or predicted spans.

    Attributes:
        labels: the labels that occur, sorted.
        text_K: number of the text, int64 [K].
        label_K: number of the label, int64 [K].
        counts_K3: correct, gold and predicted spans, int64 [K, 3].
    """

    labels: tuple[str, ...]
    text_K: np.ndarray
    label_K: np.ndarray
    counts_K3: np.ndarray


def _distinct(spans: Collection[Span]) -> set[Span]:
    return {(start, end, label) for start, end, label in spans}


def count_spans(
    gold: Sequence[Collection[Span]], guesses: Sequence[Collection[Span]]
) -> SpanCounts:
    """Count the spans (start, end, label) of each text and label; duplicates count once."""
    found: dict[tuple[int, str], list[int]] = {}
    for number, (gold_spans, guessed_spans) in enumerate(zip(gold, guesses, strict=True)):
        gold_set, guessed_set = _distinct(gold_spans), _distinct(guessed_spans)
        for place, spans in enumerate((gold_set & guessed_set, gold_set, guessed_set)):
            for _, _, label in spans:
                found.setdefault((number, label), [0, 0, 0])[place] += 1
    labels = tuple(sorted({label for _, label in found}))
    numbers = {label: number for number, label in enumerate(labels)}
    return SpanCounts(
        labels,
        np.array([text for text, _ in found], np.int64),
        np.array([numbers[label] for _, label in found], np.int64),
        np.array(list(found.values()), np.int64).reshape(-1, 3),
    )


def score_counts(
    counts: SpanCounts, times_N: np.ndarray
) -> tuple[dict[str, float], dict[str, SpanScore]]:
    """Score spans like `score_spans`; text n counts `times_N[n]` times."""
    weighted_K3 = counts.counts_K3 * times_N[counts.text_K, None]
    totals_L3 = np.zeros((len(counts.labels), 3), np.int64)
    np.add.at(totals_L3, counts.label_K, weighted_K3)
    by_label = {
        label: score_of_counts(*totals)
        for label, totals in zip(counts.labels, totals_L3.tolist(), strict=True)
        if any(totals)
    }
    overall = score_of_counts(*totals_L3.sum(0).tolist())
    macro_f1 = float(np.mean([score.f1 for score in by_label.values()])) if by_label else 0.0
    metrics = {'f1': overall.f1, 'precision': overall.precision, 'recall': overall.recall}
    return metrics | {'f1_macro': macro_f1}, by_label


def score_spans(
    gold: Sequence[Collection[Span]], guesses: Sequence[Collection[Span]]
) -> tuple[dict[str, float], dict[str, SpanScore]]:
    """Score predicted spans (start, end, label); a span is correct if all three match.

    Duplicate spans count once. Ratios with denominator 0 are 0.

    Args:
        gold: the gold spans of each text, which may overlap.
        guesses: the predicted spans of each text.

    Returns:
        'f1', 'precision' and 'recall' over all spans and 'f1_macro', the mean F1 over labels; and
        the scores of each label, sorted by label.
    """
    return score_counts(count_spans(gold, guesses), np.ones(len(gold), np.int64))


ERRORS = ('wrong type', 'wrong boundary', 'wrong both', 'missed', 'spurious')


def count_errors(
    gold: Sequence[Collection[Span]], guesses: Sequence[Collection[Span]]
) -> dict[str, Counter[str]]:
    """Count the kinds of errors in predicted spans (start, end, label).

    Each missed gold span is paired with at most one wrong span: first with the same boundaries,
    then overlapping with the same label, then overlapping.

    Returns:
        Gold label (predicted label, for 'spurious') → counts of 'correct' and of ERRORS.
    """
    pairings: dict[str, Callable[[Span, Span], bool]] = {
        'wrong type': lambda a, b: a[:2] == b[:2],
        'wrong boundary': lambda a, b: a[2] == b[2] and a[0] < b[1] and b[0] < a[1],
        'wrong both': lambda a, b: a[0] < b[1] and b[0] < a[1],
    }
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for gold_spans, guessed_spans in zip(gold, guesses, strict=True):
        gold_set, guessed_set = _distinct(gold_spans), _distinct(guessed_spans)
        for _, _, label in gold_set & guessed_set:
            counts[label]['correct'] += 1
        missed, wrong = sorted(gold_set - guessed_set), sorted(guessed_set - gold_set)
        for error, fits in pairings.items():
            for span in tuple(missed):
                partner = next((guess for guess in wrong if fits(span, guess)), None)
                if partner:
                    missed.remove(span)
                    wrong.remove(partner)
                    counts[span[2]][error] += 1
        for _, _, label in missed:
            counts[label]['missed'] += 1
        for _, _, label in wrong:
            counts[label]['spurious'] += 1
    return dict(sorted(counts.items()))


def score_exact(counts_N3: np.ndarray) -> dict[str, float]:
    """Score numbers of correct, gold and predicted items of each text, int64 [N, 3].

    Returns:
        'f1', 'precision' and 'recall' over all items, and 'exact_match', the share of texts whose
        items are all right.
    """
    overall = score_of_counts(*counts_N3.sum(0).tolist())
    is_exact_N = (counts_N3 == counts_N3[:, :1]).all(1)
    exact_match = float(is_exact_N.mean()) if len(counts_N3) else 0.0
    return {
        'f1': overall.f1,
        'precision': overall.precision,
        'recall': overall.recall,
        'exact_match': exact_match,
    }


def score_of_counts(correct: int, gold: int, predicted: int) -> SpanScore:
    """Return the scores of numbers of spans; ratios with denominator 0 are 0."""
    precision, recall = correct / max(predicted, 1), correct / max(gold, 1)
    return SpanScore(precision, recall, 2 * correct / max(gold + predicted, 1), gold, predicted)

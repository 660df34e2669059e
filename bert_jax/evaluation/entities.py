"""Entities of tag sequences, and precision, recall and F1 of labeled spans."""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

OUTSIDE = 'O'


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


def entities_from_tags(tags: Sequence[str]) -> list[Entity]:
    """Convert tags in BIO, IOB1 or BIOES to entities.

    Follows conlleval (CoNLL-2000): I or E after B or I of the same label continues an entity; any
    other tag except O starts a new entity. So every tag sequence is valid.
    """
    entities: list[Entity] = []
    previous = ('', '')
    for number, tag in enumerate(tags):
        prefix, _, label = tag.partition('-')
        if prefix != OUTSIDE:
            is_continued = prefix in ('I', 'E') and previous in (('B', label), ('I', label))
            start = entities.pop().start if is_continued else number
            entities.append(Entity(start, number + 1, label))
        previous = prefix, label
    return entities


def score_spans(
    gold: Sequence[Collection[tuple]], guesses: Sequence[Collection[tuple]]
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
    correct, expected, predicted = Counter[str](), Counter[str](), Counter[str]()
    for gold_spans, guessed_spans in zip(gold, guesses, strict=True):
        gold_set, guessed_set = set(map(tuple, gold_spans)), set(map(tuple, guessed_spans))
        expected.update(label for _, _, label in gold_set)
        predicted.update(label for _, _, label in guessed_set)
        correct.update(label for _, _, label in gold_set & guessed_set)
    by_label = {
        label: _score(correct[label], expected[label], predicted[label])
        for label in sorted(expected | predicted)
    }
    overall = _score(correct.total(), expected.total(), predicted.total())
    macro_f1 = float(np.mean([score.f1 for score in by_label.values()])) if by_label else 0.0
    metrics = {'f1': overall.f1, 'precision': overall.precision, 'recall': overall.recall}
    return metrics | {'f1_macro': macro_f1}, by_label


ERRORS = ('wrong type', 'wrong boundary', 'wrong both', 'missed', 'spurious')


def count_errors(
    gold: Sequence[Collection[tuple]], guesses: Sequence[Collection[tuple]]
) -> dict[str, Counter[str]]:
    """Count the kinds of errors in predicted spans (start, end, label).

    Each missed gold span is paired with at most one wrong span: first with the same boundaries,
    then overlapping with the same label, then overlapping.

    Returns:
        Gold label (predicted label, for 'spurious') → counts of 'correct' and of ERRORS.
    """
    pairings = {
        'wrong type': lambda a, b: a[:2] == b[:2],
        'wrong boundary': lambda a, b: a[2] == b[2] and a[0] < b[1] and b[0] < a[1],
        'wrong both': lambda a, b: a[0] < b[1] and b[0] < a[1],
    }
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for gold_spans, guessed_spans in zip(gold, guesses, strict=True):
        gold_set, guessed_set = set(map(tuple, gold_spans)), set(map(tuple, guessed_spans))
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


def _score(correct: int, gold: int, predicted: int) -> SpanScore:
    precision, recall = correct / max(predicted, 1), correct / max(gold, 1)
    return SpanScore(precision, recall, 2 * correct / max(gold + predicted, 1), gold, predicted)

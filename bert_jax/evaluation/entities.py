"""Entities in tag sequences, and precision, recall and F1 of labeled spans."""

import collections
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
    """The entities that tags in BIO, IOB1 or BIOES describe.

    Follows conlleval (CoNLL-2000): I or E continues an entity after B or I of the same label, every
    other tag except O starts one. So every tag sequence is valid.
    """
    entities: list[Entity] = []
    previous = ('', '')
    for number, tag in enumerate(tags):
        prefix, _, label = tag.partition('-')
        if prefix != OUTSIDE:
            continues = prefix in ('I', 'E') and previous in (('B', label), ('I', label))
            start = entities.pop().start if continues else number
            entities.append(Entity(start, number + 1, label))
        previous = prefix, label
    return entities


def score_spans(
    gold: Sequence[Collection[tuple]], guesses: Sequence[Collection[tuple]]
) -> tuple[dict[str, float], dict[str, SpanScore]]:
    """Score predicted spans (start, end, label), which are correct if all three are.

    Duplicate spans count once. Ratios with denominator 0 are 0.

    Args:
        gold: the gold spans of each text, which may overlap.
        guesses: the predicted spans of each text.

    Returns:
        'f1', 'precision' and 'recall' over all spans and 'f1_macro', the mean F1 over labels; and
        the scores of each label, sorted by label.
    """
    correct: collections.Counter[str] = collections.Counter()
    expected: collections.Counter[str] = collections.Counter()
    predicted: collections.Counter[str] = collections.Counter()
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
) -> dict[str, collections.Counter[str]]:
    """Count the kinds of errors in predicted spans (start, end, label).

    Each wrong span is paired with one missed gold span, if any: first with the same boundaries,
    then overlapping with the same label, then overlapping.

    Returns:
        Gold label (predicted label, for 'spurious') → counts of 'correct' and of ERRORS.
    """
    pairings = {
        'wrong type': lambda a, b: a[:2] == b[:2],
        'wrong boundary': lambda a, b: a[2] == b[2] and a[0] < b[1] and b[0] < a[1],
        'wrong both': lambda a, b: a[0] < b[1] and b[0] < a[1],
    }
    found: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for gold_spans, guessed_spans in zip(gold, guesses, strict=True):
        gold_set, guessed_set = set(map(tuple, gold_spans)), set(map(tuple, guessed_spans))
        for _, _, label in gold_set & guessed_set:
            found[label]['correct'] += 1
        missed, wrong = sorted(gold_set - guessed_set), sorted(guessed_set - gold_set)
        for name, fits in pairings.items():
            for span in tuple(missed):
                partner = next((guess for guess in wrong if fits(span, guess)), None)
                if partner:
                    missed.remove(span)
                    wrong.remove(partner)
                    found[span[2]][name] += 1
        for _, _, label in missed:
            found[label]['missed'] += 1
        for _, _, label in wrong:
            found[label]['spurious'] += 1
    return dict(sorted(found.items()))


def _score(correct: int, gold: int, predicted: int) -> SpanScore:
    precision, recall = correct / max(predicted, 1), correct / max(gold, 1)
    return SpanScore(precision, recall, 2 * correct / max(gold + predicted, 1), gold, predicted)

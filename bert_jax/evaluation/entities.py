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


class SpanScores(NamedTuple):
    """Scores of labeled spans.

    Attributes:
        precision: over all spans, as recall and f1.
        recall: see precision.
        f1: see precision.
        macro_f1: mean F1 over labels.
        rows: label → (precision, recall, F1, gold spans, predicted spans), sorted by label.
    """

    precision: float
    recall: float
    f1: float
    macro_f1: float
    rows: dict[str, tuple[float, float, float, int, int]]


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
) -> SpanScores:
    """Scores predicted spans (start, end, label), which are correct if all three are.

    Duplicate spans count once. Ratios with denominator 0 are 0.

    Args:
        gold: the gold spans of each text, which may overlap.
        guesses: the predicted spans of each text.
    """
    correct: collections.Counter[str] = collections.Counter()
    expected: collections.Counter[str] = collections.Counter()
    predicted: collections.Counter[str] = collections.Counter()
    for gold_spans, guessed_spans in zip(gold, guesses, strict=True):
        gold_set, guessed_set = {tuple(s) for s in gold_spans}, {tuple(s) for s in guessed_spans}
        expected.update(label for _, _, label in gold_set)
        predicted.update(label for _, _, label in guessed_set)
        correct.update(label for _, _, label in gold_set & guessed_set)
    rows = {
        label: (
            *_precision_recall_f1(correct[label], expected[label], predicted[label]),
            expected[label],
            predicted[label],
        )
        for label in sorted(expected | predicted)
    }
    macro_f1 = float(np.mean([row[2] for row in rows.values()])) if rows else 0.0
    overall = _precision_recall_f1(correct.total(), expected.total(), predicted.total())
    return SpanScores(*overall, macro_f1, rows)


def _precision_recall_f1(correct: int, expected: int, predicted: int) -> tuple[float, float, float]:
    return (
        correct / max(predicted, 1),
        correct / max(expected, 1),
        2 * correct / max(expected + predicted, 1),
    )

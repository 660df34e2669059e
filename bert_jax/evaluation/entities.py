"""Entities of tag sequences, and strict F1 of labeled spans: flat, nested, any number a text."""

import collections
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

OUTSIDE = 'O'


class Entity(NamedTuple):
    """Words start … end − 1 are a `label`."""

    start: int
    end: int
    label: str


class SpanScores(NamedTuple):
    """precision, recall, f1 of all spans together; macro_f1: mean over labels; rows: by label
    (precision, recall, f1, gold spans, predicted spans), sorted by label."""

    precision: float
    recall: float
    f1: float
    macro_f1: float
    rows: dict[str, tuple[float, float, float, int, int]]


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of B-, I-, E-, S- and O tags, by the rules of conlleval (CoNLL-2000), which read
    BIO, IOB1 and BIOES alike.

    An entity goes on where I or E follows B or I of the same label; everything else but O starts
    one. So no tag sequence is refused: an I that nothing precedes starts an entity.
    """
    found, before = [], ('', '')
    for number, tag in enumerate(tags):
        kind, _, label = tag.partition('-')
        if kind != OUTSIDE:
            goes_on = kind in ('I', 'E') and before in (('B', label), ('I', label))
            start = found.pop().start if goes_on else number
            found.append(Entity(start, number + 1, label))
        before = kind, label
    return found


def score(gold: Sequence[Collection], guesses: Sequence[Collection]) -> SpanScores:
    """Of the spans of each text, (start, end, label), in both: a span counts if all three agree.

    A span named twice counts once. Figures whose denominator is 0 are 0.
    """
    right, wanted, given = collections.Counter(), collections.Counter(), collections.Counter()
    for own, guessed in zip(gold, guesses, strict=True):
        own, guessed = ({tuple(span) for span in spans} for spans in (own, guessed))
        wanted.update(label for _, _, label in own)
        given.update(label for _, _, label in guessed)
        right.update(label for _, _, label in own & guessed)
    rows = {
        label: (*_figures(right[label], wanted[label], given[label]), wanted[label], given[label])
        for label in sorted(wanted | given)
    }
    macro_f1 = float(np.mean([row[2] for row in rows.values()])) if rows else 0.0
    return SpanScores(*_figures(right.total(), wanted.total(), given.total()), macro_f1, rows)


def _figures(right: int, wanted: int, given: int) -> tuple[float, float, float]:
    """Precision, recall, F1."""
    return right / max(given, 1), right / max(wanted, 1), 2 * right / max(wanted + given, 1)

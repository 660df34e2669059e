"""Classes and numbers, predicted beside gold: confusion, accuracy, F1, correlations.

Where nothing can be divided (no example, a class nobody named, a constant prediction) the figure is
0, so that every run has one and the worst gets the worst.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.errors import UserError


class PerClass(NamedTuple):
    """precision, recall, f1: float64 [C]; support: int64 [C] gold examples of each class."""

    precision: np.ndarray
    recall: np.ndarray
    f1: np.ndarray
    support: np.ndarray


def confusion(gold: Sequence, guesses: Sequence, labels: Sequence) -> np.ndarray:
    """int64 [C, C]: how many examples of a class (row) were given which (column), in the order of
    `labels`. Raises UserError for a class that is none of them."""
    number = {label: index for index, label in enumerate(labels)}
    unknown = sorted({str(label) for label in (*gold, *guesses) if label not in number})
    if unknown:
        raise UserError(f'no such class: {", ".join(unknown[:5])}')
    counts_CC = np.zeros((len(labels), len(labels)), np.int64)
    for right, guess in zip(gold, guesses, strict=True):
        counts_CC[number[right], number[guess]] += 1
    return counts_CC


def accuracy(counts_CC: np.ndarray) -> float:
    """The share on the diagonal of a confusion matrix."""
    return float(_divide(np.trace(counts_CC), counts_CC.sum()))


def per_class(counts_CC: np.ndarray) -> PerClass:
    """Precision, recall and F1 of each class of a confusion matrix."""
    right_C, gold_C, guessed_C = np.diagonal(counts_CC), counts_CC.sum(1), counts_CC.sum(0)
    return PerClass(
        _divide(right_C, guessed_C),
        _divide(right_C, gold_C),
        _divide(2 * right_C, gold_C + guessed_C),
        gold_C,
    )


def f1_macro(counts_CC: np.ndarray) -> float:
    """The mean F1 of the classes that occur, as gold or as a guess."""
    occurs_C = (counts_CC.sum(0) + counts_CC.sum(1)) > 0
    return float(per_class(counts_CC).f1[occurs_C].mean()) if occurs_C.any() else 0.0


def f1_micro(counts_CC: np.ndarray, without: Sequence[int] = ()) -> float:
    """F1 of the decisions for any class but those of the numbers `without`, which stand for
    'none of them', as in relation extraction; with none left out this is the accuracy."""
    counted_C = ~np.isin(np.arange(len(counts_CC)), without)
    right = np.diagonal(counts_CC)[counted_C].sum()
    named = counts_CC.sum(1)[counted_C].sum() + counts_CC.sum(0)[counted_C].sum()
    return float(_divide(2 * right, named))


def matthews(counts_CC: np.ndarray) -> float:
    """The correlation coefficient of Matthews (1975) for any number of classes (Gorodkin 2004,
    R_K)."""
    counts_CC = counts_CC.astype(np.float64)
    gold_C, guessed_C, total = counts_CC.sum(1), counts_CC.sum(0), counts_CC.sum()
    product = np.trace(counts_CC) * total - gold_C @ guessed_C
    squares = (total**2 - gold_C @ gold_C) * (total**2 - guessed_C @ guessed_C)
    return float(product / np.sqrt(squares)) if squares > 0 else 0.0


def pearson(gold: Sequence[float], guesses: Sequence[float]) -> float:
    """The linear correlation of two series of numbers."""
    x_N, y_N = (_centered(values) for values in (gold, guesses))
    if len(x_N) != len(y_N):
        raise ValueError(f'{len(x_N)} gold numbers, {len(y_N)} predicted')
    return float(np.clip(x_N @ y_N, -1, 1)) if len(x_N) else 0.0


def spearman(gold: Sequence[float], guesses: Sequence[float]) -> float:
    """The linear correlation of ranks; equal numbers share the mean of theirs."""
    return pearson(_ranks(gold), _ranks(guesses))


def _centered(values: Sequence[float]) -> np.ndarray:
    """Less the mean, scaled to length 1; zeros for a constant series."""
    x_N = np.asarray(values, np.float64)
    if not len(x_N) or x_N.min() == x_N.max():
        return np.zeros(len(x_N))
    x_N = x_N - x_N.mean()
    x_N = x_N / np.abs(x_N).max()  # squares of very small or large numbers are still numbers
    return x_N / np.linalg.norm(x_N)


def _ranks(values: Sequence[float]) -> np.ndarray:
    _, group_N, count_G = np.unique(
        np.asarray(values, np.float64), return_inverse=True, return_counts=True
    )
    return (np.cumsum(count_G) - (count_G - 1) / 2)[group_N]


def _divide(numerator, denominator):
    return np.where(denominator > 0, numerator / np.maximum(denominator, 1), 0.0)

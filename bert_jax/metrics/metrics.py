"""Metrics of predicted classes and numbers: accuracy, F1, correlations.

Where a ratio is undefined (no examples, a class that never occurs, constant predictions), the
metric is 0, so that every run has a value.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from bert_jax.errors import UserError, join_first

Numbers: TypeAlias = Sequence[float] | np.ndarray


class PerClass(NamedTuple):
    """Metrics of each class.

    Attributes:
        precision: float64 [C].
        recall: float64 [C].
        f1: float64 [C].
        support: gold examples, int64 [C].
    """

    precision: np.ndarray
    recall: np.ndarray
    f1: np.ndarray
    support: np.ndarray


class ClassCounts(NamedTuple):
    """How often each class occurs.

    Attributes:
        right_C: examples of the class that are predicted as it, int64 [C].
        gold_C: examples of the class, int64 [C].
        guessed_C: examples that are predicted as the class, int64 [C].
    """

    right_C: np.ndarray
    gold_C: np.ndarray
    guessed_C: np.ndarray


def class_numbers(classes: Sequence[str], labels: Sequence[str]) -> np.ndarray:
    """Return the index in `labels` of each class, int64 [N].

    Raises:
        UserError: a class that is not in `labels`.
    """
    index = {label: number for number, label in enumerate(labels)}
    if unknown := sorted({str(label) for label in classes if label not in index}):
        raise UserError(
            f'unknown class {join_first(unknown)}; the classes are {join_first(labels)}'
        )
    return np.array([index[label] for label in classes], np.int64)


def count_classes(gold_N: np.ndarray, guesses_N: np.ndarray, num_classes: int) -> ClassCounts:
    """Count gold and predicted classes, given by number; the time does not depend on pairs."""
    if len(gold_N) != len(guesses_N):
        raise ValueError(f'{len(gold_N)} gold classes, but {len(guesses_N)} predictions')
    right_N = gold_N[gold_N == guesses_N]
    return ClassCounts(
        *(np.bincount(n, minlength=num_classes) for n in (right_N, gold_N, guesses_N))
    )


def accuracy(counts: ClassCounts) -> float:
    """The share of examples that are predicted rightly."""
    return float(_divide(counts.right_C.sum(), counts.gold_C.sum()))


def per_class(counts: ClassCounts) -> PerClass:
    """Precision, recall and F1 of each class."""
    right_C, gold_C, guessed_C = counts
    return PerClass(
        _divide(right_C, guessed_C),
        _divide(right_C, gold_C),
        _divide(2 * right_C, gold_C + guessed_C),
        gold_C,
    )


def f1_macro(counts: ClassCounts) -> float:
    """The mean F1 over the classes that are gold or predicted at least once."""
    occurs_C = (counts.gold_C + counts.guessed_C) > 0
    return float(per_class(counts).f1[occurs_C].mean()) if occurs_C.any() else 0.0


def f1_micro(counts: ClassCounts, without: Sequence[int] = ()) -> float:
    """F1 over all classes except the indices in `without`, such as "no relation".

    Without exclusions, micro F1 equals accuracy.
    """
    is_counted_C = ~np.isin(np.arange(len(counts.gold_C)), without)
    right, gold, guessed = (values_C[is_counted_C].sum() for values_C in counts)
    return float(_divide(2 * right, gold + guessed))


def matthews(counts: ClassCounts) -> float:
    """Matthews correlation coefficient, for any number of classes.

    Sources: Matthews 1975; Gorodkin 2004 (R_K).
    """
    right_C, gold_C, guessed_C = (values_C.astype(np.float64) for values_C in counts)
    total = gold_C.sum()
    product = right_C.sum() * total - gold_C @ guessed_C
    squares = (total**2 - gold_C @ gold_C) * (total**2 - guessed_C @ guessed_C)
    return float(product / np.sqrt(squares)) if squares > 0 else 0.0


def ordinal(gold_N: np.ndarray, guesses_N: np.ndarray) -> dict[str, float]:
    """Return 'mae' and 'kappa' of ordered classes, given by number.

    Kappa with quadratic weights (Cohen 1968) is 1 minus the mean squared distance, divided by that
    of all pairs of a gold and a predicted class.
    """
    if not len(gold_N):
        return {'mae': 0.0, 'kappa': 0.0}
    x_N, y_N = gold_N.astype(np.float64), guesses_N.astype(np.float64)
    of_all_pairs = (x_N**2).mean() + (y_N**2).mean() - 2 * x_N.mean() * y_N.mean()
    kappa = 1 - ((x_N - y_N) ** 2).mean() / of_all_pairs if of_all_pairs > 0 else 0.0
    return {'mae': float(np.abs(x_N - y_N).mean()), 'kappa': float(kappa)}


def pearson(gold: Numbers, guesses: Numbers) -> float:
    """Pearson's correlation coefficient."""
    x_N, y_N = (_standardize(values) for values in (gold, guesses))
    if len(x_N) != len(y_N):
        raise ValueError(f'{len(x_N)} gold numbers, but {len(y_N)} predictions')
    return float(np.clip(x_N @ y_N, -1, 1)) if len(x_N) else 0.0


def spearman(gold: Numbers, guesses: Numbers) -> float:
    """Spearman's rank correlation coefficient; tied values get their mean rank."""
    return pearson(_ranks(gold), _ranks(guesses))


def auc(scores: Numbers, gold: Numbers) -> float:
    """Area under the ROC curve; the larger of the two gold values is the positive class.

    The probability that a positive example has a larger score than a negative example; ties count
    half (Hanley and McNeil 1982).
    """
    is_positive = np.asarray(gold) == np.max(gold)
    positives, negatives = is_positive.sum(), (~is_positive).sum()
    ranks = np.asarray(_ranks(scores))[is_positive].sum()
    return float((ranks - positives * (positives + 1) / 2) / (positives * negatives))


def _standardize(values: Numbers) -> np.ndarray:
    """Subtract the mean and scale to norm 1; zeros for constant values."""
    x_N = np.asarray(values, np.float64)
    if not len(x_N) or x_N.min() == x_N.max():
        return np.zeros(len(x_N))
    x_N = x_N - x_N.mean()
    x_N = x_N / np.abs(x_N).max()  # keeps squares of very small or large numbers finite
    return np.asarray(x_N / np.linalg.norm(x_N))


def _ranks(values: Numbers) -> np.ndarray:
    _, group_N, count_G = np.unique(
        np.asarray(values, np.float64), return_inverse=True, return_counts=True
    )
    return (np.cumsum(count_G) - (count_G - 1) / 2)[group_N]


def _divide(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    return np.where(denominator > 0, numerator / np.maximum(denominator, 1), 0.0)

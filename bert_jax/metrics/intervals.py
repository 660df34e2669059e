"""Bootstrap intervals of metrics over examples, documents or runs.

Source: Efron and Tibshirani 1993, An Introduction to the Bootstrap.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

LEVEL = 0.95  # of the intervals
# Examples and their predictions, of the types of a problem → metrics.
Score: TypeAlias = Callable[[Sequence[Any], Sequence[Any]], Mapping[str, float]]
# Numbers of examples, which may repeat → their metrics. What it needs of each example is computed
# once, so that a resample takes time proportional to the examples, however many classes there are.
RowScore: TypeAlias = Callable[[np.ndarray], Mapping[str, float]]
Interval: TypeAlias = tuple[float, float]

_Z = 1.96  # half width of the interval at LEVEL, in standard errors
_PERCENTILE_RESAMPLES = 1000
# `of_rows` draws about _RESAMPLED_EXAMPLES examples in total, within these bounds on the number
# of resamples. 50 to 200 resamples suffice for a standard error (section 6.4).
_RESAMPLED_EXAMPLES, _LEAST_RESAMPLES, _MOST_RESAMPLES = 200_000, 50, 200
_SEED = 0  # fixed, so that the same values give the same interval


def rows_of(score: Score, examples: Sequence[object], predictions: Sequence[object]) -> RowScore:
    """Return a function that scores the examples with some numbers, which may repeat."""

    def score_rows(rows_M: np.ndarray) -> Mapping[str, float]:
        rows = rows_M.tolist()
        return score([examples[row] for row in rows], [predictions[row] for row in rows])

    return score_rows


def of_rows(score: RowScore, number: int) -> dict[str, Interval]:
    """Estimate how metrics vary over other examples of the same kind.

    The interval is the metric ± 1.96 bootstrap standard errors (section 12.2), clipped to the
    smallest and largest value of the resamples, so it stays in the range of the metric. A resample
    that lacks a metric (no examples of its class) does not count for that metric.

    Args:
        score: numbers of examples, which may repeat → metrics.
        number: number of examples, at least one.
    """
    num_resamples = max(_LEAST_RESAMPLES, min(_MOST_RESAMPLES, _RESAMPLED_EXAMPLES // number))
    draws = np.random.default_rng(_SEED).integers(number, size=(num_resamples, number))
    resampled = list(map(score, draws))
    intervals = {}
    for name, value in score(np.arange(number)).items():
        values_R = np.array([metrics[name] for metrics in resampled if name in metrics])
        half = _Z * values_R.std(ddof=1)
        low, high = max(value - half, values_R.min()), min(value + half, values_R.max())
        intervals[name] = float(min(low, value)), float(max(high, value))
    return intervals


def percentiles(resampled: Sequence[ArrayLike]) -> np.ndarray:
    """The ends of the percentile interval of resampled values of any shape […]: [2, …]."""
    tail = (1 - LEVEL) / 2
    return np.asarray(np.quantile(np.asarray(resampled), [tail, 1 - tail], axis=0))


def of_documents(
    statistic: Callable[[np.ndarray], np.ndarray], num_documents: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """The percentile intervals of statistics over documents (section 13.3).

    Whole documents are drawn, because words of one document are not independent.

    Args:
        statistic: how often each document was drawn, float64 [G] → values of any shape.
        num_documents: G.

    Returns:
        The low and the high ends, in the shape of the values; None for a single document.
    """
    if num_documents < 2:
        return None
    generator = np.random.default_rng(_SEED)
    values = []
    for _ in range(_PERCENTILE_RESAMPLES):
        drawn = generator.integers(num_documents, size=num_documents)
        values.append(statistic(np.bincount(drawn, minlength=num_documents).astype(np.float64)))
    low, high = percentiles(values)
    return low, high


def of_shares(hits_GK: np.ndarray, totals_GK: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The intervals of K shares Σ hits / Σ totals over documents: see `of_documents`.

    Args:
        hits_GK: hits in each document, such as its number of correct words.
        totals_GK: the denominators, such as the number of words of each document.
    """
    return of_documents(
        lambda weights_G: weights_G @ hits_GK / np.maximum(weights_G @ totals_GK, 1e-12),
        len(hits_GK),
    )


def of_share(hits_G: np.ndarray, totals_G: np.ndarray | None = None) -> Interval | None:
    """`of_shares` of a single share; without totals, of the mean of `hits_G`."""
    totals_G = np.ones(len(hits_G)) if totals_G is None else totals_G
    ends = of_shares(hits_G[:, None], totals_G[:, None])
    return None if ends is None else (float(ends[0][0]), float(ends[1][0]))


def cell(interval: Interval | None, number: int | None = None) -> str:
    """Format 'low – high' for a table, or a dash without an interval.

    An interval without width says that all values were equal, not that others would be: it is
    shown with their number.

    Args:
        interval: its ends.
        number: number of values that were resampled, or of runs.
    """
    if interval is None:
        return '–'
    low, high = (f'{end:.4f}' for end in interval)
    if low == high:
        return f'{low}, all equal' + (f' (n = {number})' if number else '')
    return f'{low} – {high}'

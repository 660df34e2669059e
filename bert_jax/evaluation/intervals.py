"""Bootstrap intervals: of a metric over the examples of one run, of the mean over several runs.

Source: Efron and Tibshirani 1993, An Introduction to the Bootstrap.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from bert_jax.data import sampling

LEVEL = 0.95  # of the intervals
Score: TypeAlias = Callable[[Sequence[Any], Sequence[Any]], Mapping[str, float]]
Interval: TypeAlias = tuple[float, float]

_Z = 1.96  # standard errors from the middle to an end, at LEVEL
_MEAN_RESAMPLES = 1000
# Resamples of examples: as many as score this number of examples, within these bounds. For a
# standard error 50 to 200 are enough (section 6.4); percentiles would need 1,000.
_RESAMPLED_EXAMPLES, _LEAST_RESAMPLES, _MOST_RESAMPLES = 200_000, 50, 200
_SEED = 0  # fixed, so that the same values give the same interval
_PURPOSE = 300  # of the random draws


def of_metrics(
    score: Score, examples: Sequence[Any], predictions: Sequence[Any]
) -> dict[str, Interval]:
    """Estimate how metrics vary over other examples of the same kind.

    The interval is the metric ± 1.96 bootstrap standard errors (section 12.2), but does not exceed
    the smallest and the largest metric of a resample, which are in its range. Resamples without the
    examples that a metric is about do not count for this metric.

    Args:
        score: examples and predictions → metrics.
        examples: the examples, at least one.
        predictions: one for each example.

    Returns:
        Name of the metric → (low, high).
    """
    number = len(examples)
    resamples = max(_LEAST_RESAMPLES, min(_MOST_RESAMPLES, _RESAMPLED_EXAMPLES // number))
    drawn = []
    for chosen in np.random.default_rng(_SEED).integers(number, size=(resamples, number)):
        own = [(examples[index], predictions[index]) for index in chosen]
        drawn.append(score(*zip(*own, strict=True)))
    found = {}
    for name, value in score(examples, predictions).items():
        values_R = np.array([one[name] for one in drawn if name in one])
        half = _Z * values_R.std(ddof=1)
        low, high = max(value - half, values_R.min()), min(value + half, values_R.max())
        found[name] = float(min(low, value)), float(max(high, value))
    return found


def of_mean(values_S: np.ndarray) -> Interval:
    """The percentile interval of the mean of values (section 13.3)."""
    means = []
    for resample in range(_MEAN_RESAMPLES):
        key = sampling.key(_SEED, resample, _PURPOSE)
        (bits_S,) = sampling.random_bits(key, np.arange(len(values_S)), 1)
        chosen, counts = np.unique(sampling.integers(bits_S, len(values_S)), return_counts=True)
        means.append(np.average(values_S[chosen], weights=counts))
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


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
    for _ in range(_MEAN_RESAMPLES):
        drawn = generator.integers(num_documents, size=num_documents)
        values.append(statistic(np.bincount(drawn, minlength=num_documents).astype(np.float64)))
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(values, [tail, 1 - tail], axis=0)
    return low, high


def of_shares(hits_GK: np.ndarray, totals_GK: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The intervals of Σ hits / Σ totals over documents, for K shares: float64 [K] each.

    Args:
        hits_GK: hits in each document, such as its number of correct words.
        totals_GK: what they are a share of, such as its number of words.

    Returns:
        See `of_documents`.
    """
    return of_documents(
        lambda weights_G: weights_G @ hits_GK / np.maximum(weights_G @ totals_GK, 1e-12),
        len(hits_GK),
    )


def cell(interval: Interval | None) -> str:
    """Format 'low – high' for a table, or a dash without an interval."""
    return '–' if interval is None else f'{interval[0]:.4f} – {interval[1]:.4f}'

"""Compares runs: mean ± standard deviation, bootstrap intervals and a plot."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax import figures
from bert_jax.data import sampling

LEVEL = 0.95  # of the intervals
RESAMPLES = 1000
MIN_RUNS = 3  # for an interval: resampling two runs only tells them apart
_SEED = 0  # fixed, so that the same values give the same interval
_PURPOSE = 300  # of the random draws


class Summary(NamedTuple):
    """Statistics of one metric over several runs.

    Attributes:
        mean: the sample mean.
        sd: the sample standard deviation (n − 1); None for one run.
        low: lower end of the bootstrap interval of the mean; None for fewer than MIN_RUNS runs.
        high: upper end.
        count: number of runs.
    """

    mean: float
    sd: float | None
    low: float | None
    high: float | None
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls


def summarize(values: Sequence[float]) -> Summary:
    """Summarize the values of one metric, one for each run."""
    values_S = np.asarray(values, np.float64)
    sd = float(values_S.std(ddof=1)) if len(values_S) > 1 else None
    low, high = bootstrap_interval(values_S) if len(values_S) >= MIN_RUNS else (None, None)
    return Summary(float(values_S.mean()), sd, low, high, len(values_S))


def mean_cell(summary: Mapping[str, Any], digits: int = 4) -> str:
    """Format 'mean ± sd' for a table, or the mean alone of one run."""
    shown = f'{summary["mean"]:.{digits}f}'
    return shown if summary['sd'] is None else f'{shown} ± {summary["sd"]:.{digits}f}'


def interval_cell(summary: Mapping[str, Any]) -> str:
    """Format 'low – high' for a table, or a dash without an interval."""
    return '–' if summary['low'] is None else f'{summary["low"]:.4f} – {summary["high"]:.4f}'


def bootstrap_interval(values_S: np.ndarray) -> tuple[float, float]:
    """The percentile bootstrap interval of the mean of values.

    Source: Efron and Tibshirani 1993, chapter 13.
    """
    means = []
    for resample in range(RESAMPLES):
        key = sampling.key(_SEED, resample, _PURPOSE)
        (bits_S,) = sampling.random_bits(key, np.arange(len(values_S)), 1)
        chosen, counts = np.unique(sampling.integers(bits_S, len(values_S)), return_counts=True)
        means.append(np.average(values_S[chosen], weights=counts))
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def plot_runs(
    path: pathlib.Path,
    results: Mapping[str, Mapping[str, Mapping[str, Any]]],
    titles: Mapping[str, str],
    variants: str = '',
) -> None:
    """Plot one panel for each metric, with a dot for each run and a bar at the mean.

    Args:
        path: the path of the figure, without a suffix.
        results: variant → metric → 'mean' and 'values' (of the runs).
        titles: metric → title of its panel.
        variants: what the variants differ in, such as 'learning rate'.
    """
    names = list(results)
    figure = figures.new(1.5 + 3.2 * len(titles), 1.2 + 0.32 * len(names))
    axes = figure.subplots(1, len(titles), sharey=True, squeeze=False)
    axes[0, 0].set_ylabel(variants)
    for axis, (metric, title) in zip(axes[0], titles.items(), strict=True):
        for row, name in enumerate(names):
            if metric in results[name]:
                result = results[name][metric]
                values = result['values']
                axis.plot(values, [row] * len(values), 'o', color='C0', alpha=0.6)
                axis.plot(result['mean'], row, '|', color='black', markersize=16)
        axis.set_xlabel(title)
        axis.grid(alpha=0.3)
        axis.set_yticks(range(len(names)), names)
        axis.set_ylim(len(names) - 0.5, -0.5)
    figures.save(figure, path)

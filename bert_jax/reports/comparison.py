"""Compares runs: mean ± standard deviation, bootstrap intervals and a plot."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax import figures
from bert_jax.metrics import intervals
from bert_jax.training.early_stopping import lower_is_better
from bert_jax.types import JsonObject, JsonRecord, JsonView

INTERVAL = f'{intervals.LEVEL:.0%} interval of the mean'
MIN_RUNS = 5  # for an interval; with fewer runs the bootstrap interval is about their range


class Summary(NamedTuple):
    """Statistics of one metric over several runs.

    Attributes:
        mean: the sample mean.
        sd: the sample standard deviation (n − 1); None for one run.
        low: lower end of the bootstrap interval of the mean; None for fewer than MIN_RUNS runs.
        high: upper end.
        values: the value of each run.
    """

    mean: float
    sd: float | None
    low: float | None
    high: float | None
    values: list[float]


def summarize(values: Sequence[float]) -> Summary:
    """Summarize the values of one metric, one for each run."""
    values_S = np.asarray(values, np.float64)
    sd = float(values_S.std(ddof=1)) if len(values_S) > 1 else None
    interval = intervals.of_share(values_S) if len(values_S) >= MIN_RUNS else None
    low, high = interval or (None, None)
    return Summary(float(values_S.mean()), sd, low, high, values_S.tolist())


def mean_cell(summary: JsonRecord, digits: int = 4) -> str:
    """Format 'mean ± sd' for a table; only the mean for a single run."""
    mean = f'{summary["mean"]:.{digits}f}'
    return mean if summary['sd'] is None else f'{mean} ± {summary["sd"]:.{digits}f}'


def interval_cell(summary: JsonObject) -> str:
    """Format 'low – high' for a table, labeled 'range' for fewer than MIN_RUNS runs."""
    values, number = summary['values'], len(summary['values'])
    if summary['low'] is not None:
        return intervals.cell((summary['low'], summary['high']), number)
    if number < 2:
        return '–'
    ends = intervals.cell((min(values), max(values)), number)
    return f'range {ends}' if '–' in ends else ends


def describe_choice(metric: str) -> str:
    """Return a sentence that names the metric that chose the best setting."""
    order = 'lowest' if lower_is_better(metric) else 'highest'
    return f'The best setting has the {order} {metric} (evaluation.best chooses another metric).'


def plot_runs(
    path: pathlib.Path,
    results: Mapping[str, Mapping[str, JsonObject]],
    titles: Mapping[str, str],
    variants: str = '',
) -> None:
    """Plot one panel for each metric, with a dot for each run and a bar at the mean.

    Args:
        path: the path of the figure, without a suffix.
        results: variant → metric → 'mean' and 'values' (a value for each run).
        titles: metric → title of its panel.
        variants: label of the vertical axis: what the variants differ in, such as 'learning rate'.
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


def value_cell(value: object) -> str:
    """Format the value of a config key for a table or an axis."""
    return f'{value:.4g}' if isinstance(value, float) else str(value)


def plot_sweep(path: pathlib.Path, results: JsonView) -> None:
    """Plot the compared metric against each key of a sweep: finished filled, discarded hollow.

    A dot is a run, a bar the mean of a setting; without keys, one row has the runs of all seeds.

    Args:
        path: the path of the figure, without a suffix.
        results: the contents of results.json of a sweep.
    """
    metric, keys = results['metric'], list(results['best'])
    rows = [row for row in results['settings'] if metric in row['metrics']]
    if not keys:
        plot_runs(path, {'': rows[0]['metrics']}, {metric: metric})
        return
    figure = figures.new(1 + 3.2 * len(keys), 3.2)
    axes = figure.subplots(1, len(keys), sharey=True, squeeze=False)
    axes[0, 0].set_ylabel(metric)
    for axis, key in zip(axes[0], keys, strict=True):
        values = [row['values'][key] for row in rows]
        are_numbers = all(isinstance(value, int | float) for value in values)
        names = list(dict.fromkeys(map(value_cell, values)))
        for row, value in zip(rows, values, strict=True):
            place = value if are_numbers else names.index(value_cell(value))
            face, result = 'C0' if row['state'] == 'finished' else 'none', row['metrics'][metric]
            runs = result['values']
            axis.plot([place] * len(runs), runs, 'o', color='C0', markerfacecolor=face, alpha=0.6)
            axis.plot(place, result['mean'], '_', color='black', markersize=16)
        if not are_numbers:
            axis.set_xticks(range(len(names)), names)
        elif min(values) > 0 and max(values) > 20 * min(values):
            axis.set_xscale('log')
        axis.set_xlabel(key)
        axis.grid(alpha=0.3)
    figures.save(figure, path)

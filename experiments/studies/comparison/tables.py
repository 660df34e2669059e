"""Tables of the comparison: means over seeds, and paired differences with intervals."""

import math
import statistics
from collections.abc import Mapping, Sequence

from scipy import stats

from experiments.studies import runner
from experiments.studies.comparison import downstream
from experiments.studies.comparison.variants import DIFFERENCES

Difference = dict[str, float | None]  # 'mean', and 'low' and 'high' of its interval


def paired_difference(values: Sequence[float], others: Sequence[float]) -> Difference:
    """Return the mean of the differences and its 95 % interval by Student's t.

    Args:
        values, others: a value for each seed, in the same order.

    Returns:
        'mean', 'low' and 'high'; the ends are None for a single seed.
    """
    differences = [a - b for a, b in zip(values, others, strict=True)]
    mean, number = statistics.fmean(differences), len(differences)
    if number == 1:
        return {'mean': mean, 'low': None, 'high': None}
    error = statistics.stdev(differences) / math.sqrt(number)
    half = float(stats.t.ppf(0.975, number - 1)) * error
    return {'mean': mean, 'low': mean - half, 'high': mean + half}


def differences(results: Mapping[str, list[runner.Measures]]) -> dict[str, dict[str, Difference]]:
    """Return 'variant − other' → measure → difference, for the pairs in DIFFERENCES."""
    found = {}
    for name, others in DIFFERENCES.items():
        for other in others:
            if name in results and other in results:
                found[f'{name} − {other}'] = _difference(results[name], results[other])
    return found


def _difference(
    runs: list[runner.Measures], others: list[runner.Measures]
) -> dict[str, Difference]:
    common = [name for name in runs[0] if name in others[0] and name != 'tokens']
    return {
        name: paired_difference([run[name] for run in runs], [run[name] for run in others])
        for name in common
    }


def titles(summary: Mapping[str, Mapping[str, object]], mode: str) -> dict[str, str]:
    """Return measure → title, for the measures of a mode; BLiMP is with the frozen ones."""
    measured = {name for measures in summary.values() for name in measures}
    names = {f'{task}, {mode}': f'{task}, {metric}' for task, metric in downstream.METRICS.items()}
    if mode == 'frozen':
        names[downstream.BLIMP] = 'BLiMP, mean of paradigms'
    return {name: title for name, title in names.items() if name in measured}


def report(
    summary: Mapping[str, Mapping[str, dict]],
    differences: Mapping[str, Mapping[str, Difference]],
) -> str:
    """Return Markdown: a table of means for each mode, and the differences."""
    parts = []
    for mode in downstream.MODES:
        columns = titles(summary, mode)
        if columns:
            parts.append(f'**{mode}**, mean ± standard deviation over seeds\n')
            parts.append(runner.table(dict(summary), columns | {'tokens': 'tokens'}))
            parts.append(f'**{mode}**, differences of runs with the same seed, 95 % interval\n')
            parts.append(_difference_table(differences, columns))
    return '\n'.join(parts)


def _difference_table(
    differences: Mapping[str, Mapping[str, Difference]], columns: Mapping[str, str]
) -> str:
    lines = ['| | ' + ' | '.join(columns.values()) + ' |', '|---|' + '---:|' * len(columns)]
    for name, measures in differences.items():
        cells = [_cell(measures[column]) if column in measures else '–' for column in columns]
        lines.append(f'| {name} | ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines) + '\n'


def _cell(difference: Difference) -> str:
    mean, low, high = difference['mean'], difference['low'], difference['high']
    return f'{mean:+.3f}' if low is None else f'{mean:+.3f} ({low:+.3f} to {high:+.3f})'

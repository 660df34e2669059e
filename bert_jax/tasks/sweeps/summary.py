"""The outcomes of the settings of a sweep: results.json, table.md and the plot."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bert_jax import files, progress
from bert_jax.metrics.scores import Table
from bert_jax.reports import comparison
from bert_jax.reports.tables import markdown_table
from bert_jax.storage.path import Path
from bert_jax.tasks.sweeps.settings import Setting
from bert_jax.training.early_stopping import lower_is_better
from bert_jax.training.workdir import Workdir
from bert_jax.types import Config, JsonRecord, JsonView, RecordView


class RunKey(NamedTuple):
    """The number of a setting, and the seed of a run."""

    setting: int
    seed: int


class EvaluatedRun(NamedTuple):
    """What is known of a run that paused or finished.

    Attributes:
        step: the number of its steps.
        metrics: its last held-out metrics.
        attention: the direction of attention of a fine-tuned model; '' for others.
    """

    step: int
    metrics: Mapping[str, float]
    attention: str = ''

    @classmethod
    def of_results(cls, results: JsonView) -> 'EvaluatedRun':
        """Return what results.json of a run says."""
        return cls(results['steps'], results['held_out'], results.get('attention', ''))


class Outcome(NamedTuple):
    """The outcome of a setting.

    Attributes:
        state: 'finished', 'discarded' or 'diverged'.
        step: the largest number of steps of its runs.
        runs: its runs by seed; empty if one of them diverged.
    """

    state: str
    step: int
    runs: Mapping[int, EvaluatedRun]

    @property
    def metrics(self) -> dict[int, Mapping[str, float]]:
        """The last metrics of its runs, by seed."""
        return {seed: run.metrics for seed, run in self.runs.items()}


def compared_metric(config: Config, found: Mapping[int, Mapping[int, Mapping[str, float]]]) -> str:
    """Return evaluation.best, or the first metric: the loss in pretraining, else the main one."""
    first = next(iter(next(iter(found.values())).values()))
    return str(config.evaluation.best or next(iter(first)))


def best(
    found: Mapping[int, Mapping[int, Mapping[str, float]]], metric: str, number: int
) -> list[int]:
    """Return the settings with the best means over seeds, best first."""
    sign = 1 if lower_is_better(metric) else -1

    def rank(setting: int) -> float:
        mean = sum(one[metric] for one in found[setting].values()) / len(found[setting])
        return math.inf if math.isnan(mean) else sign * mean

    return sorted(found, key=rank)[:number]


def summarize(
    settings: Sequence[Setting],
    outcomes: Mapping[int, Outcome],
    survivors: Sequence[int],
    metric: str,
    folders: Mapping[RunKey, Path],
) -> JsonRecord:
    """Return the contents of results.json.

    {'metric': name of the compared metric, 'best': the setting with the best mean, 'best_run': the
    folder of its best run, 'settings': [{'values', 'state', 'step', 'seeds', 'metrics': name →
    summary}, …], best first}; of fine-tuning also 'attention', the direction of the best run, and
    'other_splits' (`_other_splits`).

    Args:
        settings: the settings in the order of their numbers.
        outcomes: the outcome of each.
        survivors: the settings that were trained to the end, best first.
        metric: name of the compared metric.
        folders: the folder of each run.
    """
    others = [number for number in outcomes if number not in survivors]
    others.sort(key=lambda number: (outcomes[number].state == 'diverged', -outcomes[number].step))
    first = survivors[0]
    by_seed = {seed: {seed: one} for seed, one in outcomes[first].metrics.items()}
    best_seed = best(by_seed, metric, 1)[0]
    attention = outcomes[first].runs[best_seed].attention
    splits = _other_splits({number: outcomes[number] for number in survivors}, metric, folders)
    return {
        'metric': metric,
        'best': dict(settings[first]),
        'best_run': folders[RunKey(first, best_seed)].name,
        **({'attention': attention} if attention else {}),
        'settings': [
            {
                'values': dict(settings[number]),
                'state': outcomes[number].state,
                'step': outcomes[number].step,
                'seeds': list(outcomes[number].metrics),
                'metrics': _summaries(list(outcomes[number].metrics.values())),
            }
            for number in (*survivors, *others)
        ],
        **({'other_splits': splits} if splits else {}),
    }


def _other_splits(
    outcomes: Mapping[int, Outcome], metric: str, folders: Mapping[RunKey, Path]
) -> JsonRecord:
    """Summarize the metrics of splits other than dev over the seeds.

    Each seed contributes the run whose setting is best on dev (Gao et al. 2021, "Making Pre-trained
    Language Models Better Few-shot Learners", section 3).

    Returns:
        Split → metric → summary; empty if runs have no other splits.
    """
    found: dict[str, list[Mapping[str, float]]] = {}
    for seed in next(iter(outcomes.values())).runs:
        of_seed = {n: {seed: outcome.metrics[seed]} for n, outcome in outcomes.items()}
        folder = folders[RunKey(best(of_seed, metric, 1)[0], seed)]
        for path in sorted(folder.glob('*/metrics.json')):
            if path.parent.name != 'dev':
                found.setdefault(path.parent.name, []).append(files.read_json(path)['metrics'])
    return {split: _summaries(metrics) for split, metrics in found.items()}


def _summaries(runs: Sequence[Mapping[str, float]]) -> JsonRecord:
    """Return metric → summary of its values in some runs."""
    names = runs[0] if runs else {}
    return {name: comparison.summarize([one[name] for one in runs])._asdict() for name in names}


def write(workdir: Workdir, results: RecordView) -> None:
    """Write results.json, table.md, plot.png and plot.pdf, and print the table."""
    markdown = table(results)
    workdir.local.mkdir(parents=True, exist_ok=True)  # missing if all runs were done in a bucket
    with workdir.writing():
        files.write_json(workdir.local / 'results.json', results)
        (workdir.local / 'table.md').write_text(markdown, encoding='utf-8')
        comparison.plot_sweep(workdir.local / 'plot', results)
    workdir.push()
    progress.say(markdown)
    progress.say(f'sweep in {workdir.path}: results.json, table.md, plot.png')


def table(results: JsonView) -> str:
    """Return a Markdown table with a row for each setting, best first, and what it shows.

    The compared metric comes first, with the interval of its mean. A column says how far settings
    were trained, if not all were trained to the end.
    """
    keys, metric, rows = list(results['best']), results['metric'], results['settings']
    names = [name for name in rows[0]['metrics'] if name != metric]
    shows_state = any(row['state'] != 'finished' for row in rows)

    def cells(row: JsonView) -> tuple[str | int, ...]:
        metrics = row['metrics']
        at = f' at {row["step"]}' if row['state'] != 'finished' and row['step'] else ''
        return (
            *(comparison.value_cell(row['values'][key]) for key in keys),
            *([f'{row["state"]}{at}'] * shows_state),
            len(row['seeds']),
            comparison.mean_cell(metrics[metric]) if metrics else '–',
            comparison.interval_cell(metrics[metric]) if metrics else '–',
            *(comparison.mean_cell(metrics[name]) if name in metrics else '–' for name in names),
        )

    run = ['run'] * shows_state
    header = (*keys, *run, 'seeds', metric, comparison.INTERVAL, *names)
    parts = [markdown_table(Table(header, [cells(row) for row in rows]))]
    parts += [comparison.describe_choice(metric)] * (len(rows) > 1)
    for split, metrics in results.get('other_splits', {}).items():
        lines = [
            (name, comparison.mean_cell(one), comparison.interval_cell(one))
            for name, one in metrics.items()
        ]
        chosen = f', each seed with its best {" and ".join(keys)} on dev' if keys else ''
        made = markdown_table(Table((split, 'mean', comparison.INTERVAL), lines))
        parts.append(f'{split}{chosen}\n\n{made}')
    if 'attention' in results:
        parts.append(f'Attention {results["attention"]}.')
    return '\n\n'.join(parts) + '\n'

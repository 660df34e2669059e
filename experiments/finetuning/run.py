"""bert_jax beside transformers + torch on eight tasks: the same weights, examples, batch size,
rate, steps and seeds, each in a process of its own.

python -m experiments.finetuning.run --data=FOLDER --weights=FOLDER

Needs torch and transformers. What has been run is kept; the command can be repeated.
"""

import argparse
import json
import pathlib

from bert_jax.errors import exit_cleanly, unknown
from bert_jax.evaluation import comparison
from bert_jax.evaluation.scores import Table
from bert_jax.evaluation.tables import markdown_table
from bert_jax.tasks import problems
from bert_jax.training.workdir import write_json
from experiments.finetuning import tasks
from experiments.studies import runner

OURS, TORCH, PADDED = SIDES = 'bert_jax', 'torch', 'torch_padded'
PADDED_STEPS = 40  # for the time alone
Found = dict[str, list[float]]  # 'metric' and 'seconds', a value a seed


def run_side(side: str, name: str, options: argparse.Namespace) -> Found:
    """Trains a task on a side for every seed, or takes what is there: 'seconds' a step."""
    study, folder = tasks.TASKS[name], pathlib.Path(options.runs) / name
    if side == OURS:
        keys = tasks.keys(study, options.data, options.weights, options.steps)
        seeds = {'sweep.seeds': tuple(range(options.seeds))}
        command = runner.main_command(f'configs/finetune.py:{study.kind}', keys | seeds)
        where = folder / f'{side}_{keys["training.steps"]}'  # of all seeds: more go on in it
        runner.run_once(where, command, '--config.workdir')
        return ours(where, study.metric, options.seeds)
    steps, seeds = options.steps or study.steps, options.seeds
    flags = [f'--task={name}', f'--data={options.data}', f'--weights={options.weights}']
    if side == PADDED:
        flags, steps, seeds = [*flags, '--padded'], min(steps, PADDED_STEPS), 1
    found = {'metric': [], 'seconds': []}
    for seed in range(seeds):
        own = [*flags, f'--steps={steps}', f'--seed={seed}']
        where = folder / f'{side}_{steps}_{seed}'
        runner.run_once(where, ['-m', 'experiments.finetuning.torch_side', *own], '--folder')
        result = runner.results(where)
        found['seconds'].append(result['seconds_per_step'])
        if 'held_out' in result:
            found['metric'].append(result['held_out'][study.metric])
    return found


def ours(folder: pathlib.Path, metric: str, seeds: int) -> Found:
    """What the runs of a sweep say."""
    found = {'metric': [], 'seconds': []}
    for seed in range(seeds):
        own = folder / f'seed_{seed}'
        result = runner.results(own)
        records = map(json.loads, (own / 'metrics.jsonl').read_text().splitlines())
        training = [record for record in records if record['kind'] == 'train']
        found['metric'].append(result['held_out'][metric])
        found['seconds'].append(seconds_per_step(training, result['tokens'] / result['steps']))
    return found


def per_epoch(found: Found, name: str, data: str) -> Found:
    """With the seconds of an epoch in place of those of a step."""
    study = tasks.TASKS[name]
    examples = problems.read(tasks.config(study, tasks.keys(study, data, '')).data, study.kind)
    steps = len(examples.train) / study.batch_size
    return found | {'seconds': [steps * seconds for seconds in found['seconds']]}


def seconds_per_step(records: list[dict], tokens_per_step: float) -> float:
    """From the records of training, without the first, in whose time the step was compiled."""
    first, *rest = records
    seconds, before = 0.0, first['step']
    for record in rest:
        steps = record['step'] - before
        seconds += steps * tokens_per_step / record['tokens_per_second']
        before = record['step']
    return seconds / (before - first['step'])


def summaries(found: dict[str, dict[str, Found]]) -> dict[str, dict[str, dict]]:
    """'task, side' → 'metric', 'seconds' → summary over the seeds."""
    return {
        f'{name}, {side}': {
            measure: comparison.summarize(values)._asdict() | {'values': values}
            for measure, values in own.items()
            if values
        }
        for name, sides in found.items()
        for side, own in sides.items()
    }


def table(found: dict[str, dict[str, dict]], names: list[str]) -> str:
    """Markdown, a row a task; a dash for a side that was not run."""
    columns = ['task', 'metric']
    columns += [f'{side}, {what}' for side in (OURS, TORCH) for what in ('metric', 'interval')]
    columns += [f'{side}, s / epoch' for side in SIDES]
    rows = []
    for name in names:
        own = {side: found.get(f'{name}, {side}', {}) for side in SIDES}
        row = [name, tasks.TASKS[name].metric]
        for side in (OURS, TORCH):
            row += _figures(own[side].get('metric'))
        row += [_seconds(own[side].get('seconds')) for side in SIDES]
        rows.append(tuple(row))
    return markdown_table(Table(tuple(columns), rows)) + '\n'


def _figures(own: dict | None) -> list[str]:
    if own is None:
        return ['–', '–']
    return [f'{own["mean"]:.4f} ± {own["sd"]:.4f}', f'{own["low"]:.4f} – {own["high"]:.4f}']


def _seconds(own: dict | None) -> str:
    return '–' if own is None else f'{own["mean"]:.1f} ± {own["sd"]:.1f}'


def write(folder: pathlib.Path, settings: dict, found: dict[str, dict[str, Found]]):
    """results.json, table.md and plot.png."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = summaries(found)
    write_json(folder / 'results.json', {'settings': settings, 'figures': figures})
    (folder / 'table.md').write_text(table(figures, list(found)), encoding='utf-8')
    titles = {'metric': 'metric on dev', 'seconds': 'seconds per epoch'}
    comparison.plot_runs(folder / 'plot.png', figures, titles)
    print(table(figures, list(found)))


def _names(given: str, kind: str, known) -> list[str]:
    names = given.split(',') if given else list(known)
    for name in names:
        if name not in known:
            raise unknown(kind, name, known)
    return names


@exit_cleanly
def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--data', required=True, help='folder of the data sets')
    parser.add_argument('--weights', required=True, help='folder of the model')
    parser.add_argument('--tasks', default='', help=f'of {", ".join(tasks.TASKS)}; all')
    parser.add_argument('--sides', default='', help=f'of {", ".join(SIDES)}; all')
    parser.add_argument('--seeds', type=int, default=3)
    parser.add_argument('--steps', type=int, default=0, help='other than those of the task')
    parser.add_argument('--runs', default='runs/finetuning', help='folder of the runs')
    parser.add_argument('--output', default='experiments/finetuning', help='folder of the figures')
    options = parser.parse_args()
    names = _names(options.tasks, 'task', tasks.TASKS)
    sides = _names(options.sides, 'side', SIDES)
    for key in ('data', 'weights', 'runs', 'output'):
        setattr(options, key, str(pathlib.Path(getattr(options, key)).resolve()))
    settings = {'seeds': options.seeds}
    settings['tasks'] = {name: tasks.TASKS[name]._asdict() for name in names}
    if options.steps:
        settings['steps'] = options.steps
    found = {}
    for name in names:
        runs = {side: run_side(side, name, options) for side in sides}
        found[name] = {side: per_epoch(own, name, options.data) for side, own in runs.items()}
        write(pathlib.Path(options.output), settings, found)


if __name__ == '__main__':
    main()

"""Compares fine-tuning by bert_jax and by transformers + torch on eight tasks.

    python -m experiments.finetuning.run --data=FOLDER --weights=FOLDER

Both libraries use the same weights, examples, batch size, learning rate, steps and seeds. Finished
runs are kept, so the command can be repeated. Needs torch and transformers.
"""

import argparse
import json
import pathlib

from bert_jax import problems
from bert_jax.errors import exit_cleanly, unknown
from bert_jax.files import write_json
from bert_jax.metrics.scores import Table
from bert_jax.reports import comparison
from bert_jax.reports.tables import markdown_table
from experiments.finetuning import tasks
from experiments.studies import runner

OURS, TORCH, PADDED = SIDES = 'bert_jax', 'torch', 'torch_padded'
PADDED_STEPS = 40  # steps of the runs with padding, which only measure the time
Results = dict[str, list[float]]  # measure, such as 'metric' and 'seconds' → a value for each seed


def run_side(side: str, name: str, options: argparse.Namespace) -> Results:
    """Train a task with every seed unless the runs exist; 'seconds' are per step."""
    task, folder = tasks.TASKS[name], pathlib.Path(options.runs) / name
    if side == OURS:
        keys = tasks.config_keys(task, options.data, options.weights, options.steps)
        seeds = {'sweep.seeds': tuple(range(options.seeds))}
        command = runner.main_command(f'configs/finetune.py:{task.kind}', keys | seeds)
        sweep = folder / f'{side}_{keys["training.steps"]}'  # more seeds are added to this sweep
        runner.run_once(sweep, command, '--config.workdir')
        return read_sweep(sweep, task.metric, options.seeds)
    steps, num_seeds = options.steps or task.steps, options.seeds
    flags = [f'--task={name}', f'--data={options.data}', f'--weights={options.weights}']
    if side == PADDED:
        flags, steps, num_seeds = [*flags, '--padded'], min(steps, PADDED_STEPS), 1
    results: Results = {'metric': [], 'seconds': []}
    for seed in range(num_seeds):
        arguments = [*flags, f'--steps={steps}', f'--seed={seed}']
        run = folder / f'{side}_{steps}_{seed}'
        runner.run_once(run, ['-m', 'experiments.finetuning.torch_side', *arguments], '--folder')
        result = runner.read_results(run)
        results['seconds'].append(result['seconds_per_step'])
        if 'held_out' in result:
            results['metric'].append(result['held_out'][task.metric])
    return results


def read_sweep(folder: pathlib.Path, metric: str, seeds: int) -> Results:
    """Read the results of a sweep of bert_jax over seeds."""
    results: Results = {'metric': [], 'seconds': []}
    for seed in range(seeds):
        run = folder / f'seed_{seed}'
        result = runner.read_results(run)
        records = map(json.loads, (run / 'metrics.jsonl').read_text().splitlines())
        training = [record for record in records if record['kind'] == 'train']
        results['metric'].append(result['held_out'][metric])
        results['seconds'].append(seconds_per_step(training, result['tokens'] / result['steps']))
    return results


def per_epoch(results: Results, name: str, data: str) -> Results:
    """Convert the seconds of results from seconds per step to seconds per epoch."""
    task = tasks.TASKS[name]
    config = tasks.make_config(task, tasks.config_keys(task, data, ''))
    steps = len(problems.read(config.data, task.kind).train) / task.batch_size
    return results | {'seconds': [steps * seconds for seconds in results['seconds']]}


def seconds_per_step(records: list[dict], tokens_per_step: float) -> float:
    """The mean over the training records except the first, which includes the compilation."""
    first, *rest = records
    seconds, before = 0.0, first['step']
    for record in rest:
        steps = record['step'] - before
        seconds += steps * tokens_per_step / record['tokens_per_second']
        before = record['step']
    return seconds / (before - first['step'])


def summaries(results: dict[str, dict[str, Results]]) -> dict[str, dict[str, dict]]:
    """Return 'task, side' → measure → summary over the seeds."""
    return {
        f'{name}, {side}': {
            measure: comparison.summarize(values)._asdict()
            for measure, values in measures.items()
            if values
        }
        for name, sides in results.items()
        for side, measures in sides.items()
    }


def table(summary: dict[str, dict[str, dict]], names: list[str]) -> str:
    """Format a Markdown table with a row for each task; a dash stands for a missing run."""
    columns = ['task', 'metric']
    columns += [f'{side}, {what}' for side in (OURS, TORCH) for what in ('metric', 'interval')]
    columns += [f'{side}, s / epoch' for side in SIDES]
    rows = []
    for name in names:
        sides = {side: summary.get(f'{name}, {side}', {}) for side in SIDES}
        row = [name, tasks.TASKS[name].metric]
        for side in (OURS, TORCH):
            row += _metric_cells(sides[side].get('metric'))
        row += [_seconds_cell(sides[side].get('seconds')) for side in SIDES]
        rows.append(tuple(row))
    return markdown_table(Table(tuple(columns), rows)) + '\n'


def _metric_cells(summary: dict | None) -> list[str]:
    if summary is None:
        return ['–', '–']
    return [comparison.mean_cell(summary), comparison.interval_cell(summary)]


def _seconds_cell(summary: dict | None) -> str:
    return '–' if summary is None else comparison.mean_cell(summary, digits=1)


def write(folder: pathlib.Path, settings: dict, results: dict[str, dict[str, Results]]):
    """Write results.json, table.md and plot.png."""
    folder.mkdir(parents=True, exist_ok=True)
    summary = summaries(results)
    write_json(folder / 'results.json', {'settings': settings, 'figures': summary})
    (folder / 'table.md').write_text(table(summary, list(results)), encoding='utf-8')
    titles = {'metric': 'metric on dev', 'seconds': 'seconds per epoch'}
    comparison.plot_runs(folder / 'plot', summary, titles)
    print(table(summary, list(results)))


def parse_names(text: str, kind: str, known) -> list[str]:
    """Split a list of names, '' for all known names. Raises UserError for an unknown name."""
    names = text.split(',') if text else list(known)
    for name in names:
        if name not in known:
            raise unknown(kind, name, known)
    return names


@exit_cleanly
def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--data', required=True, help='folder of the data sets')
    parser.add_argument('--weights', required=True, help='folder of the pretrained model')
    parser.add_argument('--tasks', default='', help=f'some of {",".join(tasks.TASKS)}; default all')
    parser.add_argument('--sides', default='', help=f'some of {",".join(SIDES)}; default all')
    parser.add_argument('--seeds', type=int, default=3, help='number of seeds')
    parser.add_argument('--steps', type=int, default=0, help='overrides the steps of the tasks')
    parser.add_argument('--runs', default='runs/finetuning', help='folder of the runs')
    parser.add_argument('--output', default='experiments/finetuning', help='folder of the results')
    options = parser.parse_args()
    names = parse_names(options.tasks, 'task', tasks.TASKS)
    sides = parse_names(options.sides, 'side', SIDES)
    for key in ('data', 'weights', 'runs', 'output'):
        setattr(options, key, str(pathlib.Path(getattr(options, key)).resolve()))
    settings = {
        'seeds': options.seeds,
        'tasks': {name: tasks.TASKS[name]._asdict() for name in names},
    }
    if options.steps:
        settings['steps'] = options.steps
    results = {}
    for name in names:
        results[name] = {
            side: per_epoch(run_side(side, name, options), name, options.data) for side in sides
        }
        write(pathlib.Path(options.output), settings, results)


if __name__ == '__main__':
    main()

"""Compares parameter-efficient tuning with full tuning, with heads only, and with peft.

    python -m experiments.finetuning.tuning --data=FOLDER --weights=FOLDER --tasks=banking77

The tasks, splits and settings are the same as in experiments/finetuning/run.py, except that each
method has its own learning rate. Short runs of one seed come first and measure seconds and memory.
Then the seeds of a method are trained at once (sweep.vmap). Finished runs are kept, so the command
can be repeated. The sides named `peft` need torch, transformers and peft.
"""

import argparse
import itertools
import pathlib

from bert_jax import problems
from bert_jax.errors import exit_cleanly
from bert_jax.files import write_json
from bert_jax.metrics.scores import Table
from bert_jax.reports import comparison
from bert_jax.reports.tables import markdown_table
from experiments.finetuning import run, tasks
from experiments.studies import runner

# Method → the learning rate relative to full tuning, and the config keys.
METHODS = {
    'full': (1, {}),
    'heads': (25, {'transfer.trainable': 'heads'}),
    'lora': (25, {'transfer.method': 'lora'}),
    'lora_pooler': (25, {'transfer.method': 'lora', 'transfer.train_pooler': True}),
    'houlsby': (25, {'transfer.method': 'houlsby'}),
    'pfeiffer': (25, {'transfer.method': 'pfeiffer'}),
    'parallel': (25, {'transfer.method': 'parallel'}),
    'prefix': (100, {'transfer.method': 'prefix'}),
    'prompt': (100, {'transfer.method': 'prompt'}),
    'bitfit': (20, {'transfer.method': 'bitfit'}),
    'ia3': (50, {'transfer.method': 'ia3'}),
    'mam': (25, {'transfer.method': 'mam'}),
}
PEFT = {'peft lora': 'lora', 'peft ia3': 'ia3'}  # side → method
TIMED_STEPS = 40  # steps of the short runs
Record = run.Results  # measure → a value for each seed


def run_ours(method: str, name: str, options: argparse.Namespace, steps: int, seeds: int) -> Record:
    """Train with every seed, unless the runs exist; seconds are per step."""
    factor, keys = METHODS[method]
    task = tasks.TASKS[name]
    settings = tasks.config_keys(task, options.data, options.weights, steps) | keys
    settings['schedule.learning_rate'] = factor * task.learning_rate
    settings['sweep.seeds'] = tuple(range(seeds))
    settings['sweep.vmap'] = 'transfer.method' in keys and seeds > 1
    folder = pathlib.Path(options.runs) / name / f'{method}_{steps}'
    command = runner.main_command(f'configs/finetune.py:{task.kind}', settings)
    runner.run_once(folder, command, '--config.workdir')
    runs = [folder / f'seed_{seed}' for seed in range(seeds)]
    results = [runner.read_results(path) for path in runs]
    record = {
        'metric': [result['held_out'][task.metric] for result in results],
        'trained': [
            100 * result['trained_parameters'] / result['parameters'] for result in results
        ],
        'checkpoint_MB': [_checkpoint_size(path) for path in runs],
        'memory_GB': [result['peak_memory_bytes'] / 1e9 for result in results],
    }
    if not settings['sweep.vmap']:  # runs at once have no log of their own
        record['seconds'] = run.read_sweep(folder, task.metric, seeds)['seconds']
    return record


def run_peft(side: str, name: str, options: argparse.Namespace, steps: int, seeds: int) -> Record:
    """Train with every seed in transformers and peft, unless the runs exist."""
    method, metric = PEFT[side], tasks.TASKS[name].metric
    flags = [f'--task={name}', f'--data={options.data}', f'--weights={options.weights}']
    flags += [f'--steps={steps}', f'--method={method}', f'--rate_factor={METHODS[method][0]}']
    results = []
    for seed in range(seeds):
        folder = pathlib.Path(options.runs) / name / f'peft_{method}_{steps}_{seed}'
        command = ['-m', 'experiments.finetuning.torch_side', *flags, f'--seed={seed}']
        runner.run_once(folder, command, '--folder')
        results.append(runner.read_results(folder))
    return {
        'metric': [result['held_out'][metric] for result in results],
        'seconds': [result['seconds_per_step'] for result in results],
        'trained': [result['trained_percent'] for result in results],
        'memory_GB': [result['peak_memory_bytes'] / 1e9 for result in results],
    }


def run_side(name: str, side: str, options: argparse.Namespace, is_timed: bool) -> Record:
    """Return the measures of a short run, or of whole runs with every seed."""
    train = run_peft if side in PEFT else run_ours
    if is_timed:
        return train(side, name, options, TIMED_STEPS, 1)
    return train(side, name, options, options.steps or tasks.TASKS[name].steps, options.seeds)


def is_possible(name: str, side: str) -> bool:
    """Whether the head of the task reads the pooler, if the side trains the pooler."""
    trains_pooler = side in METHODS and 'transfer.train_pooler' in METHODS[side][1]
    heads = problems.find(tasks.TASKS[name].kind).pretrained_heads
    return not trains_pooler or 'sequence_classification' in heads


def _checkpoint_size(folder: pathlib.Path) -> float:
    files = (folder / 'checkpoints').rglob('*')
    return sum(path.stat().st_size for path in files if path.is_file()) / 1e6


def table(figures: dict[str, dict[str, dict]]) -> str:
    """Format a Markdown table with a row for each task and side."""
    measures = {  # measure → title and decimals of its column
        'seconds': ('s / epoch', 1),
        'trained': ('% trained', 2),
        'memory_GB': ('GB', 1),
        'checkpoint_MB': ('MB', 1),
    }
    columns = ('task', 'side', 'metric', 'interval', *(title for title, _ in measures.values()))
    rows = []
    for key, summary in figures.items():
        metric = summary['metric']
        cells = [comparison.mean_cell(metric), comparison.interval_cell(metric)]
        for measure, (_, decimals) in measures.items():
            has_measure = measure in summary
            cells.append(f'{summary[measure]["mean"]:.{decimals}f}' if has_measure else '–')
        rows.append((*key.split(', '), *cells))
    return markdown_table(Table(columns, rows)) + '\n'


def write(
    folder: pathlib.Path, settings: dict[str, int], records: dict[str, dict[str, Record]]
) -> None:
    """Write results.json, table.md and the plot of the records by task and side."""
    figures = run.summaries(records)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / 'results.json', {**settings, 'figures': figures})
    (folder / 'table.md').write_text(table(figures), encoding='utf-8')
    titles = {name: f'{name}, {tasks.TASKS[name].metric} on dev' for name in records}
    sides = dict.fromkeys(side for by_side in records.values() for side in by_side)
    metrics = {
        side: {
            name: figures[f'{name}, {side}']['metric'] for name in records if side in records[name]
        }
        for side in sides
    }
    comparison.plot_runs(folder / 'plot', metrics, titles)
    print(table(figures))


@exit_cleanly
def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--data', required=True, help='folder of the data sets')
    parser.add_argument('--weights', required=True, help='folder of the pretrained model')
    parser.add_argument('--tasks', default='banking77', help=f'some of {",".join(tasks.TASKS)}')
    known = (*METHODS, *PEFT)
    parser.add_argument('--sides', default='', help=f'some of {",".join(known)}; default all')
    parser.add_argument('--seeds', type=int, default=3, help='number of seeds')
    parser.add_argument('--steps', type=int, default=0, help='overrides the steps of the tasks')
    parser.add_argument('--runs', default='runs/tuning', help='folder of the runs')
    parser.add_argument('--output', default='experiments/finetuning/tuning')
    options = parser.parse_args()
    for key in ('data', 'weights', 'runs', 'output'):
        setattr(options, key, str(pathlib.Path(getattr(options, key)).resolve()))
    names = run.parse_names(options.tasks, 'task', tasks.TASKS)
    sides = run.parse_names(options.sides, 'side', known)
    pairs = [pair for pair in itertools.product(names, sides) if is_possible(*pair)]
    for name, side in sorted({*itertools.product(names, sides)}.difference(pairs)):
        print(f'{name}, {side}: left out, because the head does not read the pooler')
    timed = {pair: run_side(*pair, options, is_timed=True) for pair in pairs}
    records: dict[str, dict[str, Record]] = {name: {} for name in names}
    for name, side in pairs:
        record = run_side(name, side, options, is_timed=False)
        record |= {measure: timed[name, side][measure] for measure in ('seconds', 'memory_GB')}
        records[name][side] = run.per_epoch(record, name, options.data)
    write(pathlib.Path(options.output), {'seeds': options.seeds}, records)


if __name__ == '__main__':
    main()

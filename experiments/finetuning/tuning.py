"""Compares parameter-efficient tuning with full tuning, with heads only, and with peft.

    python -m experiments.finetuning.tuning --data=FOLDER --weights=FOLDER --tasks=banking77

The tasks, splits and settings are the same as in experiments/finetuning/run.py, except that each
method has its own learning rate. The seeds of a method are trained at once (sweep.vmap); its time
is measured in a separate short run of one seed. Finished runs are kept, so the command can be
repeated. The sides named `peft` need torch, transformers and peft.
"""

import argparse
import pathlib

from bert_jax.errors import exit_cleanly
from bert_jax.evaluation import comparison
from bert_jax.evaluation.scores import Table
from bert_jax.evaluation.tables import markdown_table
from bert_jax.files import write_json
from experiments.finetuning import run, tasks
from experiments.studies import runner

# Method → the learning rate relative to full tuning, and the config keys.
METHODS = {
    'full': (1, {}),
    'heads': (5, {'transfer.trainable': 'heads'}),
    'lora': (5, {'transfer.method': 'lora'}),
    'houlsby': (5, {'transfer.method': 'houlsby'}),
    'pfeiffer': (5, {'transfer.method': 'pfeiffer'}),
    'parallel': (5, {'transfer.method': 'parallel'}),
    'prefix': (5, {'transfer.method': 'prefix'}),
    'prompt': (20, {'transfer.method': 'prompt'}),
    'bitfit': (5, {'transfer.method': 'bitfit'}),
    'ia3': (10, {'transfer.method': 'ia3'}),
    'mam': (5, {'transfer.method': 'mam'}),
}
PEFT = {'peft lora': 'lora', 'peft ia3': 'ia3'}  # side → method
TIMED_STEPS = 40  # steps of the run of one seed
Record = run.Results  # measure → a value for each seed


def run_ours(method: str, name: str, options: argparse.Namespace) -> Record:
    """Train with every seed, unless the runs exist; seconds are per step."""
    factor, keys = METHODS[method]
    task = tasks.TASKS[name]
    is_added = 'transfer.method' in keys

    def train(steps: int, seeds: int) -> Record:
        settings = tasks.config_keys(task, options.data, options.weights, steps) | keys
        settings['schedule.learning_rate'] = factor * task.learning_rate
        settings['sweep.seeds'] = tuple(range(seeds))
        settings['sweep.vmap'] = is_added and seeds > 1
        folder = pathlib.Path(options.runs) / name / f'{method}_{settings["training.steps"]}'
        command = runner.main_command(f'configs/finetune.py:{task.kind}', settings)
        runner.run_once(folder, command, '--config.workdir')
        return read_runs(folder, task.metric, seeds)

    record = train(options.steps, options.seeds)
    if is_added and options.seeds > 1:
        single = train(TIMED_STEPS, 1)
        record |= {measure: single[measure] for measure in ('seconds', 'memory_GB')}
    return record


def read_runs(folder: pathlib.Path, metric: str, seeds: int) -> Record:
    """Read the measures of a sweep over seeds."""
    runs = [folder / f'seed_{seed}' for seed in range(seeds)]
    results = [runner.read_results(path) for path in runs]
    record = {
        'metric': [result['held_out'][metric] for result in results],
        'trained': [
            100 * result['trained_parameters'] / result['parameters'] for result in results
        ],
        'checkpoint_MB': [_checkpoint_size(path) for path in runs],
        'memory_GB': [results[0]['peak_memory_bytes'] / 1e9],  # of the process of all seeds
    }
    if (runs[0] / 'metrics.jsonl').exists():  # runs at once have none
        record['seconds'] = run.read_sweep(folder, metric, seeds)['seconds']
    return record


def run_peft(side: str, name: str, options: argparse.Namespace) -> Record:
    """Train with every seed in transformers and peft, unless the runs exist."""
    method = PEFT[side]
    task = tasks.TASKS[name]
    steps = options.steps or task.steps
    flags = [f'--task={name}', f'--data={options.data}', f'--weights={options.weights}']
    flags += [f'--steps={steps}', f'--method={method}', f'--rate_factor={METHODS[method][0]}']
    results = []
    for seed in range(options.seeds):
        folder = pathlib.Path(options.runs) / name / f'peft_{method}_{steps}_{seed}'
        command = ['-m', 'experiments.finetuning.torch_side', *flags, f'--seed={seed}']
        runner.run_once(folder, command, '--folder')
        results.append(runner.read_results(folder))
    return {
        'metric': [result['held_out'][task.metric] for result in results],
        'seconds': [result['seconds_per_step'] for result in results],
        'trained': [result['trained_percent'] for result in results],
        'memory_GB': [result['peak_memory_bytes'] / 1e9 for result in results],
    }


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
    sides = run.parse_names(options.sides, 'side', known)
    records: dict[str, dict[str, Record]] = {}
    for name in run.parse_names(options.tasks, 'task', tasks.TASKS):
        records[name] = {}
        for side in sides:
            record = (run_peft if side in PEFT else run_ours)(side, name, options)
            records[name][side] = run.per_epoch(record, name, options.data)
    figures = run.summaries(records)
    folder = pathlib.Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / 'results.json', {'seeds': options.seeds, 'figures': figures})
    (folder / 'table.md').write_text(table(figures), encoding='utf-8')
    comparison.plot_runs(folder / 'plot', figures, {'metric': 'metric on dev'})
    print(table(figures))


if __name__ == '__main__':
    main()

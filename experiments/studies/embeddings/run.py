"""Compares training of sentence embeddings by bert_jax and by sentence-transformers.

    python -m experiments.studies.embeddings.run --data=FOLDER --weights=FOLDER

Both use the same weights (all-MiniLM-L6-v2), examples, losses, batch size, learning rate, steps and
seeds, in turn. Finished runs are kept, so the command can be repeated. The module `step_times`
measures the times. Needs sentence-transformers.
"""

import argparse
import pathlib

from bert_jax.errors import exit_cleanly
from experiments.studies import claims, runner
from experiments.studies.claims import Claim
from experiments.studies.embeddings import tasks

COLUMNS = {
    'before': 'before training',
    'score': 'after training',
}
CLAIMS = (
    Claim(
        'embeddings/results.json',
        default_seeds=3,
        settings={'': {'steps': 30, 'examples': 400, 'seeds': 3}},
        ran={'*_bert_jax_*': {'transfer.trainable': 'all'}},
        predates=True,
    ),
)


def run_ours(name: str, seed: int, table: pathlib.Path, options: argparse.Namespace) -> dict:
    """Train with bert_jax; return the measures."""
    keys = tasks.config_keys(name, table, options.weights, options.steps) | {'seed': seed}
    folder = pathlib.Path(options.runs) / f'{name}_bert_jax_{options.steps}_{seed}'
    command = runner.main_command('configs/finetune.py:embedding', keys)
    runner.run_once(folder, command, '--config.workdir')
    return {'score': runner.read_results(folder)['held_out'][tasks.TASKS[name].metric]}


def run_theirs(name: str, seed: int, table: pathlib.Path, options: argparse.Namespace) -> dict:
    """Train with sentence-transformers; return the measures."""
    flags = [f'--task={name}', f'--table={table}', f'--weights={options.weights}']
    flags += [f'--steps={options.steps}', f'--seed={seed}']
    folder = pathlib.Path(options.runs) / f'{name}_torch_{options.steps}_{seed}'
    runner.run_once(folder, ['-m', 'experiments.studies.embeddings.torch_side', *flags], '--folder')
    result, metric = runner.read_results(folder), tasks.TASKS[name].metric
    return {'before': result['before'][metric], 'score': result['held_out'][metric]}


@exit_cleanly
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--data', required=True, help='folder of the data sets')
    parser.add_argument('--weights', required=True, help='folder of all-MiniLM-L6-v2')
    parser.add_argument('--examples', type=int, default=3000, help='at most, of each task')
    parser.add_argument('--steps', type=int, default=150, help='training steps of a run')
    parser.add_argument('--seeds', type=int, default=3, help='number of seeds')
    parser.add_argument('--tasks', default=','.join(tasks.TASKS), help='names, with commas')
    parser.add_argument('--runs', default='runs/embeddings', help='folder of the runs')
    parser.add_argument('--output', default='experiments/studies/embeddings')
    options = parser.parse_args(argv)
    results: dict[str, list[dict]] = {}
    for seed in range(options.seeds):
        for name in options.tasks.split(','):
            table = (pathlib.Path(options.runs) / f'{name}_{options.examples}.csv').resolve()
            tasks.write_table(name, pathlib.Path(options.data), table, options.examples)
            for side, run in {'bert_jax': run_ours, 'sentence-transformers': run_theirs}.items():
                key = f'{name}, {tasks.TASKS[name].metric}, {side}'
                results.setdefault(key, []).append(run(name, seed, table, options))
    summary, folder = runner.summaries(results), pathlib.Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    settings = {'steps': options.steps, 'examples': options.examples, 'seeds': options.seeds}
    record = {'settings': settings, 'runs': summary, 'ran': claims.ran(options.runs)}
    runner.write_json(folder / 'results.json', record, indent=1)
    text = runner.table(summary, COLUMNS)
    (folder / 'table.md').write_text(text, encoding='utf-8')
    print(text)


if __name__ == '__main__':
    main()

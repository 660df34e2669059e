"""Compares ways of pretraining by what their encoders know, frozen and fine-tuned.

python -m experiments.studies.comparison.run --texts='novels/*.txt' --data=FOLDER \
    --pairs='blimp/data/*.jsonl'

All pretraining runs see as many tokens (--steps), or take as much time (--minutes) by the times of
their steps, which are measured in turns first. FOLDER has ud_english_ewt, wnut17, qamr and med_nli.
"""

import argparse
import pathlib

from ml_collections import ConfigDict

from bert_jax.errors import UserError, exit_cleanly, look_up
from bert_jax.files import write_json
from bert_jax.reports import comparison
from experiments.studies import claims, runner, step_times
from experiments.studies.comparison import downstream, tables
from experiments.studies.comparison.variants import (
    COMMON,
    PRETRAINING,
    SCORES_SENTENCES,
    VARIANTS,
    Keys,
)
from experiments.studies.novels import config as novels

Results = dict[str, list[runner.Measures]]  # variant → the measures of each seed


def pretraining_keys(name: str, steps: int) -> dict[str, object]:
    """Return the config keys of a pretraining run with this number of steps."""
    return {
        **COMMON,
        'training.steps': (steps,),
        'evaluation.every_steps': steps,
        'checkpoint.every_steps': steps,
        **PRETRAINING[name],
    }


def config_of(keys: Keys, texts: str) -> ConfigDict:
    """Return the config of a pretraining run with these keys."""
    config = novels.get_config(texts).unlock()
    config.update_from_flattened_dict(dict(keys))
    return config.lock()


def find_steps(options: argparse.Namespace) -> dict[str, int]:
    """Return the number of steps of each pretraining that the chosen variants need."""
    names = list(dict.fromkeys(VARIANTS[name].pretraining for name in options.variants))
    fixed = {name: PRETRAINING[name]['training.steps'][0] for name in names if _is_fixed(name)}
    trained = [name for name in names if name not in fixed]
    if options.minutes is None:
        return {name: options.steps for name in trained} | fixed
    # MLM is the first in every measurement, so the others are measured beside it.
    configs = {
        name: config_of(pretraining_keys(name, 1), options.texts)
        for name in dict.fromkeys(['MLM', *trained])
    }
    times = step_times.measure(configs, pathlib.Path(options.output) / 'step_times.json')
    return {name: max(1, round(60 * options.minutes / times[name][0])) for name in trained} | fixed


def _is_fixed(name: str) -> bool:
    return 'training.steps' in PRETRAINING[name]


def run_folder(options: argparse.Namespace, name: str, steps: int, seed: int) -> pathlib.Path:
    """The folder of a pretraining run; its downstream runs are inside."""
    return runner.run_folder(options, f'{name} {steps}steps', seed)


def run_all(options: argparse.Namespace, steps: dict[str, int]) -> Results:
    """Train and measure every variant with every seed; finished parts are kept."""
    return runner.for_all_seeds(
        options.seeds,
        options.variants,
        lambda name, seed: measure(options, name, steps, seed),
    )


def measure(
    options: argparse.Namespace, name: str, steps: dict[str, int], seed: int
) -> runner.Measures:
    """Return 'TASK, MODE' → metric on dev, 'BLiMP' if the model can score, and the tokens seen."""
    pretraining, head = VARIANTS[name]
    folder = run_folder(options, pretraining, steps[pretraining], seed)
    keys = pretraining_keys(pretraining, steps[pretraining])
    runner.train(folder, options.texts, keys | {'seed': seed})
    measures = {'tokens': float(runner.read_results(folder)['tokens'])}
    for mode in options.modes:
        for task_name in options.tasks:
            task = downstream.TASKS[task_name]
            task_keys = downstream.config_keys(
                task,
                mode,
                head,
                options.data,
                folder,
                options.task_steps,
                is_causal='objectives.clm' in PRETRAINING[pretraining],
            )
            run_name = runner.slug(f'{name} {task_name} {mode} {options.task_steps}')
            own = folder / 'downstream' / run_name
            value = downstream.measure(own, task, task_keys | {'seed': seed})
            measures[f'{task_name}, {mode}'] = value
    if options.pairs and pretraining in SCORES_SENTENCES:
        own = folder / 'downstream' / f'blimp_{options.per_paradigm}'
        measures[downstream.BLIMP] = downstream.blimp(
            own, folder, options.pairs, options.per_paradigm
        )
    return measures


def write(options: argparse.Namespace, steps: dict[str, int], results: Results) -> None:
    """Write results_BUDGET.json, table_BUDGET.md, and a figure for each mode."""
    folder = pathlib.Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    by_time = options.minutes is not None
    budget = f'{options.minutes:g}min' if by_time else f'{options.steps}steps'
    summary = runner.summaries(results)
    differences = tables.differences(results)
    settings = {name: pretraining_keys(name, number) for name, number in steps.items()}
    record = {
        'settings': settings,
        'task_steps': options.task_steps,
        'variants': summary,
        'differences': differences,
        'ran': claims.ran(options.runs),
    }
    write_json(folder / f'results_{budget}.json', record, indent=1)
    text = tables.report(summary, differences)
    (folder / f'table_{budget}.md').write_text(text, encoding='utf-8')
    for mode in options.modes:
        titles = tables.titles(summary, mode)
        if titles:
            comparison.plot_runs(folder / f'{mode}_{budget}', summary, titles)
    print(text)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line. Raises UserError for unknown names."""
    parser = runner.argument_parser('comparison', __doc__, steps=1000, seeds=3)
    parser.add_argument('--minutes', type=float, help='equal time instead of equal --steps')
    parser.add_argument('--data', required=True, help='folder of the labeled data sets')
    parser.add_argument('--pairs', help='glob of the files of BLiMP; default: not measured')
    parser.add_argument('--per_paradigm', type=int, default=100, help='pairs of each paradigm')
    parser.add_argument('--task_steps', type=int, default=300, help='steps of a fine-tuning run')
    parser.add_argument('--variants', nargs='+', default=list(VARIANTS), help='rows of the table')
    parser.add_argument(
        '--tasks', nargs='*', default=list(downstream.TASKS), help='tasks to fine-tune on'
    )
    parser.add_argument(
        '--modes', nargs='+', default=list(downstream.MODES), help='how to train on the tasks'
    )
    options = parser.parse_args(arguments)
    for kind, names, known in (
        ('variant', options.variants, VARIANTS),
        ('task', options.tasks, downstream.TASKS),
        ('mode', options.modes, downstream.MODES),
    ):
        for name in names:
            look_up(kind, name, known)
    if options.minutes is not None and options.minutes <= 0:
        raise UserError(f'--minutes is {options.minutes:g}; it must be positive')
    return options


@exit_cleanly
def main() -> None:
    options = parse()
    steps = find_steps(options)
    write(options, steps, run_all(options, steps))


if __name__ == '__main__':
    main()

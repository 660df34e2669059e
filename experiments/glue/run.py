"""Fine-tunes a model on the tasks of GLUE that a folder has, and writes one table.

    python -m experiments.glue.run --data=FOLDER --init_from=WEIGHTS

The data is the user's (see layouts.py) and is neither downloaded nor copied. Every task is trained
with the published hyperparameters of configs/finetune_tasks.py and several seeds. Rerun the command
to resume; finished runs are kept. Scores are those of the dev splits, whose labels are public.
"""

import argparse
import pathlib

from bert_jax import files, progress
from bert_jax.errors import UserError, exit_cleanly, unknown
from bert_jax.metrics import intervals
from bert_jax.metrics.scores import Table
from bert_jax.reports import comparison, glue
from bert_jax.reports.tables import markdown_table
from bert_jax.types import JsonObject
from configs.finetune_tasks import TASKS
from experiments.glue import layouts
from experiments.studies import runner

OWN = ('init_from', 'sweep.seeds', 'workdir')  # keys that the command's own flags set


def keys_of(name: str, found: layouts.Found, options: argparse.Namespace) -> layouts.Values:
    """Return the config keys of the runs of a task."""
    recipe, task = TASKS[name]['recipe'], glue.GLUE[name]
    keys = {
        'init_from': options.init_from,
        'sweep.seeds': tuple(range(options.seeds)),
        'training.batch_size': recipe['batch_size'],
        'training.epochs': float(recipe['epochs']),
        'schedule.base_learning_rate': recipe['learning_rate'],
        'training.sequence_length': recipe['sequence_length'],
        'problem.metrics': task.metrics,
        **found.keys,
    }
    if task.positive:
        keys['problem.positive'] = task.positive
    return keys | parse_keys(options.set)


def parse_keys(pairs: list[str]) -> dict[str, str]:
    """Parse 'KEY=VALUE' pairs. Raises UserError for others and for keys that flags set."""
    keys = dict(pair.split('=', 1) for pair in pairs if '=' in pair)
    if len(keys) < len(pairs):
        raise UserError(f'--set is {" ".join(pairs)}; give distinct pairs KEY=VALUE')
    if taken := [key for key in OWN if key in keys]:
        raise UserError(f'--set cannot set {taken[0]}; use --init_from, --seeds and --runs')
    return keys


def train(name: str, found: layouts.Found, options: argparse.Namespace) -> pathlib.Path:
    """Train a task with every seed unless its runs exist; return the folder of the sweep."""
    folder = pathlib.Path(options.runs) / name
    command = runner.main_command(
        f'configs/finetune.py:{found.kind}', keys_of(name, found, options)
    )
    runner.run_once(folder, command, '--config.workdir')
    return folder


def read_task(name: str, folder: pathlib.Path, seeds: int) -> JsonObject:
    """Return the scores of a trained task: of each seed, with those of a blind guess.

    The interval over examples is that of the first seed.
    """
    splits = {split: [] for split in ('dev', 'test') if (folder / 'seed_0' / split).is_dir()}
    for split in splits:
        for seed in range(seeds):
            splits[split].append(files.read_json(folder / f'seed_{seed}/{split}/metrics.json'))
    task = glue.GLUE[name]
    names = dict(zip(task.sets or (name,), splits, strict=False))  # test set → split of the run
    of_seeds = [
        glue.task_score(
            task, {one: splits[own][seed]['metrics'] for one, own in names.items()}, name
        )
        for seed in range(seeds)
    ]
    guess = {one: splits[own][0]['baseline'] for one, own in names.items()}
    metrics = {
        one: {
            metric: {
                **comparison.summarize(
                    [of_seed['metrics'][metric] for of_seed in splits[own]]
                )._asdict(),
                'over_examples': splits[own][0]['intervals'][metric],
                'blind_guess': guess[one][metric],
            }
            for metric in task.metrics
        }
        for one, own in names.items()
    }
    return {
        'score': comparison.summarize(of_seeds)._asdict(),
        'blind_guess': glue.task_score(task, guess, name),
        'metrics': metrics,
    }


def table(tasks: dict[str, JsonObject], missing: list[str]) -> str:
    """Return the Markdown table, with the average over the tasks and the tasks not found."""
    rows: list[tuple[object, ...]] = []
    for task in tasks.values():
        for test_set, metrics in task['metrics'].items():
            for metric, summary in metrics.items():
                over_examples = intervals.cell(summary['over_examples'])
                seeds = comparison.interval_cell(summary)
                row = test_set, metric, comparison.mean_cell(summary), seeds, over_examples
                rows.append((*row, f'{summary["blind_guess"]:.4f}'))
    scores = [task['score']['mean'] for task in tasks.values()]
    guesses = [task['blind_guess'] for task in tasks.values()]
    average = [f'{sum(values) / len(values):.4f}' for values in (scores, guesses)]
    rows.append((f'average of {len(tasks)} tasks', '', average[0], '', '', average[1]))
    columns = ('task', 'metric', 'dev', 'over seeds', 'over examples, seed 0', 'blind guess')
    lines = [markdown_table(Table(columns, rows))]
    if missing:
        lines += ['\nNot trained:\n', *(f'- {line}' for line in missing)]
    return '\n'.join(lines) + '\n'


def write(output: pathlib.Path, settings: JsonObject, tasks: dict[str, JsonObject]) -> None:
    """Write results.json, table.md, plot.png and plot.pdf; print the table."""
    output.mkdir(parents=True, exist_ok=True)
    files.write_json(output / 'results.json', {'settings': settings, 'tasks': tasks})
    text = table(tasks, settings['not_found'])
    (output / 'table.md').write_text(text, encoding='utf-8')
    guesses = {name: {'mean': task['blind_guess'], 'values': []} for name, task in tasks.items()}
    shown = {name: {'score': task['score'], 'guess': guesses[name]} for name, task in tasks.items()}
    titles = {'score': 'score on dev', 'guess': 'blind guess'}
    comparison.plot_runs(output / 'plot', shown, titles, 'task')
    progress.say(text)


def choose(found: dict[str, layouts.Found | str], names: str) -> dict[str, layouts.Found]:
    """Return the found tasks, or those with some names.

    Raises:
        UserError: a name is not a task, or was asked for and not found.
    """
    for name in filter(None, names.split(',')):
        if name not in found:
            raise unknown('task', name, found)
        if isinstance(found[name], str):
            raise UserError(f'--tasks has {name}, but {found[name]}')
    wanted = names.split(',') if names else list(found)
    usable = {name: one for name, one in found.items() if isinstance(one, layouts.Found)}
    return {name: one for name, one in usable.items() if name in wanted}


@exit_cleanly
def main(argv: list[str] | None = None) -> None:
    """Run the command line; `argv` is sys.argv[1:] by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--data', required=True, help='folder of the tasks')
    parser.add_argument('--init_from', required=True, help='a run, checkpoint or Hub folder')
    parser.add_argument('--tasks', default='', help='some, such as cola,rte; default all found')
    parser.add_argument('--seeds', type=int, default=3, help='number of seeds')
    parser.add_argument('--set', nargs='*', default=[], help='config keys of all runs: KEY=VALUE')
    parser.add_argument('--runs', default='runs/glue', help='folder of the runs')
    parser.add_argument(
        '--output', default='', help='folder of the table; default that of the runs'
    )
    options = parser.parse_args(argv)
    if options.seeds < 1:
        raise UserError(f'--seeds is {options.seeds}; use at least 1')
    for key in ('data', 'runs', 'init_from'):
        path = pathlib.Path(getattr(options, key))
        if path.exists() or key != 'init_from':  # weights can be a name on the Hub
            setattr(options, key, str(path.resolve()))
    parse_keys(options.set)
    found = layouts.find(pathlib.Path(options.data))
    missing = layouts.describe_missing(found)
    chosen = choose(found, options.tasks)
    for line in missing:
        progress.say(f'not found: {line}')
    settings = {'init_from': options.init_from, 'seeds': options.seeds, 'set': options.set}
    settings |= {'layouts': {name: one.layout for name, one in chosen.items()}}
    settings |= {'not_found': missing}
    tasks: dict[str, JsonObject] = {}
    for name, one in chosen.items():
        tasks[name] = read_task(name, train(name, one, options), options.seeds)
        write(pathlib.Path(options.output or options.runs), settings, tasks)


if __name__ == '__main__':
    main()

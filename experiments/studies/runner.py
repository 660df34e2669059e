"""Runs of the main job that differ in one thing: each trained once for every seed, measured, and
set side by side as JSON, a table and a plot.

A study gives its runs as name → the config keys it changes. Each is the real command line with a
folder of its own. A finished run is kept, a killed one goes on where it stopped.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable

from bert_jax.evaluation import comparison

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = 'experiments/studies/novels/config.py'
COMMON = {  # what all studies change in that config: a run takes two minutes on two cores
    'data.corpus': 'corpora/novels_4000',
    'data.tokenizer': 'train:wordpiece:4000',
    'data.segments': 'single',
    'objectives.nsp': 0.0,
    'stages.sequence_length': (32,),
    'stages.batch_size': (64,),
    'stages.accumulation': (1,),
    'stages.max_predictions': (5,),
    'schedule.learning_rate': 2e-3,
    'compute.dtype': 'bfloat16',
    'evaluation.every_steps': 400,
    'evaluation.examples': 2048,
    'evaluation.cloze_examples': 0,
    'logging.every_steps': 50,
}

Measures = dict[str, float]


def arguments(study: str, about: str, steps: int, seeds: int) -> argparse.ArgumentParser:
    """The options every study has."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument('--texts', required=True, help="of English novels: 'novels/*.txt'")
    parser.add_argument('--steps', type=int, default=steps)
    parser.add_argument('--seeds', type=int, default=seeds)
    parser.add_argument('--runs', default=f'runs/{study}', help='folder of the runs')
    output = f'experiments/studies/{study}'
    parser.add_argument('--output', default=output, help='folder of the figures')
    return parser


def run_all(
    options: argparse.Namespace,
    variants: dict[str, dict],
    measure: Callable[[pathlib.Path], Measures],
) -> dict[str, list[Measures]]:
    """Trains every variant for every seed: its measures, one a seed.

    measure: from the folder of a finished run to its figures, which are kept in that folder.
    """
    results = {name: [] for name in variants}
    for seed in range(options.seeds):
        for name, changes in variants.items():
            folder = run_folder(options, name, seed)
            train(folder, options.texts, _settings(options) | {'seed': seed} | changes)
            results[name].append(_kept(folder, measure))
            print(f'{name}, seed {seed}: {_shown(results[name][-1])}', flush=True)
    return results


def run_folder(options: argparse.Namespace, name: str, seed: int) -> pathlib.Path:
    """Where a run is."""
    return pathlib.Path(options.runs) / f'{name.replace(" ", "_")}_{seed}'


def _settings(options: argparse.Namespace) -> dict:
    steps = {'stages.steps': (options.steps,), 'schedule.warmup_steps': max(1, options.steps // 10)}
    return COMMON | steps


def train(folder: pathlib.Path, texts: str, keys: dict):
    """Runs the command line, unless it has been run in the folder. Exits with its status if it
    fails."""
    run_once(folder, main_command(f'{CONFIG}:{texts}', keys), '--config.workdir')


def main_command(config: str, keys: dict) -> list[str]:
    """What trains with these keys of a config, but for the workdir."""
    flags = [f'--config.{key}={value}' for key, value in keys.items()]
    return ['-m', 'bert_jax.main', f'--config={config}', *flags]


def run_once(folder: pathlib.Path, command: list[str], folder_flag: str):
    """Runs Python with these arguments and FOLDER_FLAG=folder, unless the folder holds the results
    of the very same command. Exits with its status if it fails."""
    done = folder / 'command.json'
    if done.exists() and json.loads(done.read_text()) == command:
        return
    status = subprocess.run([sys.executable, *command, f'{folder_flag}={folder}'], cwd=ROOT)
    if status.returncode:
        sys.exit(status.returncode)
    (folder / 'measures.json').unlink(missing_ok=True)
    _write_json(done, command)


def results(folder: pathlib.Path) -> dict:
    """What a run says of itself at its end."""
    return json.loads((folder / 'results.json').read_text())


def summary(values: list[float]) -> dict:
    """Mean and sample standard deviation (None of a single value)."""
    sd = statistics.stdev(values) if len(values) > 1 else None
    return {'mean': statistics.fmean(values), 'sd': sd, 'values': values}


def summaries(results: dict[str, list[Measures]]) -> dict[str, dict[str, dict]]:
    """variant → measure → summary over the seeds."""
    return {
        name: {measure: summary([own[measure] for own in runs]) for measure in runs[0]}
        for name, runs in results.items()
    }


def write(
    options: argparse.Namespace,
    results: dict[str, list[Measures]],
    columns: dict[str, str],
    plotted: Iterable[str] = (),
):
    """results.json, table.md and plot.png; columns: measure → its title; plotted: those of them in
    the plot, all if none is named."""
    folder, found = pathlib.Path(options.output), summaries(results)
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / 'results.json', {'settings': _settings(options), 'variants': found})
    (folder / 'table.md').write_text(table(found, columns), encoding='utf-8')
    comparison.plot_runs(
        folder / 'plot.png', found, {name: columns[name] for name in plotted or columns}
    )
    print(table(found, columns))


def table(found: dict[str, dict[str, dict]], columns: dict[str, str]) -> str:
    """Markdown; a dash where a variant lacks a measure."""
    lines = ['| | ' + ' | '.join(columns.values()) + ' |', '|---|' + '---:|' * len(columns)]
    for name, measures in found.items():
        cells = [_cell(measures[column]) if column in measures else '–' for column in columns]
        lines.append(f'| {name} | ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines) + '\n'


def _kept(folder: pathlib.Path, measure: Callable[[pathlib.Path], Measures]) -> Measures:
    path = folder / 'measures.json'
    if not path.exists():
        _write_json(path, measure(folder))
    return json.loads(path.read_text())


def _write_json(path: pathlib.Path, value):
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + '\n', encoding='utf-8')


def _cell(own: dict) -> str:
    """As many digits as the size of the figure deserves."""
    digits = max(0, 3 - max(0, math.floor(math.log10(abs(own['mean']) or 1))))
    shown = f'{own["mean"]:,.{digits}f}'
    return shown if own['sd'] is None else f'{shown} ± {own["sd"]:,.{digits}f}'


def _shown(measures: Measures) -> str:
    return ', '.join(f'{name} {value:.4g}' for name, value in measures.items())

"""Trains variants of a config with several seeds, and writes a table and a plot of measures.

A study is a dictionary: name of the variant → the config keys it changes. Each run is a command
with its own folder. When a study is repeated, finished runs are kept and interrupted runs resume.
"""

import argparse
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping

from bert_jax.files import write_json
from bert_jax.reports import comparison
from experiments.studies import claims

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = 'experiments/studies/novels/config.py'
COMMON = {  # keys of all studies; a run takes two minutes on two cores
    'data.corpus': 'corpora/novels_4000',
    'data.tokenizer': 'train:wordpiece:4000',
    'data.segments': 'single',
    'objectives.nsp': 0.0,
    'training.sequence_length': (32,),
    'training.batch_size': (64,),
    'training.accumulation': (1,),
    'training.max_predictions': (5,),
    'schedule.learning_rate': 2e-3,
    'compute.dtype': 'bfloat16',
    'evaluation.every_steps': 400,
    'evaluation.examples': 2048,
    'evaluation.cloze_examples': 0,
    'logging.every_steps': 50,
}

Measures = dict[str, float]


def argument_parser(
    study: str, description: str, *, seeds: int, steps: int | None = None, reads_novels: bool = True
) -> argparse.ArgumentParser:
    """Return a parser with the options that studies share.

    Args:
        study: name of the folder in experiments/studies.
        description: what the study compares.
        seeds: default of --seeds.
        steps: default of --steps; None: the study has no such option.
        reads_novels: whether the study has the option --texts.
    """
    output = f'experiments/studies/{study}'
    parser = argparse.ArgumentParser(description=description)
    if reads_novels:
        parser.add_argument('--texts', required=True, help="glob of English novels: 'novels/*.txt'")
    if steps is not None:
        parser.add_argument('--steps', type=int, default=steps, help='training steps of a run')
    parser.add_argument('--seeds', type=int, default=seeds, help='number of seeds')
    parser.add_argument('--runs', default=f'runs/{study}', help='folder of the runs')
    parser.add_argument('--output', default=output, help='folder of the results')
    return parser


def run_all(
    options: argparse.Namespace,
    variants: dict[str, dict],
    measure: Callable[[pathlib.Path], Measures],
) -> dict[str, list[Measures]]:
    """Train and measure every variant with every seed.

    Args:
        options: the parsed command line.
        variants: name → config keys.
        measure: computes the measures of a finished run from its folder, which caches them.

    Returns:
        name → the measures of each seed.
    """

    keys = all_keys(options, variants)

    def train_and_measure(name: str, seed: int) -> Measures:
        folder = run_folder(options, name, seed)
        train(folder, options.texts, keys[name] | {'seed': seed})
        return cached_measures(folder, measure)

    return for_all_seeds(options.seeds, variants, train_and_measure)


def for_all_seeds(
    seeds: int, names: Iterable[str], measure: Callable[[str, int], Measures]
) -> dict[str, list[Measures]]:
    """Measure every variant with every seed, and print the measures.

    Args:
        seeds: number of seeds. All variants are measured with a seed before the next seed.
        names: the variants.
        measure: trains and measures a variant with a seed.

    Returns:
        name → the measures of each seed.
    """
    results: dict[str, list[Measures]] = {name: [] for name in names}
    for seed in range(seeds):
        for name, measured in results.items():
            measured.append(measure(name, seed))
            shown = ', '.join(f'{key} {value:.4g}' for key, value in measured[-1].items())
            print(f'{name}, seed {seed}: {shown}', flush=True)
    return results


def run_folder(options: argparse.Namespace, name: str, seed: int) -> pathlib.Path:
    """The folder of the run of a variant with a seed."""
    return pathlib.Path(options.runs) / f'{slug(name)}_{seed}'


def slug(name: str) -> str:
    """A name without capitals, spaces and signs, for the name of a folder."""
    return re.sub(r'[^\w.]+', '_', name.lower())


def all_keys(options: argparse.Namespace, variants: dict[str, dict]) -> dict[str, dict]:
    """Return name → all config keys of its runs except the seed."""
    steps = {
        'training.steps': (options.steps,),
        'schedule.warmup_steps': max(1, options.steps // 10),
    }
    return {name: COMMON | steps | keys for name, keys in variants.items()}


def train(folder: pathlib.Path, texts: str, keys: dict):
    """Train in a folder unless it has a finished run; exit with the status of a failed run."""
    run_once(folder, main_command(f'{CONFIG}:{texts}', keys), '--config.workdir')


def main_command(config: str, keys: dict) -> list[str]:
    """The arguments of Python that train with these config keys, without the workdir."""
    flags = [f'--config.{key}={value}' for key, value in keys.items()]
    return ['-m', 'bert_jax.main', f'--config={config}', *flags]


def run_once(folder: pathlib.Path, command: list[str], folder_flag: str):
    """Run Python with these arguments, unless the folder has the results of the same command.

    Args:
        folder: folder of the results.
        command: the arguments of Python, without the folder.
        folder_flag: the option that takes the folder.

    Raises:
        SystemExit: the command failed; with its status.
    """
    record = folder / 'command.json'  # written when the command has succeeded
    if record.exists() and json.loads(record.read_text()) == command:
        return
    process = subprocess.run([sys.executable, *command, f'{folder_flag}={folder}'], cwd=ROOT)
    if process.returncode:
        sys.exit(process.returncode)
    (folder / 'measures.json').unlink(missing_ok=True)
    write_json(record, command, indent=1)


def read_results(folder: pathlib.Path) -> dict:
    """Read the results of a finished run."""
    return json.loads((folder / 'results.json').read_text())


def summarize(values: list[float]) -> dict:
    """Mean and sample standard deviation, which is None for a single value."""
    sd = statistics.stdev(values) if len(values) > 1 else None
    return {'mean': statistics.fmean(values), 'sd': sd, 'values': values}


def summaries(results: dict[str, list[Measures]]) -> dict[str, dict[str, dict]]:
    """variant → measure → summary over the seeds."""
    return {
        name: {measure: summarize([run[measure] for run in runs]) for measure in runs[0]}
        for name, runs in results.items()
    }


def write(
    options: argparse.Namespace,
    results: dict[str, list[Measures]],
    columns: dict[str, str],
    settings: dict,
    plotted: Iterable[str] = (),
    suffix: str = '',
    measured: Mapping[str, object] | None = None,
):
    """Write results.json, table.md and plot.png; results.json also has what the runs recorded.

    Args:
        options: the parsed command line.
        results: variant → the measures of each seed.
        columns: measure → title of its column.
        settings: the settings in results.json, such as `all_keys`.
        plotted: the measures in the plot; all by default.
        suffix: added to the names of the files.
        measured: how the measures were taken, such as `measures.MEASURED`.
    """
    folder, summary = pathlib.Path(options.output), summaries(results)
    folder.mkdir(parents=True, exist_ok=True)
    record = {'settings': settings, 'variants': summary, 'ran': claims.ran(options.runs)}
    record |= {'measured': measured} if measured else {}
    write_json(folder / f'results{suffix}.json', record, indent=1)
    (folder / f'table{suffix}.md').write_text(table(summary, columns), encoding='utf-8')
    titles = {name: columns[name] for name in plotted or columns}
    comparison.plot_runs(folder / f'plot{suffix}', summary, titles)
    print(table(summary, columns))


def table(summary: dict[str, dict[str, dict]], columns: dict[str, str]) -> str:
    """A Markdown table with a dash where a variant lacks a measure."""
    lines = ['| | ' + ' | '.join(columns.values()) + ' |', '|---|' + '---:|' * len(columns)]
    for name, measures in summary.items():
        cells = [_cell(measures[column]) if column in measures else '–' for column in columns]
        lines.append(f'| {name} | ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines) + '\n'


def cached_measures(folder: pathlib.Path, measure: Callable[[pathlib.Path], Measures]) -> Measures:
    """Return the measures of a finished run, which are computed once."""
    path = folder / 'measures.json'
    if not path.exists():
        write_json(path, measure(folder), indent=1)
    return json.loads(path.read_text())


def _cell(summary: dict) -> str:
    """Four significant digits, fewer decimals for large values."""
    digits = max(0, 3 - max(0, math.floor(math.log10(abs(summary['mean']) or 1))))
    mean = f'{summary["mean"]:,.{digits}f}'
    return mean if summary['sd'] is None else f'{mean} ± {summary["sd"]:,.{digits}f}'

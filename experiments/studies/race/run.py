"""A race of pretraining recipes: held-out masked loss after the same training time.

python -m experiments.studies.race.run --texts='novels/*.txt' --treebank=ud_english_ewt --minutes=2

With --data and --pairs, every run is also fine-tuned on four tasks and scored on BLiMP.

Each entry (entries.py) is trained for as many steps as fit into the time on an idle machine, its
schedule included. The time of a step is measured once (../step_times.py), so the runs themselves
may share the machine. All entries are evaluated at 15 % masks (80 % [MASK], 10 % random) on the
same held-out text; those of one vocabulary on the same masks.
"""

import argparse
import copy
import dataclasses
import functools
import json
import math
import pathlib
import shutil
import statistics
from collections.abc import Mapping, Sequence

import numpy as np
from ml_collections import ConfigDict

from bert_jax import figures
from bert_jax.errors import exit_cleanly, look_up
from bert_jax.files import write_json
from bert_jax.interop import loading
from bert_jax.loaded.loaded_model import LoadedModel
from experiments.studies import measures, runner, step_times
from experiments.studies.claims import Claim
from experiments.studies.comparison import downstream
from experiments.studies.novels import config as novels
from experiments.studies.race.entries import COMMON, ENTRIES, Keys

LENGTH = 64  # of the rows of the evaluation
_SHORT = {'fast': {'masking.rate': 0.3}, 'LAMB': {'masking.rate': 0.3, 'optimizer.name': 'lamb'}}
CLAIMS = (
    Claim(
        'race/results_1min.json',
        default_seeds=1,
        settings=_SHORT | {'start': {'masking.rate': 0.3}},
        measured=measures.MEASURED,
        predates=True,
    ),
    Claim(
        'race/results_2min.json',
        default_seeds=3,
        settings={'fast': _SHORT['fast']},
        measured=measures.MEASURED,
        predates=True,
    ),
    Claim(
        'race/results_4min.json',
        default_seeds=1,
        seeds={'LAMB': 3},
        settings=_SHORT | {'fast, masking 0.2': {'masking.rate': 0.2}},
        measured=measures.MEASURED,
        predates=True,
    ),
    Claim(
        'race/results_10min.json',
        default_seeds=3,
        settings=_SHORT,
        measured=measures.MEASURED,
        predates=True,
    ),
)
COLUMNS = {
    'mlm_loss': 'MLM loss at 15 %, nats per token',
    'nats_per_byte': 'nats per byte',
    'pos_accuracy': 'POS accuracy',
    'UPOS': 'UPOS, fine-tuned, accuracy',
    'NER': 'NER, F1',
    'QA': 'QA, F1',
    'pairs': 'sentence pairs, accuracy',
    downstream.BLIMP: downstream.BLIMP,
    'steps': 'steps',
    'tokens': 'tokens',
    'milliseconds': 'ms per step',
}


def stage_steps(shares: Sequence[int], step_seconds: Sequence[float], seconds: float) -> list[int]:
    """Return the steps of each stage that take this time together, in these shares."""
    unit = seconds / sum(share * time for share, time in zip(shares, step_seconds, strict=True))
    return [max(1, round(share * unit)) for share in shares]


def flags(entry: Keys, step_seconds: Sequence[float], seconds: float) -> dict[str, object]:
    """Return the config keys of a run of an entry that takes this time."""
    keys = {**COMMON, **entry}
    steps = stage_steps(keys['training.steps'], step_seconds, seconds)
    total = sum(steps)
    checkpoints = max(2, round(seconds / 60))  # at which the loss is measured
    keys |= {
        'training.steps': tuple(steps),
        'evaluation.every_steps': 0,
        'checkpoint.every_steps': -(-total // checkpoints),
        'checkpoint.keep': checkpoints + len(steps) - 1,  # also at the end of every stage
    }
    return {name: value(total) if callable(value) else value for name, value in keys.items()}


def config_of(entry: Keys, texts: str) -> ConfigDict:
    """Return the config of an entry with a step of each stage, for measuring the steps."""
    config = novels.get_config(texts).unlock()
    keys = {name: value for name, value in {**COMMON, **entry}.items() if not callable(value)}
    keys['training.steps'] = (1,) * len(keys['training.steps'])
    config.update_from_flattened_dict(keys)
    return config.lock()


class Measurement:
    """Measures finished runs, and deletes their weights but the last."""

    def __init__(self, treebank: str | None):
        self._probe = None if treebank is None else measures.PosProbe(treebank)

    def __call__(self, folder: pathlib.Path, step_seconds: Sequence[float]) -> runner.Measures:
        """Return the measures of the last checkpoint, and write curve.json for all of them."""
        config = json.loads((folder / 'config.json').read_text())
        checkpoints = sorted(
            (path for path in (folder / 'checkpoints').iterdir() if path.name.isdigit()),
            key=lambda path: int(path.name),
        )
        curve: list[tuple[float, float]] = []
        masked_loss = None
        for path in checkpoints:
            model = loading.load_checkpoint(path)
            seconds = seconds_until(int(path.name), config['training']['steps'], step_seconds)
            if 'mlm' in model.heads:  # not with RTD, where the head belongs to the generator
                masked_loss = masked_loss or measures.MaskedLoss(_evaluated(model))
                curve.append((seconds, masked_loss(model)))
        write_json(folder / 'curve.json', curve)
        results = runner.read_results(folder)
        values = {
            'steps': results['steps'],
            'tokens': results['tokens'],
            'milliseconds': 1000 * seconds / results['steps'],
        }
        if masked_loss is not None:
            loss = curve[-1][1]
            bytes_per_token = masked_loss.task.corpus.bytes_per_token('held_out')
            values |= {'mlm_loss': loss, 'nats_per_byte': loss / bytes_per_token}
        if self._probe is not None:
            values['pos_accuracy'] = self._probe(model)
        for path in checkpoints[:-1]:
            shutil.rmtree(path)
        return values


def _evaluated(model: LoadedModel) -> LoadedModel:
    """The same model with a config whose last stage has the shape of the evaluation."""
    config = copy.deepcopy(dict(model.usage.config))
    config['training'] |= {
        'steps': [1],
        'sequence_length': [LENGTH],
        'batch_size': [32],
        'accumulation': [1],
    }
    return dataclasses.replace(model, usage=dataclasses.replace(model.usage, config=config))


def seconds_until(step: int, steps: Sequence[int], step_seconds: Sequence[float]) -> float:
    """The time of the first steps of a run with stages."""
    seconds, start = 0.0, 0
    for number, time in zip(steps, step_seconds, strict=True):
        seconds += time * min(max(step - start, 0), number)
        start += number
    return seconds


def race(
    options: argparse.Namespace, names: Sequence[str], step_seconds: Mapping[str, Sequence[float]]
) -> dict[str, list[runner.Measures]]:
    """Train and measure entries with every seed; finished runs are kept.

    Returns:
        Name of an entry → the measures of each seed.
    """
    measurement = Measurement(options.treebank)

    def measure(name: str, seed: int) -> runner.Measures:
        folder, times = run_folder(options, name, seed), step_seconds[name]
        keys = flags(ENTRIES[name], times, 60 * options.minutes) | {'seed': seed}
        runner.train(folder, options.texts, keys)
        measure_run = functools.partial(measurement, step_seconds=times)
        return runner.cached_measures(folder, measure_run) | measure_tasks(options, folder, seed)

    return runner.for_all_seeds(options.seeds, names, measure)


def measure_tasks(options: argparse.Namespace, folder: pathlib.Path, seed: int) -> runner.Measures:
    """Fine-tune a run on the tasks and score it on BLiMP, if the options name the data."""
    own, measures = folder / 'downstream', {}
    for name, task in downstream.TASKS.items() if options.data else ():
        keys = downstream.config_keys(
            task, 'fine-tuned', {}, options.data, folder, options.task_steps
        )
        measures[name] = downstream.measure(own / name, task, keys | {'seed': seed})
    if options.pairs:
        measures[downstream.BLIMP] = downstream.blimp(
            own / 'blimp', folder, options.pairs, options.per_paradigm
        )
    return measures


def run_folder(options: argparse.Namespace, name: str, seed: int) -> pathlib.Path:
    """The folder of the run of an entry with a seed."""
    return runner.run_folder(options, f'{name} {options.minutes:g}min', seed)


def curves(
    options: argparse.Namespace, names: Sequence[str]
) -> dict[str, list[list[tuple[float, float]]]]:
    """Read the curves of finished runs: entry → seed → seconds of training and masked losses."""
    return {
        name: [
            json.loads((run_folder(options, name, seed) / 'curve.json').read_text())
            for seed in range(options.seeds)
        ]
        for name in names
    }


def write(
    options: argparse.Namespace,
    results: Mapping[str, list[runner.Measures]],
    curves: Mapping[str, list[list[tuple[float, float]]]],
) -> None:
    """Write results and table, best entry first, plot (final losses) and curves (loss and time)."""
    ranked = dict(sorted(results.items(), key=lambda entry: _mean_loss(entry[1])))
    entries = {name: _shown(ENTRIES[name]) for name in ranked}
    settings, suffix = {'minutes': options.minutes, 'entries': entries}, f'_{options.minutes:g}min'
    measured = {name for runs in ranked.values() for name in runs[0]}
    columns = {name: title for name, title in COLUMNS.items() if name in measured}
    plotted = [name for name in ('nats_per_byte', 'pos_accuracy') if name in columns]
    runner.write(options, ranked, columns, settings, plotted, suffix, measures.MEASURED)
    if curves:
        plot_curves(curves, pathlib.Path(options.output) / f'curves{suffix}')


def _mean_loss(runs: Sequence[runner.Measures]) -> float:
    """The mean loss of an entry per byte; infinite for an entry without a masked loss."""
    return statistics.fmean(run.get('nats_per_byte', math.inf) for run in runs)


def _shown(entry: Keys) -> dict[str, object]:
    return {
        name: 'a share of the steps' if callable(value) else value for name, value in entry.items()
    }


def plot_curves(curves: Mapping[str, list[list[tuple[float, float]]]], path: pathlib.Path) -> None:
    """Plot the loss against training time, the mean over seeds, a line for each entry."""
    figure = figures.new(9, 6)
    axes = figure.subplots()
    for number, (name, runs) in enumerate(curves.items()):
        if not all(runs):
            continue
        points_C2 = np.mean(runs, axis=0)
        style = ('-', '--', ':', '-.')[number // 10 % 4]
        axes.plot(*points_C2.T, style, color=f'C{number % 10}', label=name)
    axes.set_xlabel('seconds of training')
    axes.set_ylabel(COLUMNS['mlm_loss'])
    axes.grid(alpha=0.3)
    axes.legend(fontsize=6, ncols=2)
    figures.save(figure, path)


@exit_cleanly
def main() -> None:
    parser = runner.argument_parser('race', __doc__, seeds=3)
    parser.add_argument('--treebank', help='folder of UD English EWT, for the probe')
    parser.add_argument('--minutes', type=float, default=2.0, help='training time of a run')
    parser.add_argument('--entries', nargs='*', default=list(ENTRIES), help='names in entries.py')
    parser.add_argument('--data', help='folder of the data sets of ../comparison, to fine-tune on')
    parser.add_argument('--task_steps', type=int, default=300, help='steps of a fine-tuning run')
    parser.add_argument('--pairs', help='glob of the files of BLiMP')
    parser.add_argument('--per_paradigm', type=int, default=30, help='pairs of each paradigm')
    parser.add_argument('--only_times', action='store_true', help='only measure the steps')
    options = parser.parse_args()
    names = list(dict.fromkeys(['BERT', *options.entries]))
    configs = {name: config_of(look_up('entry', name, ENTRIES), options.texts) for name in names}
    times = step_times.measure(configs, pathlib.Path(options.output) / 'step_times.json')
    if options.only_times:
        return
    results = race(options, names, times)
    write(options, results, curves(options, names))


if __name__ == '__main__':
    main()

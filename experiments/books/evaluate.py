"""Compares pretrained models: held-out loss, minimal pairs, and fine-tuning on six tasks.

    python -m experiments.books.evaluate --data=FOLDER --blimp='blimp/data/*.jsonl' \\
        --zorro=zorro/sentences/babyberta --models bert_jax=runs/books transformers=runs/torch

The first model is a run of `python -m bert_jax.main`, which gives the held-out text and the masks.
The others have the same architecture and vocabulary: runs, or Hugging Face folders. For each
task, the rate of RATES with the best mean over the seeds counts. Finished parts are kept, so the
command can be repeated.
"""

import argparse
import dataclasses
import functools
import json
import pathlib
import statistics

from bert_jax.errors import UserError, exit_cleanly
from bert_jax.files import write_json
from bert_jax.interop import loading
from bert_jax.reports import comparison
from experiments.finetuning import tasks
from experiments.finetuning.run import read_sweep
from experiments.studies import measures, runner

TASKS = {  # title of the column → name in experiments/finetuning/tasks.py
    'parts of speech': 'pos_ewt',
    'names, F1': 'wnut17',
    'questions, F1': 'qamr',
    'entailment': 'med_nli',
    'reviews': 'sentence_polarity',
    'intents': 'banking77',
}
RATES = (5e-4, 1e-3, 2e-3)  # of fine-tuning
LOSS, BYTES, ZORRO, BLIMP, MEAN = 'loss', 'nats per byte', 'Zorro', 'BLiMP', 'mean of tasks'
COLUMNS = (LOSS, BYTES, ZORRO, BLIMP, *TASKS, MEAN)
Values = dict[str, list[float]]  # measure → a value, or one for each seed


class HeldOutLoss:
    """The loss of 15 % masked tokens on the held-out text of a run, in nats."""

    def __init__(self, run: pathlib.Path):
        self._model = loading.load_checkpoint(run)
        self._loss = measures.MaskedLoss(self._model)

    def __call__(self, folder: pathlib.Path) -> Values:
        model = loading.load_any(str(folder), ('mlm',))
        expected, found = self._model.architecture, model.architecture
        same = {'windows': expected.windows, 'classifier': expected.classifier}
        is_equal = dataclasses.replace(found, **same) == expected
        if not is_equal or found.layer_windows != expected.layer_windows:
            raise UserError(f'{folder} has another architecture than the first model')
        loss = self._loss(model)
        bytes_per_token = self._loss.task.corpus.bytes_per_token('held_out')
        return {LOSS: [loss], BYTES: [loss / bytes_per_token]}


def write_zorro(folder: pathlib.Path, path: pathlib.Path) -> None:
    """Write the pairs of Zorro, one JSON object a line with the columns of BLiMP.

    In its files, phenomenon-paradigm.txt, each ungrammatical sentence is followed by the
    grammatical one (github.com/phueb/Zorro, README.md).
    """
    files = sorted(folder.glob('*-*.txt'))
    if not files:
        raise UserError(f'--zorro={folder} has no files such as case-subjective_pronoun.txt')
    with path.open('w', encoding='utf-8') as file:
        for source in files:
            lines = source.read_text(encoding='utf-8').splitlines()
            for bad, good in zip(lines[::2], lines[1::2], strict=True):
                record = {'sentence_good': good, 'sentence_bad': bad, 'UID': source.stem}
                record['linguistics_term'] = source.stem.split('-')[0]
                file.write(json.dumps(record) + '\n')


def score_pairs(output: pathlib.Path, model: pathlib.Path, pairs: str, number: int) -> list[float]:
    """Return the mean accuracy over the paradigms by pseudo-log-likelihood, in percent."""
    command = ['-m', 'bert_jax.analyze', 'pairs', f'--model={model}', f'--input={pairs}']
    runner.run_once(output, [*command, f'--per_paradigm={number}'], '--output')
    return [100 * runner.read_results(output)['results']['mean_of_paradigms']]


def fine_tune(
    output: pathlib.Path, model: pathlib.Path, name: str, rate: float, options: argparse.Namespace
) -> list[float]:
    """Fine-tune a model on a task with every seed; return the metric of each, in percent."""
    task = tasks.TASKS[name]
    keys = tasks.config_keys(task, options.data, str(model), options.steps)
    keys |= {'schedule.learning_rate': rate, 'sweep.seeds': tuple(range(options.seeds))}
    if task.kind == 'classification':  # the mean: neither side has trained a pooler
        keys['problem.pooling'] = 'mean'
    command = runner.main_command(f'configs/finetune.py:{task.kind}', keys)
    runner.run_once(output, command, '--config.workdir')
    return [100 * value for value in read_sweep(output, task.metric, options.seeds)['metric']]


def measure(name: str, model: pathlib.Path, loss: HeldOutLoss, options) -> Values:
    """Return all measures of a model; what is finished is read."""
    output = pathlib.Path(options.runs) / runner.slug(name)
    output.mkdir(parents=True, exist_ok=True)
    zorro = output / 'zorro.jsonl'
    write_zorro(pathlib.Path(options.zorro), zorro)
    score = functools.partial(score_pairs, model=model, number=options.per_paradigm)
    values = loss(model) | {
        ZORRO: score(output / 'zorro', pairs=str(zorro)),
        BLIMP: score(output / 'blimp', pairs=options.blimp),
    }
    for title, task in TASKS.items():
        rates = {
            rate: fine_tune(output / f'{task}_{rate:g}', model, task, rate, options)
            for rate in RATES
        }
        values[title] = max(rates.values(), key=statistics.fmean)
        values |= {f'{title}, rate {rate:g}': found for rate, found in rates.items()}
    by_seed = zip(*(values[title] for title in TASKS), strict=True)
    return values | {MEAN: [sum(seed) / len(TASKS) for seed in by_seed]}


def write(folder: pathlib.Path, results: dict[str, Values], settings: dict) -> None:
    """Write results.json, table.md and plot.png."""
    summary = {
        name: {title: runner.summarize(found) for title, found in values.items()}
        for name, values in results.items()
    }
    write_json(folder / 'results.json', {'settings': settings, 'models': summary}, indent=1)
    table = runner.table(summary, {title: title for title in COLUMNS})
    (folder / 'table.md').write_text(table, encoding='utf-8')
    plotted = {LOSS: LOSS, ZORRO: ZORRO, BLIMP: BLIMP, MEAN: MEAN}
    comparison.plot_runs(folder / 'plot', summary, plotted)
    print(table)


@exit_cleanly
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--models', nargs='+', required=True, help='NAME=FOLDER, the run first')
    parser.add_argument('--data', required=True, help='folder of the data sets')
    parser.add_argument('--blimp', required=True, help='glob of the files of BLiMP')
    parser.add_argument('--zorro', required=True, help='folder of the files of Zorro')
    parser.add_argument('--per_paradigm', type=int, default=200, help='minimal pairs')
    parser.add_argument('--seeds', type=int, default=3, help='of fine-tuning')
    parser.add_argument('--steps', type=int, default=0, help='of fine-tuning; 0: of each task')
    parser.add_argument('--runs', default='runs/books_evaluation', help='folder of the runs')
    parser.add_argument('--output', default='experiments/books', help='folder of the results')
    options = parser.parse_args()
    options.data = str(pathlib.Path(options.data).resolve())
    models = {
        name: pathlib.Path(folder).resolve()
        for name, _, folder in (model.partition('=') for model in options.models)
    }
    loss = HeldOutLoss(next(iter(models.values())))
    settings = {'rates': RATES, 'seeds': options.seeds}
    results: dict[str, Values] = {}
    for name, folder in models.items():
        results[name] = measure(name, folder, loss, options)
        write(pathlib.Path(options.output), results, settings)


if __name__ == '__main__':
    main()

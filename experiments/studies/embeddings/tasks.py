"""Three tasks of sentence embeddings: how their files are made, and the settings of both sides."""

import csv
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

from ml_collections import ConfigDict

from configs import finetune


class TaskSettings(NamedTuple):
    """The settings of a task, tuned for neither library.

    Attributes:
        file: the file of data sets, in the folder of all of them.
        loss: `problem.loss`.
        metric: the metric to report.
        columns: the columns of the table that is made of it.
        keys: further keys of the config.
        learning_rate: peak learning rate.
    """

    file: str
    loss: str
    metric: str
    columns: tuple[str, ...]
    keys: dict
    learning_rate: float = 5e-5


TASKS = {
    'sts_stackexchange': TaskSettings(
        'sts_stackexchange/*.tsv',
        'cosent',
        'spearman',
        ('text1', 'text2', 'score'),
        {'data.columns.scores': ('score',)},
    ),
    'qamr': TaskSettings(
        'qamr/dev.tsv', 'in_batch', 'mrr', ('text1', 'text2'), {'data.group': 'text2'}
    ),
    'banking77': TaskSettings(
        'banking77/train.csv',
        'batch_hard_soft',
        'neighbor_accuracy',
        ('text', 'category'),
        {'data.columns.label': 'category'},
    ),
}


def make_config(name: str, table: pathlib.Path, weights: str, steps: int, seed: int) -> ConfigDict:
    """Return the config of a run on the table of a task."""
    config = finetune.get_config('embedding')
    config.update_from_flattened_dict(config_keys(name, table, weights, steps) | {'seed': seed})
    return config


def config_keys(name: str, table: pathlib.Path, weights: str, steps: int) -> dict:
    """Return the keys of configs/finetune.py:embedding for a task."""
    task = TASKS[name]
    return {
        'init_from': weights,
        'problem.loss': task.loss,
        'data.train': (str(table),),
        'data.columns.texts': tuple(name for name in task.columns if name.startswith('text')),
        'data.dev_fraction': 0.3,
        'training.epochs': 0.0,
        'training.steps': steps,
        'training.batch_size': 32,
        'training.sequence_length': 128,
        'schedule.learning_rate': task.learning_rate,
        'evaluation.every_steps': steps,
        'logging.every_steps': max(1, min(10, steps // 2)),
        **task.keys,
    }


def write_table(name: str, data: pathlib.Path, table: pathlib.Path, number: int) -> None:
    """Write the first `number` examples of a task as a table with a header."""
    rows = dict.fromkeys(_ROWS[name](data))  # without copies
    table.parent.mkdir(parents=True, exist_ok=True)
    with table.open('w', newline='', encoding='utf-8') as file:
        writer = csv.writer(file)
        writer.writerow(TASKS[name].columns)
        writer.writerows(list(rows)[:number])


def lines(path: pathlib.Path) -> Iterator[list[str]]:
    return (line.split('\t') for line in path.read_text('utf-8').splitlines())


def sts(data: pathlib.Path) -> Iterator[tuple[str, ...]]:
    """Pairs with a score, of both files in turn."""
    files = sorted(data.glob('sts_stackexchange/*.tsv'))
    for score, first, second, *_ in (line for path in files for line in lines(path)):
        if score:
            yield first, second, score


def _qamr(data: pathlib.Path) -> Iterator[tuple[str, ...]]:
    """Questions with the sentences that answer them, one question for each sentence."""
    sentences = dict(lines(data / 'qamr/wiki-sentences.tsv'))
    seen = set()
    for name, *fields in lines(data / 'qamr/dev.tsv'):
        if name in sentences and name not in seen:
            seen.add(name)
            yield fields[4], sentences[name]


def _banking(data: pathlib.Path) -> Iterator[tuple[str, ...]]:
    """Every tenth query with its intent."""
    with (data / 'banking77/train.csv').open(encoding='utf-8', newline='') as file:
        rows = [(row['text'], row['category']) for row in csv.DictReader(file)]
    yield from (row for first in range(10) for row in rows[first::10])


_ROWS = {'sts_stackexchange': sts, 'qamr': _qamr, 'banking77': _banking}

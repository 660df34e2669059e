"""A small embedding task on a file of pairs or triplets."""

import random

from bert_jax.tasks import make_task
from configs import finetune
from tests.tasks.small_problems import TEXT

SIZES = dict(hidden_size=32, num_layers=2, num_heads=2, intermediate_size=48)


def rows(number: int, columns: int, seed: int = 0) -> list[list[str]]:
    rng, words = random.Random(seed), TEXT.split()
    return [
        [' '.join(rng.choices(words, k=rng.randint(1, 9))) for _ in range(columns)]
        for _ in range(number)
    ]


def texts(number: int) -> list[list[str]]:
    """The lines of a table of texts with at least three words."""
    return [['text0'], *([f'the {text} ship'] for (text,) in rows(number, 1))]


def config_of(folder, lines: list[list[str]], dropout: float | None = 0.0, sizes=SIZES, **keys):
    """The config of a run on the lines of a table whose first row has the names of its columns."""
    path = folder / 'train.tsv'
    path.write_text(''.join('\t'.join(line) + '\n' for line in lines))
    config = finetune.get_config('embedding')
    dropouts = dict(hidden_dropout=dropout, attention_dropout=dropout)
    config.model.update(architecture='bert', **dropouts, **sizes)
    config.data.update(train=(str(path),), tokenizer='train:wordpiece:90', dev_fraction=0.0)
    config.data.columns.texts = tuple(name for name in lines[0] if name.startswith('text'))
    config.training.update(steps=3, epochs=0.0, batch_size=6, sequence_length=32)
    config.schedule.learning_rate = 1e-3
    config.workdir = str(folder / 'run')
    config.update_from_flattened_dict({key.replace('__', '.'): v for key, v in keys.items()})
    return config


def task_of(folder, columns: int = 3, **keys):
    names = [f'text{number}' for number in range(columns)]
    return make_task(config_of(folder, [names, *rows(30, columns)], **keys))

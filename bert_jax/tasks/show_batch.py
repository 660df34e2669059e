"""One batch of a run, rebuilt from its number alone and decoded: what a step was trained on."""

import json
from collections.abc import Iterator

import jax
import numpy as np

from bert_jax.data.tokenizers import Tokenizer
from bert_jax.errors import UserError


def dump(task, step: int) -> Iterator[str]:
    """The batch of step `step` (from 1, as the log counts), one line of JSON a row.

    Of pretraining each has the tokens, those the encoder is shown where they differ, the masked
    positions with what is to be found there, and the other numbers of the row; of other tasks the
    tokens and all fields. Raises UserError for a step the run does not have.
    """
    stage, number, before = find(task.stages, step)
    vocab = Tokenizer.from_json(task.metadata['tokenizer']).vocab
    if hasattr(task, 'corrupted_batch'):
        batch, corrupted = jax.device_get(task.corrupted_batch(stage, number, before))
        rows = (
            _corrupted_row(batch, corrupted, row, vocab) for row in range(len(batch['input_ids']))
        )
    else:
        batch = stage.source.batch(number)
        rows = (_row(batch, row, vocab) for row in range(len(batch['input_ids'])))
    for row in rows:
        yield json.dumps(row, ensure_ascii=False)


def find(stages, step: int) -> tuple:
    """(stage, number of the batch in its source, step from 0). Raises UserError as `dump` does."""
    first = 0
    for stage in stages:
        if first < step <= first + stage.steps:
            return stage, step - 1 - first, step - 1
        first += stage.steps
    raise UserError(f'debug.batch is {step}, but the run has steps 1 to {first}')


def _row(batch: dict, row: int, vocab) -> dict:
    real = batch['attention_mask'][row] > 0
    tokens = [vocab[i] for i in batch['input_ids'][row][real]]
    return {'tokens': tokens} | {name: array[row].tolist() for name, array in batch.items()}


def _corrupted_row(batch: dict, corrupted, row: int, vocab) -> dict:
    real = batch['attention_mask'][row] > 0

    def tokens(ids):
        return [vocab[i] for i in ids]

    numbers = {name: array[row].tolist() for name, array in batch.items() if array[row].ndim == 0}
    found = numbers | {'tokens': tokens(batch['input_ids'][row][real])}
    masked = getattr(corrupted, 'masked', corrupted)  # a generator's draft begins with masks
    marks = getattr(masked, 'marks', {})
    shown = real if not marks else masked.attention_mask[row] > 0
    if not np.array_equal(masked.input_ids[row][shown], batch['input_ids'][row][real]):
        found['shown'] = tokens(masked.input_ids[row][shown])
    if marks:
        return found | {name: marks[name][row][shown].tolist() for name in marks}
    asked = np.flatnonzero(masked.weights[row])
    order = asked[np.argsort(masked.positions[row][asked])]
    return found | {
        'masked_positions': masked.positions[row][order].tolist(),
        'labels': tokens(masked.labels[row][order]),
    }

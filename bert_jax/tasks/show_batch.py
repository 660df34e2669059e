"""Prints one training batch of a run in readable form, rebuilt from its step number alone."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.data.tokenizers import Tokenizer
from bert_jax.errors import UserError
from bert_jax.objectives.corruption import Corrupted
from bert_jax.training.task import Stage, Task
from bert_jax.types import Batch


def dump(task: Task, step: int) -> Iterator[str]:
    """Yield one line of JSON per row of the batch of a training step.

    For pretraining, a row has its tokens, the tokens that the encoder is shown if they differ
    (`shown`), the prediction targets, and the other numbers of the row. For other tasks it has its
    tokens and all fields.

    Args:
        task: The task of the run.
        step: Number of the step, from 1, as in the log.

    Raises:
        UserError: If the run does not have that step.
    """
    stage, number, before = find(task.stages, step)
    vocab = Tokenizer(task.metadata['tokenizer']).vocab
    if hasattr(task, 'corrupted_batch'):
        batch, corrupted = jax.device_get(task.corrupted_batch(stage, number, before))
        rows = [_corrupted_row(batch, corrupted, row, vocab) for row in _rows(batch)]
    else:
        batch = stage.source.batch(number)
        rows = [_row(batch, row, vocab) for row in _rows(batch)]
    for row in rows:
        yield json.dumps(row, ensure_ascii=False)


def find(stages: Sequence[Stage], step: int) -> tuple[Stage, int, int]:
    """Locate a step: its stage, the number of its batch in the stage, and its number from 0.

    Raises:
        UserError: If the run does not have that step.
    """
    first = 0
    for stage in stages:
        if first < step <= first + stage.steps:
            return stage, step - 1 - first, step - 1
        first += stage.steps
    raise UserError(f'debug.batch is {step}, but the run has steps 1 to {first}')


def _rows(batch: Batch) -> range:
    return range(len(batch['input_ids']))


def _row(batch: Batch, row: int, vocab: Sequence[str]) -> dict[str, Any]:
    real_T = batch['attention_mask'][row] > 0
    tokens = [vocab[i] for i in batch['input_ids'][row][real_T]]
    return {'tokens': tokens} | {name: array[row].tolist() for name, array in batch.items()}


def _corrupted_row(
    batch: Batch, corrupted: Corrupted, row: int, vocab: Sequence[str]
) -> dict[str, Any]:
    shown = corrupted.encoder_inputs(batch)
    clean_ids = batch['input_ids'][row][batch['attention_mask'][row] > 0]
    shown_ids = shown.input_ids[row][shown.attention_mask[row] > 0]
    found = {name: array[row].tolist() for name, array in batch.items() if array[row].ndim == 0}
    found['tokens'] = [vocab[i] for i in clean_ids]
    if not np.array_equal(shown_ids, clean_ids):
        found['shown'] = [vocab[i] for i in shown_ids]
    return found | corrupted.describe_row(row, vocab)

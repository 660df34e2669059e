"""Prints one training batch of a run in readable form, rebuilt from its step number alone."""

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.data.tokenizers import Tokenizer
from bert_jax.errors import UserError
from bert_jax.objectives.corruption import Corrupted
from bert_jax.training.task import Stage, Task
from bert_jax.types import Batch

if TYPE_CHECKING:
    from bert_jax.tasks.problems.base import Problem


def dump(task: Task, step: int) -> Iterator[str]:
    """Yield one line of JSON per row of the batch of a training step.

    Args:
        task: The task of the run.
        step: Number of the step, from 1, as in the log.

    Raises:
        UserError: If the run does not have that step.
    """
    for row in task.readable_batch(*find(task.stages, step)):
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


def corrupted_row(
    batch: Batch, corrupted: Corrupted, row: int, tokenizer: Tokenizer
) -> dict[str, Any]:
    """Describe a row of pretraining.

    Returns:
        The labels of the row; those of a packed row are lists with a value per example, and
        'first_positions' says where each example starts. 'text' and 'tokens' of the clean row,
        'shown': the tokens that the encoder is shown, if they differ, and the prediction targets.
    """
    vocab, shown = tokenizer.vocab, corrupted.encoder_inputs(batch)
    clean_ids = batch['input_ids'][row][batch['attention_mask'][row] > 0]
    shown_ids = shown.input_ids[row][shown.attention_mask[row] > 0]
    found = {name: array[row].tolist() for name, array in batch.items() if array[row].ndim == 0}
    if 'first_positions' in batch:
        first_BS = batch['first_positions']
        slots = first_BS[row] >= 0
        values = {k: array for k, array in batch.items() if array.shape == first_BS.shape}
        found |= {name: array_BS[row][slots].tolist() for name, array_BS in values.items()}
    found['text'] = tokenizer.decode(clean_ids)
    found['tokens'] = [vocab[i] for i in clean_ids]
    if not np.array_equal(shown_ids, clean_ids):
        found['shown'] = [vocab[i] for i in shown_ids]
    return found | corrupted.describe_row(row, vocab)


def packed_row(batch: Batch, row: int, problem: 'Problem[Any, Any]') -> dict[str, Any]:
    """Describe a row of fine-tuning: the text, the tokens and the targets of its sequences."""
    tokenizer, sequences = problem.tokenizer, []
    length = batch['input_ids'].shape[1]
    for slot in np.flatnonzero(batch['first_positions'][row] >= 0):
        own_T = batch['segment_ids'][row] == slot + 1
        fields = {
            name: array[row, own_T] if array.shape[1] == length else array[row, slot]
            for name, array in batch.items()
            if array.ndim > 1
        }
        ids = fields['input_ids'].tolist()
        tokens = [tokenizer.vocab[index] for index in ids]
        targets = problem.describe_targets(tokens, fields)
        sequences.append({'text': tokenizer.decode(ids), 'tokens': tokens} | targets)
    return {'row': row, 'sequences': sequences}

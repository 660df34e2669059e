"""Prints a training batch of a run in readable form, rebuilt from its step number alone."""

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bert_jax.errors import UserError
from bert_jax.models.rows import Rows
from bert_jax.tokenizers import Tokenizer
from bert_jax.training.task import Stage, StepCourse, Task, first_batches
from bert_jax.types import Batch, JsonRecord

if TYPE_CHECKING:
    from bert_jax.problems.base import AnyProblem


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
    """Return the stage of a step, the number of its batch in its source, and the step from 0.

    Raises:
        UserError: If the run does not have that step.
    """
    course = StepCourse([stage.steps for stage in stages])
    numbers = first_batches(stages, course.starts)
    for stage, first, first_batch in zip(stages, course.starts, numbers, strict=True):
        if first < step <= first + stage.steps:
            return stage, first_batch + step - 1 - first, step - 1
    raise UserError(f'debug.batch is {step}, but the run has steps 1 to {sum(course.steps)}')


def corrupted_row(clean: Rows, rows: Rows, row: int, tokenizer: Tokenizer) -> JsonRecord:
    """Describe a row of pretraining.

    Returns:
        The labels of the row (in a packed row, lists with a value per example; 'first_positions' is
        where each example starts), the 'text' and 'tokens' of the clean row, and 'shown', the
        tokens of the corrupted `rows`, which the encoder sees, if they differ.
    """
    clean_ids, shown_ids = (
        part.input_ids_BT[row][part.attention_mask_BT[row] > 0].tolist() for part in (clean, rows)
    )
    labels, first_BS = clean.labels, clean.first_positions_BS
    described = {k: array[row].tolist() for k, array in labels.items() if array[row].ndim == 0}
    if first_BS is not None:
        slots, labels = first_BS[row] >= 0, {'first_positions': first_BS, **labels}
        values = {k: array for k, array in labels.items() if array.shape == first_BS.shape}
        described |= {name: array_BS[row][slots].tolist() for name, array_BS in values.items()}
    described['text'] = tokenizer.decode(clean_ids)
    described['tokens'] = [tokenizer.vocab[i] for i in clean_ids]
    if shown_ids != clean_ids:
        described['shown'] = [tokenizer.vocab[i] for i in shown_ids]
    return described


def packed_row(batch: Batch, row: int, problem: 'AnyProblem') -> JsonRecord:
    """Describe a row of fine-tuning: the text, the tokens and the targets of its sequences."""
    tokenizer, sequences = problem.encoding.tokenizer, []
    arrays = {name: np.asarray(array) for name, array in batch.items()}
    length = arrays['input_ids'].shape[1]
    for slot in np.flatnonzero(arrays['first_positions'][row] >= 0):
        is_in_slot_T = arrays['segment_ids'][row] == slot + 1
        fields = {
            name: array[row, is_in_slot_T] if array.shape[1] == length else array[row, slot]
            for name, array in arrays.items()
            if array.ndim > 1
        }
        ids = fields['input_ids'].tolist()
        tokens = [tokenizer.vocab[index] for index in ids]
        targets = problem.encoding.describe_targets(tokens, fields)
        sequences.append({'text': tokenizer.decode(ids), 'tokens': tokens} | targets)
    return {'row': row, 'sequences': sequences}

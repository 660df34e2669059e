"""Runs a compiled function over rows of very different lengths, in few shapes."""

import concurrent.futures
import dataclasses
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np

from bert_jax.types import Batch, Tree

# Rows are padded to the next of these lengths, and longer rows to a multiple of 256. For the
# sentences of SemCor, a twelfth of the computed tokens is padding. Each shape costs a compilation
# and, with MiniLM on a CPU, 7 MB: twice as many shapes, with half the padding, are no faster on
# 33,000 sentences.
LENGTHS = (
    *range(8, 32, 4),
    *range(32, 64, 8),
    *range(64, 128, 16),
    *range(128, 256, 32),
    *range(256, 513, 64),
)

# On a CPU a single batch leaves cores idle between its matrix products (three concurrent batches
# are 1.1 to 1.2 × as fast on two cores); on an accelerator the next batch is ready when one ends.
CONCURRENT_BATCHES = 3


@dataclasses.dataclass(frozen=True)
class TokenizedText:
    """One row of input.

    Attributes:
        ids: int32 [T], special tokens included.
        extras: further inputs of the function by name, short integer arrays.
    """

    ids: np.ndarray
    extras: dict[str, np.ndarray]


def run(
    function: Callable[[Batch], Tree],
    rows: Sequence[TokenizedText],
    *,
    batch_tokens: int,
    max_length: int,
    pad_id: int,
    advance: Callable[[int], object],
    last_type: int = 0,
    concurrent_batches: int = CONCURRENT_BATCHES,
) -> list[Tree]:
    """Run a function on rows in padded batches; return one result per row, in order.

    Args:
        function: takes {'input_ids', 'attention_mask': int32 [B, T], with a `last_type` also
            'token_type_ids', extras: int32 [B, P]}, padded
            with pad_id, 0 and 0, and returns a pytree of arrays [B, …].
        batch_tokens: B · T, approximately; there is one shape for each length in LENGTHS, and
            another for the last batch.
        max_length: largest T.
        advance: called with the number of rows of each finished batch.
        last_type: token type of the last token of each row, other tokens have type 0; 0: rows have
            no token types.
        concurrent_batches: batches that are computed at the same time.

    Returns:
        Pytrees of NumPy arrays […].
    """
    results: list[Tree] = [None] * len(rows)

    def compute(plan: tuple[np.ndarray, tuple[int, int]]) -> tuple[np.ndarray, Tree]:
        indices, shape = plan
        batch = _batch([rows[i] for i in indices], shape, pad_id, last_type)
        return indices, jax.device_get(function(batch))

    lengths = [len(row.ids) for row in rows]
    with concurrent.futures.ThreadPoolExecutor(concurrent_batches) as pool:
        for indices, result in pool.map(compute, _plan(lengths, batch_tokens, max_length)):
            leaves, structure = jax.tree.flatten(result)
            for row, index in enumerate(indices):
                results[index] = jax.tree.unflatten(structure, [leaf[row] for leaf in leaves])
            advance(len(indices))
    return results


def _plan(
    lengths: Sequence[int], batch_tokens: int, max_length: int
) -> Iterator[tuple[np.ndarray, tuple[int, int]]]:
    """Yield row indices and (rows, length) of every batch, longest first; the last may be small."""
    order = np.argsort(lengths, kind='stable')[::-1]
    first = 0
    while first < len(order):
        length = min(_round_up(lengths[order[first]]), max_length)
        num_rows = max(1, batch_tokens // length)
        indices = order[first : first + num_rows]
        if len(indices) < num_rows:
            num_rows = min(num_rows, _power_of_two(len(indices)))
        yield indices, (num_rows, length)
        first += len(indices)


def _batch(
    rows: Sequence[TokenizedText], shape: tuple[int, int], pad_id: int, last_type: int
) -> dict[str, np.ndarray]:
    num_rows, length = shape
    batch = {
        'input_ids': _pad([row.ids for row in rows], num_rows, length, pad_id),
        'attention_mask': _pad([np.ones(len(r.ids)) for r in rows], num_rows, length, 0),
    }
    batch['attention_mask'][len(rows) :, 0] = 1  # empty rows: attention needs a visible token
    if last_type:
        types = [np.append(np.zeros(len(row.ids) - 1), last_type) for row in rows]
        batch['token_type_ids'] = _pad(types, num_rows, length, 0)
    for name in rows[0].extras:
        values = [row.extras[name] for row in rows]
        batch[name] = _pad(values, num_rows, _power_of_two(max(map(len, values))), 0)
    return batch


def _pad(arrays: Sequence[np.ndarray], num_rows: int, length: int, value: int) -> np.ndarray:
    padded = np.full((num_rows, length), value, np.int32)
    for row, array in zip(padded, arrays, strict=False):
        row[: len(array)] = array
    return padded


def _round_up(length: int) -> int:
    return next((padded for padded in LENGTHS if padded >= length), -(-length // 256) * 256)


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()

"""Running a compiled function over rows of very different lengths, in few shapes."""

import concurrent.futures
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

# Rows are padded to one of these, and beyond them to a multiple of 256: few shapes to compile, and
# of the tokens computed for sentences one in fifteen is padding.
LENGTHS = (
    *range(4, 32, 2),
    *range(32, 64, 4),
    *range(64, 128, 8),
    *range(128, 256, 16),
    *range(256, 513, 32),
)

# Batches computed at once: on a CPU one leaves cores idle between its products (three: 1.1 to 1.2 ×
# as fast on two cores), on an accelerator the next is ready when one is done.
AT_ONCE = 3


@dataclasses.dataclass(frozen=True)
class Row:
    """One input of a model.

    ids: int32 [T], special tokens included.
    extras: what a function wants beside the ids; short int arrays by name.
    """

    ids: np.ndarray
    extras: dict[str, np.ndarray]


def run(
    function: Callable[[dict[str, np.ndarray]], Any],
    rows: Sequence[Row],
    *,
    batch_tokens: int,
    max_length: int,
    pad_id: int,
    advance: Callable[[int], None],
) -> list[Any]:
    """function(batch)'s result for every row, in the order of `rows`, as NumPy.

    function takes {'input_ids', 'attention_mask': int32 [B, T], extras: int32 [B, P]}, padded with
    pad_id, 0 and 0, and returns a pytree of arrays [B, …]. B · T is about batch_tokens, so that
    there is one shape a length in LENGTHS and the last batch. `advance` is told how many rows are
    done.
    """
    results = [None] * len(rows)

    def compute(planned):
        indices, shape = planned
        batch = _batch([rows[i] for i in indices], shape, pad_id)
        return indices, jax.device_get(function(batch))

    lengths = [len(row.ids) for row in rows]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for indices, result in pool.map(compute, _plan(lengths, batch_tokens, max_length)):
            leaves, structure = jax.tree.flatten(result)
            for row, index in enumerate(indices):
                results[index] = jax.tree.unflatten(structure, [leaf[row] for leaf in leaves])
            advance(len(indices))
    return results


def _plan(
    lengths: Sequence[int], batch_tokens: int, max_length: int
) -> Iterator[tuple[np.ndarray, tuple[int, int]]]:
    """(indices, (rows, length)) of every batch, longest first: each but the last is full."""
    order = np.argsort(lengths, kind='stable')[::-1]
    first = 0
    while first < len(order):
        length = min(_round_up(lengths[order[first]]), max_length)
        indices = order[first : first + max(1, batch_tokens // length)]
        num_rows = max(1, batch_tokens // length)
        if len(indices) < num_rows:
            num_rows = min(num_rows, _power_of_two(len(indices)))
        yield indices, (num_rows, length)
        first += len(indices)


def _batch(rows: list[Row], shape: tuple[int, int], pad_id: int) -> dict[str, np.ndarray]:
    num_rows, length = shape
    batch = {
        'input_ids': _padded([row.ids for row in rows], num_rows, length, pad_id),
        'attention_mask': _padded([np.ones(len(r.ids)) for r in rows], num_rows, length, 0),
    }
    batch['attention_mask'][len(rows) :, 0] = 1
    for name in rows[0].extras:
        values = [row.extras[name] for row in rows]
        batch[name] = _padded(values, num_rows, _power_of_two(max(map(len, values))), 0)
    return batch


def _padded(arrays: list[np.ndarray], num_rows: int, length: int, value: int) -> np.ndarray:
    padded = np.full((num_rows, length), value, np.int32)
    for row, array in zip(padded, arrays, strict=False):  # the rows after the last stay empty
        row[: len(array)] = array
    return padded


def _round_up(length: int) -> int:
    fitting = (known for known in LENGTHS if known >= length)
    return next(fitting, -(-length // 256) * 256)


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()

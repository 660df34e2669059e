"""Batches as global arrays: made ahead of the step by threads, and sharded over the mesh."""

import collections
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeAlias

import jax
import numpy as np

from bert_jax.examples.example_source import BatchSource
from bert_jax.training import sharding

AbstractBatch: TypeAlias = Mapping[str, jax.ShapeDtypeStruct]

_STEPS_PER_CALL = 4  # a source makes several batches faster at once than one by one


def read(
    source: BatchSource, start: int, stop: int, threads: int
) -> Iterator[dict[str, jax.Array]]:
    """Iterate over global batches `start` to `stop` − 1 of a source, in the current mesh.

    Each process reads only the rows that its own devices hold.
    """
    row_sharding = sharding.batch_sharding(jax.sharding.get_mesh())
    rows = sharding.local_rows(row_sharding, source.batch_size)
    for batch in read_ahead(source, start, stop, rows, threads):
        yield {
            name: jax.make_array_from_process_local_data(
                row_sharding, array, (source.batch_size, *array.shape[1:])
            )
            for name, array in batch.items()
        }


def read_ahead(
    source: BatchSource, start: int, stop: int, rows: slice | np.ndarray, threads: int
) -> Iterator[dict[str, np.ndarray]]:
    """Yield source.batch(step, rows) for start ≤ step < stop, made ahead by threads.

    An exception in source.batch is raised here, after the batches of earlier steps.
    """
    calls: collections.deque[Future[dict[str, np.ndarray]]] = collections.deque()
    pool = ThreadPoolExecutor(threads, 'batches')
    try:
        for first in range(start, stop, _STEPS_PER_CALL):
            steps = np.arange(first, min(first + _STEPS_PER_CALL, stop))
            calls.append(pool.submit(source.batch, steps, rows))
            if len(calls) > threads + 1:
                yield from _split(calls.popleft().result())
        while calls:
            yield from _split(calls.popleft().result())
    finally:
        pool.shutdown(cancel_futures=True)  # waits for the batches in progress


def _split(batches: dict[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    """Yield the batches of several steps, given as arrays [G, B, …]."""
    for arrays in zip(*batches.values(), strict=True):
        yield dict(zip(batches, arrays, strict=True))


def abstract(source: BatchSource) -> AbstractBatch:
    """Return the shapes, dtypes and shardings of the batches that `read` yields."""
    row_sharding = sharding.batch_sharding(jax.sharding.get_mesh())
    return {
        name: jax.ShapeDtypeStruct(
            (source.batch_size, *array.shape[1:]), array.dtype, sharding=row_sharding
        )
        for name, array in source.batch(0, slice(1)).items()
    }

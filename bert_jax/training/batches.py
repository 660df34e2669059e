"""Batches as global arrays: read ahead on this host and sharded over the mesh."""

import collections
import concurrent.futures
import itertools
import threading
import weakref
from collections.abc import Iterator, Mapping

import jax
import numpy as np

from bert_jax import tensorflow_import
from bert_jax.examples.example_source import BatchSource
from bert_jax.training import sharding

# A call from TensorFlow into Python takes about 0.4 ms, and a source makes several batches at once
# faster than one by one.
_STEPS_PER_CALL = 4

AbstractBatch = Mapping[str, jax.ShapeDtypeStruct]


def import_reader() -> None:
    """Import TensorFlow, which takes seconds, in a thread: meanwhile a step is compiled."""
    if tensorflow_import.is_installed():
        threading.Thread(target=tensorflow_import.tensorflow).start()


def read(
    source: BatchSource, start: int, stop: int, threads: int
) -> Iterator[dict[str, jax.Array]]:
    """Iterate over global batches `start` to `stop` − 1 of a source, in the current mesh.

    Each process reads only the rows that its own devices hold.
    """
    for batch in read_ahead(source, start, stop, _local_rows(source), workers=threads):
        yield _to_devices(source, batch)


def read_one(source: BatchSource, number: int) -> dict[str, jax.Array]:
    """Return global batch `number` of a source, as `read` yields it, without threads."""
    return _to_devices(source, source.batch(number, _local_rows(source)))


def _local_rows(source: BatchSource) -> np.ndarray:
    """Return the rows of a global batch that the devices of this process hold."""
    row_sharding = sharding.batch_sharding(jax.sharding.get_mesh())
    return sharding.local_rows(row_sharding, source.batch_size)


def _to_devices(source: BatchSource, batch: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    """Make global arrays of the rows of this process."""
    row_sharding = sharding.batch_sharding(jax.sharding.get_mesh())
    return {
        name: jax.make_array_from_process_local_data(
            row_sharding, array, (source.batch_size, *array.shape[1:])
        )
        for name, array in batch.items()
    }


def read_ahead(
    source: BatchSource,
    start_step: int,
    stop_step: int,
    rows: slice | np.ndarray = slice(None),
    workers: int = 2,
) -> Iterator[dict[str, np.ndarray]]:
    """Yield source.batch(step, rows) for start_step ≤ step < stop_step, in this order.

    Threads make the batches ahead of the training step: those of tf.data where TensorFlow is
    installed, else those of a pool of Python's. Both yield the same batches, bit for bit.
    An exception in source.batch is raised here, after the batches of earlier steps.

    Args:
        source: Source of the batches.
        start_step: First step.
        stop_step: End of the steps, exclusive.
        rows: Rows of the global batch that this process needs.
        workers: Threads that make batches.
    """
    pipeline = _through_tf_data if tensorflow_import.is_installed() else _through_thread_pool
    return pipeline(source, start_step, stop_step, rows, workers)


def _through_tf_data(
    source: BatchSource, start_step: int, stop_step: int, rows: slice | np.ndarray, workers: int
) -> Iterator[dict[str, np.ndarray]]:
    """Yield the batches of `read_ahead` from a pipeline of tf.data."""
    tf = tensorflow_import.tensorflow()
    template = source.batch(start_step, rows)
    failures: dict[int, Exception] = {}

    def read(step: int) -> list[np.ndarray]:
        steps = np.arange(step, min(step + _STEPS_PER_CALL, stop_step))
        try:
            return list(source.batch(steps, rows).values())
        except Exception as error:  # TensorFlow would write a traceback to the log
            failures[step] = error
            return [array[:0] for array in template.values()]

    weak_read = weakref.ref(read)

    # TensorFlow never releases a Python function that it has called: this one does not hold the
    # source.
    def call(step: np.int64) -> list[np.ndarray] | None:
        function = weak_read()
        return function(int(step)) if function else None

    types = [tf.as_dtype(array.dtype) for array in template.values()]
    dataset = tf.data.Dataset.range(start_step, stop_step, _STEPS_PER_CALL)
    dataset = dataset.map(
        lambda step: tf.numpy_function(call, [step], types),
        num_parallel_calls=workers,
        deterministic=True,
    ).prefetch(1)
    iterator = dataset.as_numpy_iterator()
    try:
        for step, arrays in zip(itertools.count(start_step, _STEPS_PER_CALL), iterator):
            for values in zip(*arrays, strict=True):
                yield dict(zip(template, values, strict=True))
            if step in failures:
                raise failures[step]
    finally:
        del iterator  # waits for the batches in progress, which still need `read`


def _through_thread_pool(
    source: BatchSource, start_step: int, stop_step: int, rows: slice | np.ndarray, workers: int
) -> Iterator[dict[str, np.ndarray]]:
    """Yield the batches of `read_ahead` from a pool of threads, which is one call ahead of them."""

    def read(step: int) -> list[dict[str, np.ndarray]]:
        steps = np.arange(step, min(step + _STEPS_PER_CALL, stop_step))
        batch = source.batch(steps, rows)
        return [{name: array[n] for name, array in batch.items()} for n in range(len(steps))]

    calls = iter(range(start_step, stop_step, _STEPS_PER_CALL))
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        waiting = collections.deque(
            pool.submit(read, step) for step in itertools.islice(calls, workers + 1)
        )
        try:
            while waiting:
                yield from waiting.popleft().result()
                waiting.extend(pool.submit(read, step) for step in itertools.islice(calls, 1))
        finally:
            for call in waiting:
                call.cancel()


def abstract(source: BatchSource) -> AbstractBatch:
    """Return the shapes, dtypes and shardings of the batches that `read` yields."""
    row_sharding = sharding.batch_sharding(jax.sharding.get_mesh())
    return {
        name: jax.ShapeDtypeStruct(
            (source.batch_size, *array.shape[1:]), array.dtype, sharding=row_sharding
        )
        for name, array in source.batch(0, slice(1)).items()
    }

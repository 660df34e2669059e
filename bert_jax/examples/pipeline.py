"""Input pipeline: tf.data threads make batches ahead of the training step."""

import weakref
from collections.abc import Iterator

import numpy as np

from bert_jax import tensorflow_import
from bert_jax.examples.example_source import BatchSource

# A call from TensorFlow into Python takes about 0.4 ms, so each makes several batches.
_STEPS_PER_CALL = 4


def batches(
    source: BatchSource,
    start_step: int,
    stop_step: int,
    rows: slice | np.ndarray = slice(None),
    workers: int = 2,
) -> Iterator[dict[str, np.ndarray]]:
    """Yield source.batch(step, rows) for start_step ≤ step < stop_step, in this order.

    An exception in source.batch is raised here, after the batches of earlier steps.

    Args:
        source: Source of the batches.
        start_step: First step.
        stop_step: End of the steps, exclusive.
        rows: Rows of the global batch that this process needs.
        workers: Threads that make batches.
    """
    tf = tensorflow_import.tensorflow()
    template = source.batch(start_step, rows)
    failures: dict[int, Exception] = {}

    def read(step: int) -> list[np.ndarray]:
        steps = np.arange(step, min(step + _STEPS_PER_CALL, stop_step))
        try:
            return list(source.batch(steps, rows).values())
        except Exception as error:
            failures[step] = error
            raise

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
        for arrays in iterator:
            for values in zip(*arrays, strict=True):
                yield dict(zip(template, values, strict=True))
    except tf.errors.OpError:
        if not failures:
            raise
        raise failures[min(failures)] from None
    finally:
        del iterator  # waits for the batches in progress, which still need `read`

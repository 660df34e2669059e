"""Batches read ahead of the training step by tf.data threads."""

import itertools
from collections.abc import Iterator

import numpy as np

from bert_jax.data import tensorflow_import

# TensorFlow keeps every Python function it ever called. So it is given a single one, and the
# sources are found by number for as long as their pipeline lives.
_readers = {}
_numbers = itertools.count()

# A call costs about .4 ms whatever it returns, so it makes several batches.
_STEPS_PER_CALL = 4


def batches(
    source,
    start_step: int,
    stop_step: int,
    rows: slice | np.ndarray = slice(None),
    workers: int = 2,
    prefetch: int = 4,
) -> Iterator[dict[str, np.ndarray]]:
    """source.batch(step, rows) for start_step ≤ step < stop_step, in this order.

    source.batch must take an int array of steps [G] as well, and then return arrays [G, B, …].
    `workers` threads make batches and about `prefetch` are kept ready. What source.batch raises is
    raised here, before the batches that could not be made.
    """
    tf = tensorflow_import.tensorflow()
    template = source.batch(start_step, rows)
    reader, failures = next(_numbers), {}
    _readers[reader] = _reader(source, stop_step, rows, failures)
    types = [tf.as_dtype(array.dtype) for array in template.values()]
    dataset = tf.data.Dataset.range(start_step, stop_step, _STEPS_PER_CALL)
    dataset = dataset.map(
        lambda step: tf.numpy_function(_read, [reader, step], types),
        num_parallel_calls=workers,
        deterministic=True,
    ).prefetch(-(-prefetch // _STEPS_PER_CALL))
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
        del iterator  # waits for the batches being made, so that they still find their reader
        del _readers[reader]


def _reader(source, stop_step, rows, failures):
    def read(step):
        steps = np.arange(step, min(step + _STEPS_PER_CALL, stop_step))
        try:
            return list(source.batch(steps, rows).values())
        except Exception as error:
            failures[step] = error
            raise

    return read


def _read(reader, step):
    return _readers[int(reader)](int(step))

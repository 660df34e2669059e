"""Batches read ahead of the training step by tf.data threads."""

import itertools
from collections.abc import Iterator

import numpy as np

from bert_jax.data import lazy

# TensorFlow keeps every Python function it ever called. So it is given a single one, and the
# sources are found by number for as long as their pipeline lives.
_readers = {}
_numbers = itertools.count()


def batches(
    source,
    start_step: int,
    stop_step: int,
    rows: slice | np.ndarray = slice(None),
    workers: int = 2,
    prefetch: int = 4,
) -> Iterator[dict[str, np.ndarray]]:
    """source.batch(step, rows) for start_step ≤ step < stop_step, in this order.

    `workers` batches are made at a time and `prefetch` more are kept ready. Whatever source.batch
    raises is raised here, at the step that it belongs to.
    """
    tf = lazy.tensorflow()
    template = source.batch(start_step, rows)
    reader, failures = next(_numbers), {}
    _readers[reader] = _reader(source, rows, list(template), failures)
    types = [tf.as_dtype(array.dtype) for array in template.values()]
    steps = tf.data.Dataset.range(start_step, stop_step)
    dataset = steps.map(
        lambda step: tf.numpy_function(_read, [reader, step], types, stateful=True),
        num_parallel_calls=workers,
        deterministic=True,
    ).prefetch(prefetch)
    try:
        for arrays in dataset.as_numpy_iterator():
            yield dict(zip(template, arrays, strict=True))
    except tf.errors.OpError:
        if not failures:
            raise
        raise failures[min(failures)] from None
    finally:
        del _readers[reader]


def _reader(source, rows, names, failures):
    def read(step):
        try:
            batch = source.batch(step, rows)
            return [batch[name] for name in names]
        except Exception as error:
            failures[step] = error
            raise

    return read


def _read(reader, step):
    return _readers[int(reader)](int(step))

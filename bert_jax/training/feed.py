"""Batches of a source, read ahead on this host and laid over the devices of the current mesh."""

from collections.abc import Iterator

import jax

from bert_jax.data import pipeline
from bert_jax.training import sharding


def batches(source, start: int, stop: int, threads: int) -> Iterator[dict[str, jax.Array]]:
    """Global batches `start` … `stop` − 1 of `source`; every process reads only the rows its
    devices hold.
    """
    rows_over = sharding.batch_sharding(jax.sharding.get_mesh())
    rows = sharding.local_rows(rows_over, source.batch_size)
    for batch in pipeline.batches(source, start, stop, rows, workers=threads):
        yield jax.tree.map(lambda leaf: _global_array(leaf, source.batch_size, rows_over), batch)


def abstract_batch(source) -> dict[str, jax.ShapeDtypeStruct]:
    """What `batches` gives of `source`: shapes, dtypes and shardings."""
    where = sharding.batch_sharding(jax.sharding.get_mesh())
    return {
        name: jax.ShapeDtypeStruct((source.batch_size, *row.shape[1:]), row.dtype, sharding=where)
        for name, row in source.batch(0, slice(1)).items()
    }


def _global_array(local, batch_size: int, where) -> jax.Array:
    shape = (batch_size, *local.shape[1:])
    return jax.make_array_from_process_local_data(where, local, shape)

"""Batches as global arrays: read ahead on this host and sharded over the mesh."""

from collections.abc import Iterator, Mapping

import jax

from bert_jax.examples import pipeline
from bert_jax.examples.example_source import BatchSource
from bert_jax.training import sharding

AbstractBatch = Mapping[str, jax.ShapeDtypeStruct]


def read(
    source: BatchSource, start: int, stop: int, threads: int
) -> Iterator[dict[str, jax.Array]]:
    """Iterate over global batches `start` to `stop` − 1 of a source, in the current mesh.

    Each process reads only the rows that its own devices hold.
    """
    row_sharding = sharding.batch_sharding(jax.sharding.get_mesh())
    rows = sharding.local_rows(row_sharding, source.batch_size)
    for batch in pipeline.batches(source, start, stop, rows, workers=threads):
        yield {
            name: jax.make_array_from_process_local_data(
                row_sharding, array, (source.batch_size, *array.shape[1:])
            )
            for name, array in batch.items()
        }


def abstract(source: BatchSource) -> AbstractBatch:
    """Return the shapes, dtypes and shardings of the batches that `read` yields."""
    row_sharding = sharding.batch_sharding(jax.sharding.get_mesh())
    return {
        name: jax.ShapeDtypeStruct(
            (source.batch_size, *array.shape[1:]), array.dtype, sharding=row_sharding
        )
        for name, array in source.batch(0, slice(1)).items()
    }

"""The arrays of a checkpoint in a bucket that several hosts save: each uploads its own shards.

In a folder that hosts share, each writes its shards as a store `ocdbt.process_HOST` of TensorStore,
and Orbax on host 0 merges the stores: it writes a tree of names that refers to the values in them.
Without such a folder, each host makes the tree of its own store and uploads both; host 0 merges the
trees and reads no values. Orbax reads the result like a checkpoint on a disk.
"""

import asyncio
import pathlib
import shutil
from typing import Any

import jax

from bert_jax.storage import paths
from bert_jax.training import checksums, multihost

_STORE, _TREE = 'ocdbt.process_', 'manifest.ocdbt'


class ShardWriter:
    """Writes the shards of this host to a folder of its own.

    It has those methods of Orbax's AsyncCheckpointer that are needed here.
    """

    def __init__(self, handler: Any):
        """Write with the CheckpointHandler of Orbax that is given."""
        self._handler = handler
        self._writes: list[Any] = []

    def save(self, folder: pathlib.Path, args: Any) -> None:
        """Start writing; return as soon as the arrays may be donated."""
        from etils import epath

        (folder / 'array_metadatas').mkdir(parents=True)  # Orbax waits for host 0 to make it
        self._writes = asyncio.run(self._handler.async_save(epath.Path(folder), args=args))

    def wait_until_finished(self) -> None:
        """Wait until the shards are written; raise the exception that prevented it."""
        for write in self._writes:
            write.result()

    def close(self) -> None:
        """Stop the threads of the handler."""
        self._handler.close()


def upload(folder: pathlib.Path, target: pathlib.Path, name: str) -> dict[str, str]:
    """Upload a checkpoint with the shards of this host; on host 0, merge those of all hosts.

    Any thread may call this.

    Args:
      folder: the local copy of `target`. It is gone afterwards, except on host 0, which is left
        with what is still to be uploaded.
      target: the checkpoint in the bucket.
      name: identifies the call, the same on all hosts.

    Returns:
      File name → SHA-256 of all files uploaded by all hosts; empty on all hosts but host 0.
    """
    host, arrays = jax.process_index(), folder / 'arrays'
    _merge(arrays, [{'base': arrays / f'{_STORE}{host}'}])
    (arrays / 'index' / str(host)).mkdir(parents=True)
    (arrays / _TREE).rename(arrays / 'index' / str(host) / _TREE)
    digests = checksums.digests(folder)
    paths.upload(folder, target)
    shutil.rmtree(folder)
    uploaded = multihost.gather_on_host0(name, digests)
    if uploaded:
        paths.fetch(target, without=[f'{_STORE}*'])
        trees = [arrays / 'index' / str(each) for each in range(len(uploaded))]
        _merge(arrays, [{'base': arrays, 'manifest': tree} for tree in trees])
    return {file: digest for each in uploaded for file, digest in each.items()}


def _merge(folder: pathlib.Path, stores: list[dict[str, pathlib.Path]]) -> None:
    """Write to `folder` a tree of the names in stores, given by folders of their files."""
    import tensorstore  # takes 0.1 s

    def opened(**places: pathlib.Path) -> Any:
        files = {key: {'driver': 'file', 'path': f'{place}/'} for key, place in places.items()}
        return tensorstore.KvStore.open({'driver': 'ocdbt', **files}, context=context).result()

    context, transaction = tensorstore.Context(), tensorstore.Transaction(atomic=True)
    merged = opened(base=folder).with_transaction(transaction)
    for store in stores:
        opened(**store).experimental_copy_range_to(merged).result()
    transaction.commit_async().result()

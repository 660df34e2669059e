"""Checkpoints that several hosts save to a bucket: each host uploads its own shards.

In a shared folder, each host writes its shards as a TensorStore store `ocdbt.process_HOST`, and
Orbax on host 0 merges the stores: it writes a tree of names that refers to the values in them.
Without a shared folder, each host makes the tree of its own store and uploads both; host 0 merges
the trees and reads no values. Orbax reads the result like a checkpoint on a disk.
"""

import asyncio
import pathlib
import shutil
from typing import Any

import jax

from bert_jax.loaded import checksums
from bert_jax.storage import paths
from bert_jax.storage.path import Path
from bert_jax.training import multihost

_STORE, _TREE = 'ocdbt.process_', 'manifest.ocdbt'


class CheckpointShardWriter:
    """Writes the shards of this host to a local folder, as Orbax's AsyncCheckpointer would."""

    def __init__(self, handler: Any):
        """Write with `handler`, a PyTreeCheckpointHandler of Orbax."""
        self._handler = handler
        self._writes: list[Any] = []

    def save(self, folder: pathlib.Path, args: Any) -> None:
        """Start writing; return as soon as the arrays may be donated."""
        from etils import epath

        (folder / 'array_metadatas').mkdir(parents=True)  # Orbax waits for host 0 to make it
        self._writes = asyncio.run(self._handler.async_save(epath.Path(folder), args=args))

    def wait_until_finished(self) -> None:
        """Wait until the shards are written; raise the exception if writing failed."""
        for write in self._writes:
            write.result()

    def close(self) -> None:
        """Stop the threads of the handler."""
        self._handler.close()


def upload(folder: pathlib.Path, target: Path, name: str) -> dict[str, str]:
    """Upload the shards of this host; on host 0, also merge the shards of all hosts.

    Any thread may call this.

    Args:
        folder: the local copy of `target`, which is removed. On host 0, the merged tree, which is
            not uploaded here, is left in it.
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
        trees = [arrays / 'index' / str(number) for number in range(len(uploaded))]
        _merge(arrays, [{'base': arrays, 'manifest': tree} for tree in trees])
    return {file: digest for digests in uploaded for file, digest in digests.items()}


def _merge(folder: pathlib.Path, stores: list[dict[str, pathlib.Path]]) -> None:
    """Write to `folder` a tree of the names in `stores`, each a dictionary for `open_store`."""
    import tensorstore  # takes 0.1 s

    def open_store(**folders: pathlib.Path) -> Any:
        files = {key: {'driver': 'file', 'path': f'{path}/'} for key, path in folders.items()}
        return tensorstore.KvStore.open({'driver': 'ocdbt', **files}, context=context).result()

    context, transaction = tensorstore.Context(), tensorstore.Transaction(atomic=True)
    merged = open_store(base=folder).with_transaction(transaction)
    for store in stores:
        open_store(**store).experimental_copy_range_to(merged).result()
    transaction.commit_async().result()

"""Checkpoints: written in the background, renamed once complete, verified before use.

checkpoint_files.py lists the files of a checkpoint. They are written to STEP.unfinished, which is
renamed to STEP after all of them are on disk, so a folder named by a bare number is complete. In a
bucket, the manifest is uploaded last: a folder that has a manifest is complete. If there are
several hosts, each uploads its shards (shards.py), and then host 0 uploads the manifest.
"""

import functools
import itertools
import json
import os
import pathlib
import shutil
import threading
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax import lazy_table, tree_paths
from bert_jax.errors import UserError, disk_fault, warn, writing
from bert_jax.loaded import checkpoint_files, checksums
from bert_jax.loaded.checkpoint_files import Restored
from bert_jax.loaded.record import best_step
from bert_jax.storage import paths
from bert_jax.storage.path import Path
from bert_jax.training import multihost
from bert_jax.types import JsonRecord, Tree

UNFINISHED = '.unfinished'
# Only several hosts with a bucket write shards.
_SHARD_WRITER = 'bert_jax.training.shards:CheckpointShardWriter'
_UPLOAD_SHARDS = 'bert_jax.training.shards:upload'
_save_numbers = itertools.count()  # the same on all hosts


class Checkpoints:
    """The checkpoints of one run: the newest `keep` of them and the best one.

    In a multi-host run every process makes one and calls the same methods in the same order.
    """

    def __init__(self, directory: Path, keep: int, is_split: bool):
        """Hold what `open` found; `is_split`: each host writes to its own copy of the folder."""
        self.directory, self.keep = directory, keep
        self._is_split = is_split
        self._makes_folders = is_split or jax.process_index() == 0
        self._damaged: set[int] = set()  # steps of damaged checkpoints, already reported
        self._thread: threading.Thread | None = None
        self._failure: tuple[_Save, Exception] | None = None

    @classmethod
    def open(cls, directory: str | os.PathLike[str], keep: int) -> 'Checkpoints':
        """Open the folder of checkpoints and remove the unfinished ones of a killed run.

        Raises:
            UserError: the folder cannot be written.
        """
        folder = paths.path(directory).absolute()
        is_copied = paths.local(folder) != folder
        opened = cls(folder, keep, is_split=jax.process_count() > 1 and is_copied)
        if opened._makes_folders:
            checkpoint_files.make_writable(paths.local(folder))
        if jax.process_index() == 0:
            for leftover in paths.leftovers(folder, checksums.NAME):
                warn(f'removing unfinished checkpoint {leftover}')
                paths.remove(leftover)
        return opened

    def steps(self) -> list[int]:
        """Steps of all checkpoints, newest first, damaged ones included."""
        return checkpoint_files.steps(self.directory)

    def save(self, step: int, state: Tree, metadata: JsonRecord) -> None:
        """Save a checkpoint in the background; return as soon as the arrays may be donated.

        Waits for the previous save first. A checkpoint of the same step is replaced. Checkpoints
        that are no longer kept are deleted once the new one is complete.

        Args:
            step: the training step.
            state: a pytree of arrays.
            metadata: a JSON-serializable dict; the checkpoint of step metadata['best']['step'], if
                present, is kept.

        Raises:
            UserError: the previous save failed, or there is not enough free space for this one.
        """
        self.wait()
        if self._is_split:  # before any host uploads to the folder of the step
            multihost.run_on_host0(lambda: self._remove(step))
        arrays = tree_paths.flatten(state)
        description = checkpoint_files.describe(arrays)
        name = str(step) if self._is_split else f'{step}{UNFINISHED}'
        save = _Save(
            number=next(_save_numbers),
            step=step,
            folder=paths.local(self.directory / name),
            texts={
                'metadata.json': json.dumps(metadata, ensure_ascii=False),
                'arrays.json': json.dumps(description, ensure_ascii=False),
            },
            num_bytes=sum(array.nbytes for array in arrays.values()),
            best_step=best_step(metadata, 'metadata'),
        )
        try:
            if self._makes_folders:
                shutil.rmtree(save.folder, ignore_errors=True)
                save.folder.mkdir()
                checkpoint_files.check_free_space(save.folder, save.num_bytes)
            args = checkpoint_files.orbax().args.PyTreeSave(arrays)
            self._writer.save(save.folder / 'arrays', args=args)
        except Exception as error:
            self._give_up(save, error)
        self._thread = threading.Thread(target=self._finish, args=(save,))
        self._thread.start()

    def replace_metadata(self, step: int, metadata: JsonRecord) -> None:
        """Replace the metadata of a saved checkpoint; a kill leaves either the old or the new.

        Waits for the save in progress. Can be called once for each checkpoint.

        Args:
            step, metadata: as for `save`.
        """
        self.wait()
        if jax.process_index() == 0:
            with writing(f'workdir {self.directory}'):
                checkpoint_files.add_metadata(self.directory / str(step), metadata)

    def wait(self) -> None:
        """Wait for the save in progress; raise UserError if the disk failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            self._give_up(*failure)

    def close(self) -> None:
        """Wait for the save in progress and stop the threads of Orbax."""
        self.wait()
        if '_writer' in self.__dict__:
            self._writer.close()

    def restore(self, abstract_state: Tree, step: int | None = None) -> Restored | None:
        """Restore the newest undamaged checkpoint, or the checkpoint of `step`.

        Every file is verified first. Damaged checkpoints are reported on stderr and skipped.

        Args:
            abstract_state: a pytree of jax.ShapeDtypeStruct with the shardings of the arrays, on
                any mesh.
            step: the only step to restore; None: the newest that can be restored.

        Returns:
            The checkpoint, or None if there are no checkpoints yet.

        Raises:
            UserError: all checkpoints are damaged, or the checkpoint of `step` is damaged or
                missing; or names, shapes or dtypes do not match `abstract_state`.
        """
        self.wait()
        step = self._choose(only=step)
        if step is None:
            return None
        is_verified = not self._is_split or jax.process_index() == 0  # _choose verified it
        get = checkpoint_files.fetch if is_verified else checkpoint_files.find
        folder = get(self.directory / str(step))
        wanted = tree_paths.flatten(abstract_state)
        checkpoint_files.check_arrays(folder, checkpoint_files.describe(wanted))
        stored = checkpoint_files.read_description(folder)
        arrays = checkpoint_files.read_arrays(
            folder,
            {name: leaf for name, leaf in wanted.items() if name in stored},
            lambda leaf: checkpoint_files.orbax().ArrayRestoreArgs(
                sharding=leaf.sharding, global_shape=leaf.shape, dtype=leaf.dtype
            ),
        )
        for name in wanted.keys() - arrays.keys():  # checkpoint_files.OPTIONAL
            leaf = wanted[name]
            arrays[name] = jnp.zeros(leaf.shape, leaf.dtype, device=leaf.sharding)
        leaves = [arrays[name] for name in wanted]
        state = jax.tree.unflatten(jax.tree.structure(abstract_state), leaves)
        metadata = multihost.run_on_host0(lambda: checkpoint_files.read_metadata(folder))
        paths.drop(self.directory / str(step))
        return Restored(step, state, metadata)

    def metadata(self) -> JsonRecord | None:
        """Read the metadata of the newest checkpoint whose metadata is undamaged."""
        step = self._choose(files=['metadata.json'])
        if step is None:
            return None
        folder = checkpoint_files.fetch(self.directory / str(step), ['metadata.json'])
        return checkpoint_files.read_metadata(folder)

    @functools.cached_property
    def _writer(self) -> Any:
        # Compression would make BERT's arrays 8 % smaller, but writing them takes 30 % longer.
        handler = checkpoint_files.orbax().PyTreeCheckpointHandler(use_compression=False)
        if self._is_split:
            return lazy_table.load(_SHARD_WRITER)(handler)
        return checkpoint_files.orbax().AsyncCheckpointer(handler)

    def _finish(self, save: '_Save') -> None:
        """Wait for the arrays and complete the checkpoint, in a thread."""
        try:
            self._writer.wait_until_finished()
            uploaded = {}
            if self._is_split:
                target, name = self.directory / str(save.step), f'checkpoint/{save.number}'
                uploaded = lazy_table.load(_UPLOAD_SHARDS)(save.folder, target, name)
            if jax.process_index() == 0:
                for name, text in save.texts.items():
                    (save.folder / name).write_text(text + '\n', encoding='utf-8')
                checksums.write(save.folder, uploaded)
                self._commit(save)
        except Exception as error:  # raised in the caller's thread by the next wait()
            self._failure = save, error

    def _commit(self, save: '_Save') -> None:
        """Publish a checkpoint whose files are all written, and remove checkpoints not kept."""
        if not self._is_split:
            self._remove(save.step)
        paths.publish(save.folder, self.directory / str(save.step), checksums.NAME)
        self._damaged.discard(save.step)
        undamaged = [step for step in self.steps() if step not in self._damaged]
        for step in set(self.steps()) - {*undamaged[: self.keep], save.best_step}:
            self._remove(step)

    def _remove(self, step: int) -> None:
        """Remove a checkpoint; a kill leaves all of it or an unfinished one."""
        paths.retract(self.directory / str(step), checksums.NAME)

    def _give_up(self, save: '_Save', error: Exception) -> None:
        """Remove a failed save; raise a UserError if the disk is the reason, else `error`."""
        if self._makes_folders:
            shutil.rmtree(save.folder, ignore_errors=True)
        reason = disk_fault(error)
        if reason is None:
            raise error
        free = shutil.disk_usage(paths.local(self.directory)).free
        raise UserError(
            f'checkpoint {save.step} could not be written to {self.directory}: {reason} (it needs '
            f'{save.num_bytes / 1e6:.1f} MB, {free / 1e6:.1f} MB are free); earlier checkpoints '
            'are intact: free some space and rerun the command'
        ) from error

    def _choose(self, files: list[str] | None = None, only: int | None = None) -> int | None:
        """Choose the checkpoint to read, on host 0, so that the files are verified once."""
        find = checkpoint_files.first_undamaged
        candidates = self.steps() if only is None else [only]
        step = multihost.run_on_host0(
            lambda: find(self.directory, candidates, self._damaged, files)
        )
        if step is None and only is not None:
            raise checkpoint_files.unusable(self.directory, only)
        if step is None and self.steps():
            raise checkpoint_files.all_damaged(self.directory)
        return step


class _Save(NamedTuple):
    """A save in progress; `texts` are the contents of the JSON files by name."""

    number: int
    step: int
    folder: pathlib.Path
    texts: dict[str, str]
    num_bytes: int
    best_step: int | None

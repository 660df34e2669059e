"""Checkpoints that are complete, written in the background, and verified before they are used.

A checkpoint is the folder DIRECTORY/STEP/: `arrays/` (Orbax), `arrays.json` (name → dtype and
shape), `metadata.json` (what the caller stores) and `manifest.sha256` (a digest of every other
file, as `sha256sum -c` reads it). It is made as STEP.unfinished and renamed once all of it is on
the disk: a folder named by a bare number has been complete.
"""

import errno
import functools
import json
import logging
import os
import pathlib
import re
import shutil
import sys
import threading
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import traverse_util

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.training import checksums, multihost, page_cache

UNFINISHED = '.unfinished'
# Free bytes asked for, to a byte of arrays and besides: files have ends, folders and indices.
_ROOM, _ROOM_BESIDES = 1.1, 2**18
# Heads whose parameters older checkpoints name differently: name → older name.
_OLDER_HEADS = {
    'sequence_classification': 'sequence',
    'token_classification': 'token',
    'question_answering': 'span',
    'multiple_choice': 'choice',
}


class Restored(NamedTuple):
    """The arrays of one checkpoint and what was stored beside them."""

    step: int
    state: Any
    metadata: dict


class Checkpoints:
    """The checkpoints of one run, of which the newest `keep` and the best stay; each process makes
    one.
    """

    def __init__(self, directory: str | os.PathLike, keep: int):
        """Removes what a killed run left unfinished. Raises UserError if it cannot write there."""
        if keep < 1:
            raise UserError(f'the number of checkpoints to keep must be at least 1, not {keep}')
        self.directory = pathlib.Path(directory).absolute()
        self.keep = keep
        self._damaged = set()  # steps found bad, and reported
        self._thread = None
        self._failure = None
        if jax.process_index() == 0:
            _make_writable(self.directory)
            for leftover in sorted(self.directory.glob(f'*{UNFINISHED}')):
                _say(f'removing {leftover}, which a stopped run left unfinished')
                shutil.rmtree(leftover)

    def steps(self) -> list[int]:
        """The steps of all checkpoints there are, newest first, damaged ones included."""
        return _steps(self.directory)

    def save(self, step: int, state: Any, metadata: dict):
        """Saves a pytree of arrays and a JSON-able dict; returns once the arrays may be donated. If
        it has metadata['best']['step'], the checkpoint of that step stays.

        Waits for the save before and raises the UserError of one that failed, or of this one where
        the disk is too full for it. A checkpoint of the same step is replaced; older ones are
        deleted only when the new one is complete.
        """
        self.wait()
        arrays = tree_paths.flatten(state)
        documents = {'metadata.json': metadata, 'arrays.json': describe(arrays)}
        texts = {name: json.dumps(d, ensure_ascii=False) for name, d in documents.items()}
        save = _Save(
            step,
            self.directory / f'{step}{UNFINISHED}',
            texts,
            _num_bytes(arrays),
            _best_step(metadata),
        )
        try:
            if jax.process_index() == 0:
                shutil.rmtree(save.folder, ignore_errors=True)
                save.folder.mkdir()
                _check_room(save)
            self._writer.save(save.folder / 'arrays', args=_orbax().args.PyTreeSave(arrays))
        except Exception as error:
            self._give_up(save, error)
        self._thread = threading.Thread(target=self._finish, args=(save,))
        self._thread.start()

    def wait(self):
        """Returns when the save under way is complete; raises UserError if the disk failed it."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            self._give_up(*failure)

    def close(self):
        """Waits for the save under way and ends Orbax' threads."""
        self.wait()
        if '_writer' in self.__dict__:
            self._writer.close()

    def restore(self, abstract_state: Any, step: int | None = None) -> Restored | None:
        """The newest good checkpoint, or None where there has never been one; or that of `step`.

        `abstract_state` is a pytree of jax.ShapeDtypeStruct whose shardings say where the arrays
        go, on any mesh. Every file is verified first; a damaged checkpoint is named on stderr and
        the one before it is taken. Raises UserError if all are damaged, or that of `step` is, and
        if names, shapes or dtypes are not those of `abstract_state`.
        """
        self.wait()
        step = self._newest_good(only=step)
        if step is None:
            return None
        folder = self.directory / str(step)
        wanted = tree_paths.flatten(abstract_state)
        _check_same(folder, describe(wanted))
        arrays = _read_arrays(
            folder,
            wanted,
            lambda leaf: _orbax().ArrayRestoreArgs(
                sharding=leaf.sharding, global_shape=leaf.shape, dtype=leaf.dtype
            ),
        )
        state = jax.tree.unflatten(
            jax.tree.structure(abstract_state), [arrays[name] for name in wanted]
        )
        return Restored(step, state, _read_json(folder / 'metadata.json'))

    def metadata(self) -> dict | None:
        """What was stored with the newest good checkpoint, without touching its arrays."""
        step = self._newest_good(['metadata.json'])
        return None if step is None else _read_json(self.directory / str(step) / 'metadata.json')

    @functools.cached_property
    def _writer(self):
        # Compressed, BERT's arrays are 8 % smaller and take 30 % longer, on the training's cores.
        handler = _orbax().PyTreeCheckpointHandler(use_compression=False)
        return _orbax().AsyncCheckpointer(handler)

    def _finish(self, save: '_Save'):
        """In the background: when the arrays are written, makes the folder a checkpoint."""
        try:
            with page_cache.spared(save.folder):
                self._writer.wait_until_finished()
            if jax.process_index() == 0:
                for name, text in save.documents.items():
                    (save.folder / name).write_text(text + '\n', encoding='utf-8')
                checksums.write(save.folder)
                self._publish(save)
        except Exception as error:  # raised in the caller's thread by the next wait()
            self._failure = save, error

    def _publish(self, save: '_Save'):
        self._remove(save.step)
        save.folder.rename(self.directory / str(save.step))
        checksums.sync(self.directory)
        self._damaged.discard(save.step)
        good = [step for step in self.steps() if step not in self._damaged]
        for step in set(self.steps()) - {*good[: self.keep], save.best}:
            self._remove(step)

    def _remove(self, step: int):
        """Renamed first, so that a kill leaves no half of a checkpoint under its name."""
        folder = self.directory / str(step)
        if folder.exists():
            shutil.rmtree(folder.rename(folder.with_name(f'{step}.deleted{UNFINISHED}')))

    def _give_up(self, save: '_Save', error: Exception):
        """Removes what was written; raises a UserError if the disk is to blame, else `error`."""
        if jax.process_index() == 0:
            shutil.rmtree(save.folder, ignore_errors=True)
        reason = _disk_error(error)
        if reason is None:
            raise error
        free = shutil.disk_usage(self.directory).free
        raise UserError(
            f'checkpoint {save.step} could not be written to {self.directory}: {reason} (it needs'
            f' {save.num_bytes / 1e6:.1f} MB, {free / 1e6:.1f} MB are free); the checkpoints before'
            ' it are untouched'
        ) from error

    def _newest_good(self, files: list[str] | None = None, only: int | None = None) -> int | None:
        """Process 0 chooses for all, so that the files are verified once."""

        def choose():
            among = self.steps() if only is None else [only]
            return _newest_good(self.directory, among, files, self._damaged)

        step = multihost.run_on_host0(choose)
        if step is None and only is not None:
            raise _best_gone(self.directory, only)
        if step is None and self.steps():
            raise _none_good(self.directory)
        return step


class _Save(NamedTuple):
    """A save under way: `documents` are the texts of the JSON files by name, `best` the step of the
    checkpoint that stays.
    """

    step: int
    folder: pathlib.Path
    documents: dict[str, str]
    num_bytes: int
    best: int | None


def _check_room(save: _Save):
    """Raises OSError before Orbax begins what the disk cannot hold: failing half-way, its event
    loop leaves a traceback for every write that was still under way."""
    if shutil.disk_usage(save.folder).free < _ROOM * save.num_bytes + _ROOM_BESIDES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def load(path: str | os.PathLike, prefix: str = '') -> Restored:
    """One checkpoint with its arrays in NumPy, as nested dicts, for those who do not train.

    `path` is a checkpoint, or a folder of checkpoints or of a run, whose newest good one is taken,
    or the best one if there is one. Only the arrays below `prefix` ('params/encoder') are read.
    Raises UserError if there is no checkpoint or none that is good.
    """
    folder = _find(pathlib.Path(path).absolute())
    stored = _described(folder)
    wanted = {name: 0 for name in stored if f'{name}/'.startswith(f'{prefix}/'.lstrip('/'))}
    if not wanted:
        raise UserError(f'{folder} has no arrays below {prefix!r}; it has {", ".join(stored)}')
    arrays = _read_arrays(folder, wanted, lambda _: _orbax().RestoreArgs(restore_type=np.ndarray))
    tree = traverse_util.unflatten_dict(arrays, sep='/')
    return Restored(int(folder.name), tree, _read_json(folder / 'metadata.json'))


def describe(arrays: dict[str, Any]) -> dict[str, str]:
    """Dtype and shape of every array, as 'float32[768, 3072]'."""
    return {name: f'{array.dtype}{list(array.shape)}' for name, array in arrays.items()}


@functools.cache
def _orbax():
    """Imported on first use: it takes .3 s. Its log is left out: its errors are all raised."""
    import orbax.checkpoint

    logging.getLogger('absl').addFilter(lambda record: 'orbax' not in record.pathname)
    return orbax.checkpoint


def _read_arrays(folder: pathlib.Path, wanted: dict[str, Any], restore_args) -> dict[str, Any]:
    """The arrays named by `wanted`, each as `restore_args(wanted[name])` says."""
    stored = _read_json(folder / 'arrays.json')
    names = {_current_name(name): name for name in stored}
    args = _orbax().args.PyTreeRestore(
        item={names[name]: leaf for name, leaf in wanted.items()},
        restore_args={names[name]: restore_args(leaf) for name, leaf in wanted.items()},
        partial_restore=True,
    )
    with _orbax().PyTreeCheckpointer() as reader:
        arrays = reader.restore(folder / 'arrays', args=args)
    return {name: arrays[names[name]] for name in wanted}


def _described(folder: pathlib.Path) -> dict[str, str]:
    """`describe` of the arrays in a checkpoint."""
    stored = _read_json(folder / 'arrays.json')
    return {_current_name(name): text for name, text in stored.items()}


def _current_name(stored: str) -> str:
    """The name under which an array is saved today."""
    for name, older in _OLDER_HEADS.items():
        stored = re.sub(rf'(^|/){older}/head/', rf'\1{name}/head/', stored)
    return stored


def _check_same(folder: pathlib.Path, wanted: dict[str, str]):
    stored = _described(folder)
    differences = [
        f'{name} is {stored.get(name, "missing")} there and {wanted.get(name, "missing")} here'
        for name in {**wanted, **stored}  # parameters before the optimizer's, as in the state
        if stored.get(name) != wanted.get(name)
    ]
    if differences:
        raise UserError(
            f'checkpoint {folder} belongs to another model or optimizer: '
            f'{"; ".join(differences[:3])} ({len(differences)} differences in all)'
        )


def _find(path: pathlib.Path) -> pathlib.Path:
    if (path / checksums.NAME).exists():
        damage = checksums.find_damage(path)
        if damage:
            raise UserError(f'checkpoint {path} is damaged: {damage}')
        return path
    for directory in (path, path / 'checkpoints'):
        if _steps(directory):
            return directory / str(_best_or_newest(directory))
    raise UserError(f'there is no checkpoint in {path}')


def _best_or_newest(directory: pathlib.Path) -> int:
    """The newest good step, or the best one, by what is stored with that."""
    newest = _newest_good(directory, _steps(directory), None, set())
    if newest is None:
        raise _none_good(directory)
    best = _best_step(_read_json(directory / str(newest) / 'metadata.json'))
    if best in (None, newest):
        return newest
    if _newest_good(directory, [best], None, set()) is None:
        raise _best_gone(directory, best)
    return best


def _best_step(metadata: dict) -> int | None:
    return metadata.get('best', {}).get('step')


def _newest_good(
    directory: pathlib.Path, steps: list[int], files: list[str] | None, damaged: set
) -> int | None:
    """The first step that is neither in `damaged` nor found to be: then it is added, and named."""
    for step in steps:
        if step in damaged:
            continue
        damage = checksums.find_damage(directory / str(step), files)
        if damage is None:
            return step
        damaged.add(step)
        _say(f'warning: checkpoint {directory / str(step)} is damaged and not used: {damage}')
    return None


def _none_good(directory: pathlib.Path) -> UserError:
    steps = ', '.join(map(str, _steps(directory)))
    return UserError(
        f'no checkpoint in {directory} can be used, all are damaged: {steps}; bring back a copy,'
        ' or remove them to start afresh'
    )


def _best_gone(directory: pathlib.Path, step: int) -> UserError:
    others = ', '.join(str(other) for other in _steps(directory) if other != step)
    return UserError(
        f'the best checkpoint, {directory / str(step)}, is damaged or gone; bring back a copy, or '
        f'name one of the others in {directory}: {others or "none"}'
    )


def _steps(directory: pathlib.Path) -> list[int]:
    if not directory.is_dir():
        return []
    return sorted((int(f.name) for f in directory.iterdir() if f.name.isdigit()), reverse=True)


def _make_writable(directory: pathlib.Path):
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f'checkpoints cannot go to {directory}: {error.strerror}') from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise UserError(f'checkpoints cannot go to {directory}: it is not writable')


def _disk_error(error: Exception) -> str | None:
    """What the operating system said, from an OSError or the text of an error of Orbax."""
    if isinstance(error, OSError):
        return error.strerror
    told = re.search(r'([^:]*) \[os_error_code', str(error))
    return told and told[1].strip()


def _num_bytes(arrays: dict[str, Any]) -> int:
    return sum(array.nbytes for array in arrays.values())


def _read_json(path: pathlib.Path) -> dict:
    return json.loads(path.read_text(encoding='utf-8'))


def _say(text: str):
    print(text, file=sys.stderr)

"""The files of a checkpoint: the space for them; finding, verifying and reading them.

A checkpoint is the folder DIRECTORY/STEP/ with

- `arrays/`: the arrays, as Orbax stores them;
- `arrays.json`: array name → dtype and shape;
- `metadata.json`: the caller's metadata;
- `manifest.sha256`: the digest of every other file, in the format of `sha256sum -c`;
- `added/`: metadata that replaces `metadata.json`, with its own manifest.
"""

import errno
import functools
import json
import logging
import math
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax import limits
from bert_jax.errors import UserError, warn
from bert_jax.files import parse_json, read_json, read_text
from bert_jax.loaded import checksums
from bert_jax.loaded.record import best_step
from bert_jax.storage import paths
from bert_jax.storage.names import check_distinct, is_number
from bert_jax.storage.path import Path
from bert_jax.types import Array, JsonRecord, Tree

_DESCRIBED = re.compile(r'\w+\[((?:[0-9]{1,18}(?:, [0-9]{1,18})*)?)\]')  # float32[768, 3072]
# Arrays that depend on a key that may change (spike_factor): restored as 0 if missing.
OPTIONAL = ('usual_norm',)
# Required free space: 1.1 × array bytes + 256 KiB, for partly filled blocks, folders and indices.
SPACE_FACTOR, SPACE_CONSTANT = 1.1, 2**18


class Restored(NamedTuple):
    """A restored checkpoint.

    Attributes:
        step: the training step it was saved at.
        state: a pytree of arrays.
        metadata: the metadata stored beside the arrays.
    """

    step: int
    state: Tree
    metadata: JsonRecord


@functools.cache
def orbax() -> Any:
    """Import Orbax on first use (0.3 s) and hide its log; it raises all errors."""
    import orbax.checkpoint

    logging.getLogger('absl').addFilter(lambda record: 'orbax' not in record.pathname)
    return orbax.checkpoint


def is_run(folder: Path) -> bool:
    """Whether a folder has the config of a run."""
    path = folder / 'config.json'
    try:
        config = parse_json(read_text(path)) if path.exists() else {}
    except (OSError, ValueError, UserError):
        return False
    return isinstance(config, dict) and {'task', 'workdir'} <= config.keys()


def steps(directory: Path) -> list[int]:
    """Steps of all checkpoints in a folder, newest first, damaged ones included."""
    names = [folder.name for folder in paths.finished(directory, checksums.NAME)]
    return sorted((int(name) for name in names if is_number(name)), reverse=True)


def fetch(folder: Path, names: Sequence[str] = ('*',)) -> pathlib.Path:
    """Return a checkpoint on this machine: the folder itself, or a copy of one in a bucket.

    Args:
        folder: the checkpoint.
        names: names of the files to fetch besides the manifests.
    """
    copy = paths.fetch(folder, [*names, checksums.NAME])
    added = copy / checksums.ADDED
    if copy != folder and not (added / checksums.NAME).exists():
        shutil.rmtree(added, ignore_errors=True)  # a killed process has not uploaded all of it
    return copy


def first_undamaged(
    directory: Path,
    candidates: Iterable[int],
    damaged: set[int],
    files: list[str] | None = None,
) -> int | None:
    """Verify checkpoints in the given order until one is undamaged.

    Args:
        directory: folder of the checkpoints.
        candidates: their steps.
        damaged: steps known to be damaged, which are skipped; newly found ones are reported on
            stderr and added.
        files: names of the files to verify; by default all of them.

    Returns:
        The step of the first undamaged checkpoint, or None.
    """
    for step in candidates:
        if step in damaged:
            continue
        copy = fetch(directory / str(step), files or ['*'])
        damage = checksums.find_damage(copy, files)
        if damage is None:
            return step
        damaged.add(step)
        warn(f'skipping damaged checkpoint {directory / str(step)}: {damage}')
    return None


def find(path: Path) -> pathlib.Path:
    """Return the folder on this machine of the verified checkpoint that a path stands for.

    Args:
        path: a checkpoint, or a folder of checkpoints or of a run. A folder stands for its best
            checkpoint or, without a best one, its newest undamaged checkpoint.

    Raises:
        UserError: there is no checkpoint, or all of them are damaged.
    """
    if (path / checksums.NAME).exists():
        damage = checksums.find_damage(copy := fetch(path))
        if damage:
            raise UserError(f'checkpoint {path} is damaged: {damage}; restore a copy')
        return copy
    for directory in (path, path / 'checkpoints'):
        if steps(directory):
            return fetch(directory / str(_best_or_newest(directory)))
    raise UserError(f'there is no checkpoint in {path}')


def _best_or_newest(directory: Path) -> int:
    newest = first_undamaged(directory, steps(directory), set())
    if newest is None:
        raise all_damaged(directory)
    folder = fetch(directory / str(newest), ['metadata.json'])
    best = best_step(read_metadata(folder), metadata_path(folder))
    if best is None or best == newest:
        return newest
    if first_undamaged(directory, [best], set()) is None:
        raise unusable(directory, best)
    return best


def all_damaged(directory: Path) -> UserError:
    """The error for a folder whose checkpoints are all damaged."""
    damaged = ', '.join(map(str, steps(directory)))
    return UserError(
        f'all checkpoints in {directory} are damaged: {damaged}; restore a copy of one, or remove '
        'them to start from scratch'
    )


def unusable(directory: Path, step: int) -> UserError:
    """The error for a best checkpoint that is damaged or missing."""
    others = ', '.join(str(other) for other in steps(directory) if other != step)
    return UserError(
        f'the best checkpoint, {directory / str(step)}, is damaged or missing; restore a copy, or '
        f'use another checkpoint in {directory}: {others or "none"}'
    )


def describe(arrays: Mapping[str, Array]) -> dict[str, str]:
    """Dtype and shape of every array, such as 'float32[768, 3072]'."""
    return {name: f'{array.dtype}{list(array.shape)}' for name, array in arrays.items()}


def read_description(folder: Path) -> dict[str, str]:
    """Read the description (see `describe`) of a checkpoint's arrays."""
    from bert_jax import schema

    path = folder / 'arrays.json'
    described: dict[str, str] = schema.convert(
        dict[str, str], read_json(path, limit=limits.LARGE_FILE), path
    )
    check_distinct(described, path)  # 'a' and 'a/b'
    return described


def shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return array name → its shape, by the description of a checkpoint's arrays.

    Raises:
        UserError: a description is not one.
    """
    found = {}
    for name, text in read_description(folder).items():
        if not (match := _DESCRIBED.fullmatch(text)):
            raise UserError(
                f'{folder / "arrays.json"}: {name[:80]!r} is {text[:40]!r}, expected a dtype and '
                'a shape, such as float32[768, 3072]'
            )
        found[name] = tuple(map(int, match[1].split(', '))) if match[1] else ()
    return found


def metadata_path(folder: Path) -> Path:
    """Return the file with the current metadata of a checkpoint."""
    added = folder / checksums.ADDED
    return (added if added.is_dir() else folder) / 'metadata.json'


def read_metadata(folder: Path) -> JsonRecord:
    """Read the current metadata of a checkpoint."""
    metadata: JsonRecord = read_json(metadata_path(folder), limit=limits.LARGE_FILE)
    return metadata


def add_metadata(folder: Path, metadata: JsonRecord) -> None:
    """Replace the metadata of a checkpoint; a kill leaves either the old or the new."""
    added = folder / checksums.ADDED
    unfinished = paths.local(added).with_name(f'{checksums.ADDED}.unfinished')
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    text = json.dumps(metadata, ensure_ascii=False) + '\n'
    (unfinished / 'metadata.json').write_text(text, encoding='utf-8')
    checksums.write(unfinished)
    paths.publish(unfinished, added, checksums.NAME)


def read_arrays(
    folder: pathlib.Path, wanted: dict[str, Tree], restore_args: Callable[[Tree], object]
) -> dict[str, Tree]:
    """Read arrays of a checkpoint.

    Args:
        folder: the checkpoint.
        wanted: array name → argument of `restore_args`, such as an abstract array.
        restore_args: makes the Orbax RestoreArgs of an array from its value in `wanted`.

    Returns:
        array name → array, in the order of `wanted`.

    Raises:
        UserError: what is stored is not what `arrays.json` describes, or more than its files.
    """
    _check_stored(folder, wanted)
    args = orbax().args.PyTreeRestore(
        item=wanted,
        restore_args={name: restore_args(leaf) for name, leaf in wanted.items()},
        partial_restore=True,
    )
    with orbax().PyTreeCheckpointer() as reader:
        arrays = reader.restore(folder / 'arrays', args=args)
    return {name: arrays[name] for name in wanted}


def _check_stored(folder: pathlib.Path, names: Iterable[str]) -> None:
    """Compare what arrays of a checkpoint take with its description and with its files.

    A store that lacks the values of an array has a few bytes whatever its shape says.
    """
    described = read_description(folder)
    with orbax().PyTreeCheckpointer() as reader:
        found = reader.metadata(folder / 'arrays').item_metadata
    stored = {name: found[name] for name in names if name in found}
    if missing := [name for name in names if name not in found]:
        raise UserError(
            f'checkpoint {folder} is damaged: {missing[0][:80]!r} in arrays.json is not in arrays/'
        )
    for name, text in describe(stored).items():
        if name in described and text != described[name]:
            raise UserError(
                f'checkpoint {folder} is damaged: {name} is {text}, but arrays.json has '
                f'{described[name]:.80}'
            )
    num_bytes = sum(math.prod(one.shape) * one.dtype.itemsize for one in stored.values())
    size = sum(file.stat().st_size for file in (folder / 'arrays').rglob('*') if file.is_file())
    if num_bytes > size:  # arrays are not compressed
        raise UserError(
            f'checkpoint {folder} is damaged: its arrays have {num_bytes:,} bytes, but its files '
            f'{size:,}'
        )


def check_arrays(folder: Path, wanted: dict[str, str]) -> None:
    """Raise UserError if the arrays of a checkpoint do not match a description."""
    stored = read_description(folder)
    differences = [
        f'{name} is {stored.get(name, "missing")} there and {wanted.get(name, "missing")} here'
        for name in {**wanted, **stored}  # parameters before the optimizer's, as in the state
        if stored.get(name) != wanted.get(name) and name not in OPTIONAL
    ]
    if differences:
        raise UserError(
            f'checkpoint {folder} belongs to another model or optimizer: '
            f'{"; ".join(differences[:3])} ({len(differences)} differences in total); '
            'choose another --config.workdir'
        )


def check_free_space(folder: pathlib.Path, num_bytes: int = 0) -> None:
    """Raise OSError if a folder's disk lacks space for arrays of `num_bytes` and small files.

    Orbax would fail halfway, and its event loop prints a traceback for every unfinished write.
    """
    required = SPACE_FACTOR * num_bytes + SPACE_CONSTANT
    if shutil.disk_usage(folder).free < required:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def make_writable(directory: pathlib.Path) -> None:
    """Create the folder of checkpoints; raise UserError if it cannot be written."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, 'permission denied or read-only')
    except OSError as error:
        raise UserError(
            f'checkpoints cannot be written to {directory}: {error.strerror}; choose another '
            '--config.workdir'
        ) from error

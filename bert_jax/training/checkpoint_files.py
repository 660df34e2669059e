"""The files of a checkpoint: where they are, whether they are undamaged, and what they hold.

A checkpoint is the folder DIRECTORY/STEP/ with

- `arrays/`: the arrays, as Orbax stores them;
- `arrays.json`: array name → dtype and shape;
- `metadata.json`: what the caller stored beside them;
- `manifest.sha256`: the digest of every other file, in the format of `sha256sum -c`;
- `added/`: later metadata that replace the first, with a manifest of their own.
"""

import functools
import json
import logging
import pathlib
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bert_jax.errors import UserError
from bert_jax.storage import paths
from bert_jax.training import checksums, older_versions

# Arrays that depend on a setting which may change (spike_factor): restored as 0 where missing.
OPTIONAL = ('usual_norm',)


@functools.cache
def orbax() -> Any:
    """Import Orbax on first use (0.3 s) and hide its log; it raises all errors."""
    import orbax.checkpoint

    logging.getLogger('absl').addFilter(lambda record: 'orbax' not in record.pathname)
    return orbax.checkpoint


def steps(directory: pathlib.Path) -> list[int]:
    """Steps of all checkpoints in a folder, newest first, damaged ones included."""
    names = [folder.name for folder in paths.finished(directory, checksums.NAME)]
    return sorted((int(name) for name in names if name.isdigit()), reverse=True)


def fetch(folder: pathlib.Path, names: Sequence[str] = ('*',)) -> pathlib.Path:
    """Return a checkpoint on this machine: the folder itself, or a copy of one in a bucket.

    Args:
      folder: the checkpoint.
      names: the files that are needed besides the manifests.
    """
    copy = paths.fetch(folder, [*names, checksums.NAME])
    added = copy / checksums.ADDED
    if paths.is_in_bucket(folder) and not (added / checksums.NAME).exists():
        shutil.rmtree(added, ignore_errors=True)  # of a process that was killed
    return copy


def first_undamaged(
    directory: pathlib.Path,
    candidates: Iterable[int],
    damaged: set[int],
    files: list[str] | None = None,
) -> int | None:
    """Verify checkpoints in the given order until one is undamaged.

    Args:
      directory: folder of the checkpoints.
      candidates: their steps.
      damaged: steps already known to be damaged, which are skipped; damage found here is reported
        on stderr and added.
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
        print(
            f'warning: skipping damaged checkpoint {directory / str(step)}: {damage}',
            file=sys.stderr,
        )
    return None


def find(path: pathlib.Path) -> pathlib.Path:
    """Return the verified checkpoint that a path stands for, on this machine.

    Args:
      path: a checkpoint, or a folder of checkpoints or of a run, whose best checkpoint is taken or,
        if it has none, the newest undamaged one.

    Raises:
      UserError: there is no checkpoint, or none that can be used.
    """
    if (path / checksums.NAME).exists():
        damage = checksums.find_damage(copy := fetch(path))
        if damage:
            raise UserError(f'checkpoint {path} is damaged: {damage}')
        return copy
    for directory in (path, path / 'checkpoints'):
        if steps(directory):
            return fetch(directory / str(_best_or_newest(directory)))
    raise UserError(f'there is no checkpoint in {path}')


def _best_or_newest(directory: pathlib.Path) -> int:
    newest = first_undamaged(directory, steps(directory), set())
    if newest is None:
        raise all_damaged(directory)
    best = best_step(read_metadata(fetch(directory / str(newest), ['metadata.json'])))
    if best is None or best == newest:
        return newest
    if first_undamaged(directory, [best], set()) is None:
        raise unusable(directory, best)
    return best


def best_step(metadata: dict) -> int | None:
    """Step of the best checkpoint so far, according to the metadata of a later one."""
    return metadata.get('best', {}).get('step')


def all_damaged(directory: pathlib.Path) -> UserError:
    """The error for a folder in which no checkpoint can be used."""
    found = ', '.join(map(str, steps(directory)))
    return UserError(
        f'all checkpoints in {directory} are damaged: {found}; restore a copy of one, or remove '
        'them to start from scratch'
    )


def unusable(directory: pathlib.Path, step: int) -> UserError:
    """The error for one requested checkpoint that is damaged or missing."""
    others = ', '.join(str(other) for other in steps(directory) if other != step)
    return UserError(
        f'the best checkpoint, {directory / str(step)}, is damaged or missing; restore a copy, or '
        f'name one of the others in {directory}: {others or "none"}'
    )


def describe(arrays: dict[str, Any]) -> dict[str, str]:
    """Dtype and shape of every array, such as 'float32[768, 3072]'."""
    return {name: f'{array.dtype}{list(array.shape)}' for name, array in arrays.items()}


def read_description(folder: pathlib.Path) -> dict[str, str]:
    """Read `describe` of the arrays in a checkpoint, under their current names."""
    return {
        older_versions.current_array(name): text
        for name, text in _read_json(folder / 'arrays.json').items()
    }


def read_metadata(folder: pathlib.Path) -> dict:
    """Read what the caller stored with a checkpoint, or added later."""
    added = folder / checksums.ADDED
    found = _read_json((added if added.is_dir() else folder) / 'metadata.json')
    return older_versions.current_metadata(found)


def add_metadata(folder: pathlib.Path, metadata: dict[str, Any]) -> None:
    """Add metadata to a checkpoint, which replace the first; complete or absent after a kill."""
    added = folder / checksums.ADDED
    unfinished = paths.local(added).with_name(f'{checksums.ADDED}.unfinished')
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    text = json.dumps(metadata, ensure_ascii=False) + '\n'
    (unfinished / 'metadata.json').write_text(text, encoding='utf-8')
    checksums.write(unfinished)
    paths.publish(unfinished, added, checksums.NAME)


def read_arrays(
    folder: pathlib.Path, wanted: dict[str, Any], restore_args: Callable[[Any], Any]
) -> dict[str, Any]:
    """Read arrays of a checkpoint.

    Args:
      folder: the checkpoint.
      wanted: array name → what describes it to `restore_args`.
      restore_args: makes the Orbax RestoreArgs of one array from its value in `wanted`.

    Returns:
      array name → array, in the order of `wanted`.
    """
    stored = {
        older_versions.current_array(name): name for name in _read_json(folder / 'arrays.json')
    }
    args = orbax().args.PyTreeRestore(
        item={stored[name]: leaf for name, leaf in wanted.items()},
        restore_args={stored[name]: restore_args(leaf) for name, leaf in wanted.items()},
        partial_restore=True,
    )
    with orbax().PyTreeCheckpointer() as reader:
        arrays = reader.restore(folder / 'arrays', args=args)
    return {name: arrays[stored[name]] for name in wanted}


def check_arrays(folder: pathlib.Path, wanted: dict[str, str]) -> None:
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


def _read_json(path: pathlib.Path) -> dict:
    return json.loads(path.read_text(encoding='utf-8'))

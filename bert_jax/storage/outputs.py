"""The rule for what commands write: an existing result is replaced only with --overwrite."""

import contextlib
import os
import pathlib
from collections.abc import Iterator, Sequence

from bert_jax.errors import UserError
from bert_jax.storage import paths, temporary

HELP = 'replace an existing result'


def is_stream(name: str | os.PathLike[str]) -> bool:
    """Whether a file is written as it is, without a temporary name: a device or a pipe.

    /dev/stdout may lead to a file that the shell has opened; renaming would replace the device.
    """
    path = paths.path(name)
    if paths.is_in_bucket(path) or path.is_dir():
        return False
    return str(path).startswith('/dev/') or (path.exists() and not path.is_file())


def check_file(name: str | os.PathLike[str], overwrite: bool) -> None:
    """Raise UserError if a file may not be written to --output because something is there."""
    path = paths.path(name)
    if path.is_dir():
        raise UserError(f'--output={name} is a folder; set a file')
    if is_stream(name):
        return
    if path.is_file() and not overwrite:
        raise UserError(f'--output={name} exists; add --overwrite to replace it')
    if not paths.is_in_bucket(path) and not path.parent.is_dir():
        raise UserError(f'--output={name} cannot be written: there is no folder {path.parent}')


def check_folder(name: str | os.PathLike[str], overwrite: bool, made: Sequence[str]) -> None:
    """Raise UserError if results may not be written to the folder --output.

    Args:
        name: the folder; missing or empty, it may be written.
        overwrite: whether earlier results of the same command may be replaced.
        made: patterns of files; a folder of earlier results has at least one of each.
    """
    path = paths.path(name)
    if path.exists() and not path.is_dir():
        raise UserError(f'--output={name} is a file; set a folder')
    if not path.exists() or not any(path.iterdir()):
        return
    if not overwrite:
        raise UserError(
            f'--output={name} exists; add --overwrite to replace it, or choose another folder'
        )
    if missing := [pattern for pattern in made if not any(path.glob(pattern))]:
        raise UserError(
            f'--output={name} has no {missing[0]}, so it was not made by this command; choose '
            'another folder'
        )


@contextlib.contextmanager
def replacing(path: pathlib.Path, marker: str) -> Iterator[pathlib.Path]:
    """Yield a free name for a new folder, which then replaces the folder at `path`.

    If the block fails, the old folder stays. In a bucket it is removed first, because buckets do
    not rename folders.

    Args:
        path: the folder; if it is missing or empty, its own name is yielded.
        marker: the file that marks a folder of this kind as complete.
    """
    if not path.exists() or not any(path.iterdir()):
        yield path
        return
    if paths.is_in_bucket(path):
        paths.retract(path, marker)
        yield path
        return
    try:
        with temporary.beside(path) as folder:
            yield folder / path.name
            put_in_place(folder / path.name, path)
    except OSError as error:
        raise UserError(f'--output={path} cannot be written: {error.strerror}') from error


def put_in_place(new: pathlib.Path, path: pathlib.Path) -> None:
    """Rename a folder to `path`; a folder that is already there moves beside `new`.

    Raises:
        OSError: The folder cannot be renamed. The old one is still at `path`.
    """
    old, replaces = new.with_name(f'{new.name}.old'), path.exists()
    if replaces:
        path.rename(old)
    try:
        new.rename(path)
    except OSError:
        if replaces:
            old.rename(path)
        raise

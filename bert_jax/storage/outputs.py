"""The rule for what commands write: an existing result is replaced only with --overwrite."""

import os
from collections.abc import Sequence

from bert_jax.errors import UserError
from bert_jax.storage import hub, paths, wrong_paths

HELP = 'replace an existing result'


def check_file(name: str | os.PathLike[str], overwrite: bool) -> None:
    """Raise UserError if a file may not be written to --output because something is there."""
    hub.check_not_written(name, '--output')
    path = paths.path(name)
    if path.is_dir():
        raise UserError(f'--output={name} is a folder; set a file')
    if paths.is_stream(name):
        return
    if path.is_file() and not overwrite:
        raise UserError(f'--output={name} exists; add --overwrite to replace it')
    if not paths.parent_exists(path):
        raise UserError(
            f'--output={name} cannot be written: there is no folder '
            f'{path.parent}{wrong_paths.suggest(path.parent, is_folder=True)}'
        )


def check_folder(name: str | os.PathLike[str], overwrite: bool, made: Sequence[str]) -> None:
    """Raise UserError if results may not be written to the folder --output.

    Args:
        name: the folder; missing or empty, it may be written.
        overwrite: whether earlier results of the same command may be replaced.
        made: patterns of files; a folder of earlier results has at least one of each.
    """
    hub.check_not_written(name, '--output')
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

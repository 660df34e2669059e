"""Checks that a disk can hold a checkpoint."""

import errno
import os
import pathlib
import shutil

from bert_jax.errors import UserError

# Required free space: 1.1 × array bytes + 256 KiB, for partly filled blocks, folders and indices.
SPACE_FACTOR, SPACE_CONSTANT = 1.1, 2**18


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

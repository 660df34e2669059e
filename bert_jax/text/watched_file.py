"""A memory-mapped file that must stay as it is while a run reads it."""

import os
import pathlib

from bert_jax.errors import UserError
from bert_jax.files import sha256


class WatchedFile:
    """A file with a known digest, which is compared again if the file seems to have changed.

    Reading a memory map beyond the end of a truncated file would kill the process by SIGBUS.
    """

    def __init__(self, path: pathlib.Path, digest: str):
        """Remember the state of the file.

        Args:
            path: The file, on a disk.
            digest: SHA-256 of its content.
        """
        self._path, self._digest = path, digest
        self._state = self._read_state()

    def check(self) -> None:
        """Raise UserError if the content of the file has changed; takes a microsecond or two."""
        state = self._read_state()
        if state == self._state:
            return
        if state is None or sha256(self._path) != self._digest:
            change = 'was removed' if state is None else 'has changed'
            raise UserError(
                f'{self._path} {change} while the run was reading it; restore the corpus and rerun '
                'the same command to resume'
            )
        self._state = state

    def _read_state(self) -> tuple[int, ...] | None:
        """Size, time of change and identity of the file; None if it is missing."""
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev

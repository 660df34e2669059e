"""Temporary folders, which a later process removes if the process that made one was killed.

The folder has a file with a known text, which its process keeps locked. Only a folder of this user
that has this file, unlocked, is removed: a folder that a user named alike is not.
"""

import atexit
import contextlib
import errno
import fcntl
import functools
import glob
import os
import pathlib
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterator

from bert_jax.storage.path import Path

_OWNER = '.bert_jax_owner'
_TEXT = b'A temporary folder of bert_jax, removed after the process that has locked this file.\n'
_LOCK = threading.Lock()


class TemporaryFolder:
    """A folder that exists until `remove`.

    Attributes:
        path: The folder; it has one file, which belongs to this class.
    """

    def __init__(self, parent: pathlib.Path, prefix: str, suffix: str = ''):
        """Create PREFIX…SUFFIX in a folder; remove those that killed processes have left there."""
        for path in parent.glob(f'{glob.escape(prefix)}*{suffix}'):
            with contextlib.suppress(OSError):
                _remove_if_abandoned(path)
        self.path = pathlib.Path(tempfile.mkdtemp(suffix, prefix, parent))
        self._owner = open(self.path / _OWNER, 'xb', buffering=0)  # noqa: SIM115  (the lock)
        with contextlib.suppress(OSError):  # without locks, the folder never counts as abandoned
            fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._owner.write(_TEXT)

    def remove(self) -> None:
        """Remove the folder with its contents."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._owner.close()


def scratch() -> pathlib.Path:
    """Return the folder on this machine that is removed when this process ends."""
    with _LOCK:  # without it, threads that ask first at the same time would get different folders
        return _make_scratch()


def is_scratch(path: Path) -> bool:
    """Whether a path is in that folder; does not make it."""
    return bool(_make_scratch.cache_info().currsize) and path.is_relative_to(_make_scratch())


@functools.cache
def _make_scratch() -> pathlib.Path:
    folder = TemporaryFolder(pathlib.Path(tempfile.gettempdir()), 'bert_jax-scratch-')
    atexit.register(folder.remove)
    return folder.path


@contextlib.contextmanager
def beside(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a new, empty folder on the disk of `target`, which is removed after the block.

    Args:
        target: The file or folder that the block makes; its folder is created if needed.
    """
    if target.parent.is_file():  # `mkdir` would say that it exists
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(target.parent))
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = TemporaryFolder(target.parent, f'.{target.name}-', '.partial')
    try:
        (folder.path / 'content').mkdir()  # with the permissions that a user expects
        yield folder.path / 'content'
    finally:
        folder.remove()


def _remove_if_abandoned(path: pathlib.Path) -> None:
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return
    number = os.open(path / _OWNER, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW)  # may be a pipe
    with os.fdopen(number, 'rb', buffering=0) as owner:
        is_file = stat.S_ISREG(os.fstat(number).st_mode)
        if is_file and owner.read(len(_TEXT) + 1) == _TEXT:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path)

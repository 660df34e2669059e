"""Locks between threads and processes, on all hosts that share a folder.

On a disk the kernel has the lock (`flock`, which NFS shares between hosts) and releases it when its
process ends, so no lock is ever stale. In buckets and on disks without locks, a lock is a lease.
"""

import contextlib
import datetime
import errno
import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from bert_jax.errors import report
from bert_jax.storage import paths
from bert_jax.storage.path import Path

if TYPE_CHECKING:
    from bert_jax.storage.leases import Lease

_POLL_SECONDS = 1.0  # between attempts to get a lock
_REPORT_SECONDS = 60.0  # between messages while waiting for a lock
_HOLDER = b'process '  # start of the content of a lock
_UNSUPPORTED = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)  # of disks without locks


class Lock:
    """A lock on a path, which is created if it does not exist and never removed."""

    def __init__(self, path: Path):
        """Describe the lock; it is not taken."""
        self.path = path
        self._held: FileLock | Lease | None = None

    def take(self) -> bool:
        """Take the lock until `release`; return False if it is taken on this disk.

        In a bucket and on a disk without locks, wait while another process holds the lock.

        Raises:
            OSError: The file cannot be written, or is not a regular file.
        """
        try:
            self._acquire(0, lambda: '')
        except Timeout:
            return False
        return True

    @contextlib.contextmanager
    def waited_for(self, progress: Callable[[], str]) -> Iterator[None]:
        """Hold the lock in the block, waiting while another process holds it.

        Args:
            progress: Describes what the holder has done so far, for the messages while waiting.

        Raises:
            OSError: The file cannot be written, or is not a regular file.
        """
        start, timeout = time.monotonic(), 0.0
        while True:
            try:
                self._acquire(timeout, progress)
                break
            except Timeout:
                timeout = _REPORT_SECONDS
                holder = self.path.read_text(errors='replace')[:1000] or 'another process'
                waited = time.monotonic() - start
                report(
                    f'waiting for the lock {self.path} of {holder}; {progress()}, '
                    f'waited {waited:.0f} s'
                )
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Let others take the lock; does nothing if this process does not hold it."""
        if self._held is not None:
            self._held.release()
            self._held = None

    def is_taken(self) -> bool:
        """Whether a process holds the lock on this disk; writes nothing."""
        if paths.is_in_bucket(self.path) or not self.path.is_file():
            return False
        try:
            _file_lock(self.path).acquire(timeout=0).lock.release()
        except Timeout:
            return True
        except OSError:
            return False
        return False

    def _acquire(self, timeout: float, progress: Callable[[], str]) -> None:
        """Take the lock. Raises Timeout if another process holds it for `timeout` seconds."""
        if not paths.is_in_bucket(self.path):
            if self.path.exists() and not self.path.is_file():  # opening a pipe may block
                raise OSError(errno.EINVAL, 'it is not a regular file', str(self.path))
            held = _file_lock(self.path, on_acquired=_sign)
            try:
                held.acquire(timeout=timeout, poll_interval=_POLL_SECONDS)
                self._held = held
                return
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
        from bert_jax.storage.leases import Lease

        lease = Lease(self.path)
        lease.acquire(progress)
        self._held = lease


def _file_lock(path: Path, on_acquired: Callable[[int], None] | None = None) -> FileLock:
    return FileLock(path, thread_local=False, fallback_to_soft=False, on_acquired=on_acquired)


def _sign(file: int) -> None:
    """Write the holder of a lock to its file, unless the file has the content of somebody else."""
    content = os.pread(file, 1000, 0)
    if not content or content.startswith(_HOLDER):
        now = datetime.datetime.now().isoformat(' ', 'seconds')
        os.ftruncate(file, 0)
        os.pwrite(file, _HOLDER + f'{os.getpid()} on {socket.gethostname()}, {now}'.encode(), 0)

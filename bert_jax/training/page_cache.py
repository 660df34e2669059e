"""Keeps what a save writes out of the page cache, the memory in which the kernel holds files.

No one reads a checkpoint soon, and its pages drive out those of the corpus. In a virtual machine
that gives free memory back to its host they are dear besides: each is new memory, whose first touch
costs ten times the copying (experiments/benchmarks/saving.md).
"""

import contextlib
import io
import os
import pathlib
import threading

_PERIOD = 0.01  # seconds, in which 10 MB are written at 1 GB/s


@contextlib.contextmanager
def spared(folder: pathlib.Path):
    """While this is open, what is written of the files below `folder` soon leaves the cache, and at
    its end all that is on the disk; what is read again comes from the disk. Does nothing where the
    system cannot (macOS).
    """
    if not hasattr(os, 'posix_fadvise'):
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_drop_until, args=(ended, folder))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class ReadOnce(io.FileIO):
    """A file whose pages leave the cache as `readinto` (which hashlib calls) goes on, so that the
    next ones take their place: 1.3 GB from the disk take .13 s of system time instead of .9.
    """

    def readinto(self, buffer) -> int:
        if hasattr(os, 'posix_fadvise'):
            os.posix_fadvise(self.fileno(), 0, self.tell(), os.POSIX_FADV_DONTNEED)
        return super().readinto(buffer)


def _drop_until(ended: threading.Event, folder: pathlib.Path):
    while not ended.wait(_PERIOD):
        _drop(folder)
    _drop(folder)


def _drop(folder: pathlib.Path):
    """Forgets the pages that are on the disk and has the others written."""
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError), open(os.path.join(place, name), 'rb') as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

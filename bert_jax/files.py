"""Hashing, writing, flushing and locking files."""

import collections
import contextlib
import datetime
import errno
import fcntl
import hashlib
import json
import os
import pathlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from bert_jax.errors import UserError, report, writing
from bert_jax.storage import leases, outputs, paths, temporary
from bert_jax.storage.bucket import BucketPath
from bert_jax.storage.paths import open_binary, sync

_POLL_SECONDS = 1.0  # between attempts to get a lock
_REPORT_SECONDS = 60.0  # between messages while waiting for a lock
_HOLDER = b'process '  # start of the content of a lock

# Path of a lock → lock between the threads of this process: POSIX locks only exclude processes.
_thread_locks: dict[str, threading.Lock] = collections.defaultdict(threading.Lock)


def sha256(path: pathlib.Path) -> str:
    """Return the SHA-256 of a file's contents, in hexadecimal."""
    with open_binary(path) as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


def parse_json(text: str | bytes) -> Any:
    """Parse JSON from a file of anybody; nesting that is too deep is a ValueError as well."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError('it is nested too deeply') from None


def read_json(path: pathlib.Path, kind: type = dict, default: Any = None) -> Any:
    """Read a JSON file and check the type of its value.

    Args:
        path: The file.
        kind: Expected type: dict or list.
        default: Returned if the file does not exist; if None, a missing file is an error.

    Raises:
        UserError: The file cannot be read, is not valid JSON, or holds a value of another type.
    """
    try:
        value = parse_json(path.read_text(encoding='utf-8'))
    except OSError as error:
        if default is not None and isinstance(error, FileNotFoundError):
            return default
        raise UserError(f'{path}: {error.strerror}') from error
    except ValueError as error:
        raise UserError(f'{path} is not valid JSON: {error}') from None
    if not isinstance(value, kind):
        wanted = 'an object' if kind is dict else 'a list'
        raise UserError(f'{path}: expected {wanted}, not {value!r:.40}')
    return value


def write_json(path: pathlib.Path, value: Any, indent: int | None = 2) -> None:
    """Write a JSON file atomically.

    Surrogates, which stand for undecodable bytes of file names, become JSON escapes.
    """
    write_text(path, json.dumps(value, indent=indent, ensure_ascii=False) + '\n')


def write_text(path: pathlib.Path, text: str) -> None:
    """Write a text file atomically, in UTF-8; surrogates become escapes."""
    with new_file(path) as partial:
        partial.write_text(text, encoding='utf-8', errors='backslashreplace')


@contextlib.contextmanager
def new_file(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a name for a file that the block writes, which replaces `path` if it succeeds.

    A device or a pipe is yielded itself.
    """
    if outputs.is_stream(path):
        yield path
        return
    with temporary.beside(paths.local(path)) as folder:
        yield folder / path.name
        sync(folder / path.name)
        paths.publish(folder / path.name, path)


@contextlib.contextmanager
def new_folder(
    path: pathlib.Path, marker: str = 'config.json', overwrite: bool = False
) -> Iterator[pathlib.Path]:
    """Create a folder under a temporary name that becomes `path` if the block succeeds.

    Args:
        path: the folder, on a disk or in a bucket.
        marker: the file that marks the folder as complete; in a bucket it is uploaded last.
        overwrite: replace a folder that is there, after the block has written the new one.

    Raises:
        UserError: `path` exists and may not be replaced, or the folder cannot be written.
    """
    _check_is_new(path, overwrite)
    with writing(path), temporary.beside(paths.local(path)) as partial:
        yield partial
        with contextlib.ExitStack() as stack:
            if isinstance(path, BucketPath):  # where files of two processes could mix
                lock = path.with_name(f'.{path.name}.lock')
                stack.enter_context(locked(lock, lambda: f'it writes {path}'))
            _check_is_new(path, overwrite)
            if path.exists() and not isinstance(path, BucketPath):
                _exchange(partial, path)
            else:
                paths.retract(path, marker)  # buckets do not rename folders
                paths.publish(partial, path, marker)


def _check_is_new(path: pathlib.Path, overwrite: bool) -> None:
    if path.exists() and (not path.is_dir() or (any(path.iterdir()) and not overwrite)):
        raise UserError(f'{path} already exists; choose another folder or remove it')


def _exchange(new: pathlib.Path, path: pathlib.Path) -> None:
    """Rename a folder to `path`; the folder that is there moves beside `new`."""
    old = path.rename(new.with_name(f'{new.name}.old'))
    try:
        new.rename(path)
    except OSError:
        old.rename(path)
        raise


@contextlib.contextmanager
def locked(path: pathlib.Path, progress: Callable[[], str]) -> Iterator[None]:
    """Hold a lock on a file, waiting while another process on any host holds it.

    The lock is a POSIX record lock or, in buckets and on file systems without locks, a lease.

    Args:
        path: File to lock; created if it does not exist.
        progress: Describes what the holder has done so far, for the messages while waiting.

    Raises:
        OSError: The file cannot be written.
    """
    with contextlib.ExitStack() as stack:
        try:
            if isinstance(path, BucketPath):
                raise _LocksUnsupported
            stack.enter_context(_record_locked(path, progress))
        except _LocksUnsupported:
            stack.enter_context(leases.held(path, progress))
        yield


class _LocksUnsupported(Exception):
    """The file system does not support locks."""


@contextlib.contextmanager
def _record_locked(path: pathlib.Path, progress: Callable[[], str]) -> Iterator[None]:
    """Hold a POSIX record lock.

    NFS shares the lock between hosts, and the kernel releases it when the process ends, so the
    lock is never stale. The file is never removed: a process waiting for the removed file and a
    process creating a new file would both get the lock.
    """
    with _thread_locks[os.path.realpath(path)], temporary.open_lock(path) as opened:
        file = opened.fileno()  # closing it releases the lock
        _wait_for_lock(file, path, progress)
        content = os.pread(file, 1000, 0)
        if not content or content.startswith(_HOLDER):  # else the file is not ours
            now = datetime.datetime.now().isoformat(' ', 'seconds')
            holder = f'{os.getpid()} on {socket.gethostname()}, {now}'
            os.ftruncate(file, 0)
            os.pwrite(file, _HOLDER + holder.encode(), 0)
        yield


def _wait_for_lock(file: int, path: pathlib.Path, progress: Callable[[], str]) -> None:
    start = time.monotonic()
    next_report = start
    while not _try_lock(file):
        if time.monotonic() >= next_report:
            holder = os.pread(file, 1000, 0).decode(errors='replace')
            report(
                f'waiting for the lock {path} of {holder or "another process"}; {progress()}, '
                f'waited {time.monotonic() - start:.0f} s'
            )
            next_report += _REPORT_SECONDS
        time.sleep(_POLL_SECONDS)


def _try_lock(file: int) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise _LocksUnsupported from error
    return True

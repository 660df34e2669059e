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
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from bert_jax.errors import UserError
from bert_jax.storage import leases, paths
from bert_jax.storage.paths import BucketPath, open_binary, sync

_POLL_SECONDS = 1.0  # between attempts to get a lock
_REPORT_SECONDS = 60.0  # between messages while waiting for a lock

# Path of a lock → lock between the threads of this process: POSIX locks only exclude processes.
_thread_locks: dict[str, threading.Lock] = collections.defaultdict(threading.Lock)


def sha256(path: pathlib.Path) -> str:
    """Return the SHA-256 of a file's contents, in hexadecimal."""
    with open_binary(path) as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


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
        value = json.loads(path.read_text(encoding='utf-8'))
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
    temporary = path.with_suffix('.tmp')
    text = json.dumps(value, indent=indent, ensure_ascii=False) + '\n'
    temporary.write_text(text, encoding='utf-8', errors='backslashreplace')
    sync(temporary)
    os.replace(temporary, path)


@contextlib.contextmanager
def new_folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Create a folder under a temporary name that is renamed to `path` if the block succeeds.

    For a path in a bucket the folder is uploaded, config.json last: a folder without config.json
    is not a model.

    Raises:
        UserError: `path` exists and is not an empty folder, or the folder cannot be written.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f'{path} already exists; choose another folder or remove it')
    partial = paths.local(path).with_name(path.name + '.partial')
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        paths.publish(partial, path, 'config.json')
    except OSError as error:
        raise UserError(f'{path} cannot be written: {error.strerror}') from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


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
    with _thread_locks[os.path.realpath(path)]:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _wait_for_lock(file, path, progress)
            now = datetime.datetime.now().isoformat(' ', 'seconds')
            os.ftruncate(file, 0)
            os.pwrite(file, f'process {os.getpid()} on {socket.gethostname()}, {now}'.encode(), 0)
            yield
        finally:
            os.close(file)  # releases the lock


def _wait_for_lock(file: int, path: pathlib.Path, progress: Callable[[], str]) -> None:
    start = time.monotonic()
    next_report = start
    while not _try_lock(file):
        if time.monotonic() >= next_report:
            holder = os.pread(file, 1000, 0).decode(errors='replace')
            print(
                f'waiting for the lock {path} of {holder or "another process"}; {progress()}, '
                f'waited {time.monotonic() - start:.0f} s',
                file=sys.stderr,
                flush=True,
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

"""Hashing, reading and writing files."""

import contextlib
import hashlib
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from bert_jax import limits
from bert_jax.errors import UserError, writing
from bert_jax.storage import paths, temporary
from bert_jax.storage.disk_folder import sync
from bert_jax.storage.locks import Lock
from bert_jax.storage.path import Path
from bert_jax.storage.paths import open_binary


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's contents, in hexadecimal."""
    with open_binary(path) as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


def read_bytes(path: Path, limit: int = limits.SMALL_FILE) -> bytes:
    """Read a whole file that may come from anybody, and not more than `limit` bytes of it.

    Raises:
        UserError: The file has more bytes.
        OSError: It cannot be read, or is not a file.
    """
    content = paths.read_up_to(path, limit)
    if content is None:
        raise UserError(f'{path} has more than {limit:,} bytes, the limit for a file of its kind')
    return content


def read_text(
    path: Path, encoding: str = 'utf-8', errors: str = 'strict', limit: int = limits.SMALL_FILE
) -> str:
    """Read a whole text file that may come from anybody; see `read_bytes`.

    Line ends become line feeds, as `pathlib.Path.read_text` has them.

    Raises:
        UserError: The file is not text in this encoding, or as `read_bytes` does.
    """
    try:
        text = read_bytes(path, limit).decode(encoding, errors)
    except UnicodeDecodeError as error:
        raise UserError(f'{path} is not UTF-8 text: {error}') from None
    return text.replace('\r\n', '\n').replace('\r', '\n') if '\r' in text else text


def parse_json(text: str) -> Any:
    """Parse JSON from a file of anybody.

    Raises:
        ValueError: It is not JSON, is nested too deeply, or has too many objects and lists, each of
            which takes far more memory than its two characters.
    """
    if text.count('[') + text.count('{') > limits.JSON_CONTAINERS:
        raise ValueError(f'it has more than {limits.JSON_CONTAINERS:,} objects and lists')
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError('it is nested too deeply') from None


def read_json(
    path: Path, kind: type = dict, default: Any = None, limit: int = limits.SMALL_FILE
) -> Any:
    """Read a JSON file and check the type of its value.

    Args:
        path: The file.
        kind: Expected type: dict or list.
        default: Returned if the file does not exist; if None, a missing file is an error.
        limit: Largest size of the file in bytes.

    Raises:
        UserError: The file cannot be read, is too large, is not valid JSON, or holds a value of
            another type.
    """
    try:
        value = parse_json(read_text(path, limit=limit))
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


def write_json(path: Path, value: Any, indent: int | None = 2) -> None:
    """Write a JSON file atomically.

    Surrogates, which stand for undecodable bytes of file names, become JSON escapes.
    """
    write_text(path, json.dumps(value, indent=indent, ensure_ascii=False) + '\n')


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, in UTF-8; surrogates become escapes."""
    with new_file(path) as partial:
        partial.write_text(text, encoding='utf-8', errors='backslashreplace')


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[pathlib.Path]:
    """Yield a name for a file that the block writes, which replaces `path` if it succeeds.

    A device or a pipe is yielded itself.
    """
    if paths.is_stream(path):
        yield pathlib.Path(path)
        return
    with temporary.beside(paths.local(path)) as folder:
        yield folder / path.name
        sync(folder / path.name)
        paths.publish(folder / path.name, path)


@contextlib.contextmanager
def new_folder(
    path: Path, marker: str = 'config.json', overwrite: bool = False
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
            if not paths.renames(path):  # files of two processes could mix
                lock = path.with_name(f'.{path.name}.lock')
                stack.enter_context(Lock(lock).waited_for(lambda: f'it writes {path}'))
            _check_is_new(path, overwrite)
            paths.replace(partial, path, marker)


def _check_is_new(path: Path, overwrite: bool) -> None:
    if path.exists() and (not path.is_dir() or (any(path.iterdir()) and not overwrite)):
        raise UserError(f'{path} already exists; choose another folder or remove it')


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

"""Paths in buckets (gs://, s3://) with the methods of pathlib.Path that this project uses.

Paths are written as in etils.epath. Requests go through fsspec to gcsfs or s3fs, which are
optional; epath itself would prefer TensorFlow, which has no s3. A request that fails temporarily is
repeated; a permanent failure is an OSError with a one-line message.
"""

import contextlib
import errno
import functools
import io
import logging
import os
import pathlib
import random
import time
import uuid
from collections.abc import Callable, Iterator
from typing import IO, Any, Self, TypeVar, cast

# Otherwise gcsfs asks Google about the kind of a bucket before each request.
os.environ.setdefault('GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT', 'false')

from etils.epath.gpath import PosixGPath

from bert_jax.errors import UserError
from bert_jax.storage import names
from bert_jax.storage.path import BucketError, Status
from bert_jax.types import JsonObject

PACKAGES = {'gs': 'gcsfs', 's3': 's3fs'}  # scheme → package
ATTEMPTS = 6  # for each request, in addition to the retries of gcsfs and s3fs
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0  # seconds between attempts
_READ_BYTES = 2**22  # smallest range that a stream reads, unless the file ends
# Exceptions that answer a request and are not failures → errno.
_ANSWERS: dict[type[OSError], int] = {
    FileNotFoundError: errno.ENOENT,
    FileExistsError: errno.EEXIST,
    IsADirectoryError: errno.EISDIR,
}

_Value = TypeVar('_Value')


class BucketPath(PosixGPath):  # type: ignore[misc]  # etils ships no types
    """A file in a bucket, or a folder: a prefix of the names of files.

    Folders need not be created. Listings are never cached, because other hosts change them.
    """

    def is_file(self) -> bool:
        return bool(self._call('isfile', str(self)))

    def is_dir(self) -> bool:
        return bool(self._call('isdir', str(self)))

    def exists(self) -> bool:
        return bool(self._call('exists', str(self)))

    def stat(self) -> Status:
        return _status(self._call('info', str(self)))

    def iterdir(self) -> Iterator[Self]:
        keys = self._call('ls', str(self), detail=False)
        return iter(self._paths(key.removesuffix('/') for key in keys))

    def glob(self, pattern: str) -> Iterator[Self]:
        return iter(self._paths(self._call('glob', f'{self}/{pattern}')))

    def matches(self) -> list[Self]:
        """Return the files that match this path as a pattern; '**' is recursive."""
        infos = self._call('glob', str(self), detail=True)
        return self._paths(name for name, info in infos.items() if info['type'] == 'file')

    def rglob(self, pattern: str = '*') -> Iterator[Self]:
        """Iterate over the files below a folder; folders are not listed."""
        return (path for path in self.files() if path.match(pattern))

    def files(self) -> dict[Self, Status]:
        """Return all files below a folder.

        Raises:
            UserError: A name is not of a file below the folder; see `names.check`.
        """
        infos = {
            name: info
            for name, info in self._call('find', str(self), detail=True).items()
            if info['size'] or not name.endswith('/')  # an empty folder
        }
        return dict(zip(self._paths(infos), map(_status, infos.values()), strict=True))

    def _paths(self, keys: Any) -> list[Self]:
        """The paths of keys. Raises UserError for a key that cannot be the name of a file."""
        return [self._new(f'{self._uri_scheme}://{names.check(key, self)}') for key in keys]

    def absolute(self) -> Self:
        return self

    def resolve(self, strict: bool = False) -> Self:
        """Return the path without '..'."""
        scheme, _, name = str(self).partition('://')
        resolved: Self = self._new(f'{scheme}://{os.path.normpath(name)}')
        return resolved

    def mkdir(self, *_: Any, **__: Any) -> None:
        """Do nothing: folders exist with their files."""

    def read_range(self, start: int, stop: int) -> bytes:
        """Read a part of a file."""
        data: bytes = self._call('cat_file', str(self), start=start, end=stop)
        if len(data) != stop - start:
            raise BucketError(errno.EIO, f'{len(data)} bytes instead of {stop - start}', str(self))
        return data

    def read_head(self, length: int) -> bytes:
        """Read the first bytes of a file, or all of a shorter one."""
        data: bytes = self._call('cat_file', str(self), start=0, end=length)
        return data

    def read_bytes(self) -> bytes:
        data: bytes = self._call('cat_file', str(self))
        return data

    def read_text(self, encoding: str | None = 'utf-8', errors: str | None = None) -> str:
        return self.read_bytes().decode(encoding or 'utf-8', errors or 'strict')

    def write_bytes(self, data: bytes) -> int:
        self._call('pipe_file', str(self), data)
        return len(data)

    def write_text(
        self, text: str, encoding: str | None = 'utf-8', errors: str | None = None
    ) -> int:
        return self.write_bytes(text.encode(encoding or 'utf-8', errors or 'strict'))

    def create(self, data: bytes) -> None:
        """Write a new file; raise FileExistsError if it exists. At most one process succeeds."""
        try:
            self._call('pipe_file', str(self), data, mode='create')
        except FileExistsError:
            # The response to an earlier attempt that succeeded may have been lost.
            if self.read_bytes() != data:
                raise

    def upload(self, file: pathlib.Path) -> None:
        """Write the contents of a file on this machine."""
        if file.stat().st_size:
            self._call('put_file', str(file), str(self))
        else:
            self.write_bytes(b'')

    def download(self, file: pathlib.Path) -> None:
        """Copy this file to `file` on this machine, whose folder exists."""
        size = self.stat().st_size
        partial = file.with_name(f'.{uuid.uuid4().hex}.partial')  # not the name of another key
        try:
            self._call('get_file', str(self), str(partial))
            if (read := partial.stat().st_size) != size:
                raise BucketError(errno.EIO, f'{read:,} of {size:,} bytes could be read', str(self))
            os.replace(partial, file)
        finally:
            partial.unlink(missing_ok=True)

    def unlink(self, missing_ok: bool = False) -> None:
        with contextlib.suppress(*([FileNotFoundError] if missing_ok else [])):
            self._call('rm_file', str(self))

    def rmtree(self, missing_ok: bool = True) -> None:
        for path in self.files():
            path.unlink(missing_ok=True)

    def open(self, mode: str = 'rb', **_: Any) -> IO[Any]:
        """Open a file to read its bytes; it can be written with `write_bytes` and `upload`."""
        if mode != 'rb':
            raise ValueError(f'{self} cannot be opened with mode {mode!r}')
        return io.BufferedReader(_Stream(self))

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the fsspec file system; repeat it if it fails temporarily."""
        scheme = cast(str, self._uri_scheme)
        return _repeat(lambda: getattr(_file_system(scheme), method)(*args, **kwargs), self)


class _Stream(io.RawIOBase):
    """The bytes of a file, read in ranges of at least `_READ_BYTES`."""

    def __init__(self, path: BucketPath):
        self._path, self._size, self._position = path, path.stat().st_size, 0
        self._start, self._block = 0, b''  # the last range
        self.name = str(path)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        if self._position >= self._size:
            return 0
        if not self._start <= self._position < self._start + len(self._block):
            stop = min(self._position + max(len(buffer), _READ_BYTES), self._size)
            self._start, self._block = self._position, self._path.read_range(self._position, stop)
        first = self._position - self._start
        data = memoryview(self._block)[first : first + len(buffer)]
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


def _status(info: JsonObject) -> Status:
    changed = info.get('mtime') or info.get('LastModified')
    return Status(int(info['size'] or 0), int(changed.timestamp() * 1e9) if changed else 0)


@functools.cache
def _file_system(scheme: str) -> Any:
    """The file system of fsspec; raises UserError if its package is not installed."""
    import fsspec

    for name in ('gcsfs', 's3fs'):  # failures are raised; the logs would show tracebacks
        logging.getLogger(name).setLevel(logging.CRITICAL)
    fsspec.config.conf.setdefault(scheme, {}).setdefault('use_listings_cache', False)
    try:
        return fsspec.filesystem(scheme, use_listings_cache=False)
    except ImportError as error:
        package = PACKAGES[scheme]
        raise UserError(f'{scheme}:// needs {package} ({error}): pip install {package}') from None


def _repeat(request: Callable[[], _Value], path: BucketPath) -> _Value:
    """Make a request until it succeeds, for a minute or two.

    Raises:
        BucketError: The request failed permanently, or ATTEMPTS times.
        OSError: One of _ANSWERS.
    """
    wait = _FIRST_WAIT
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return request()
        except UserError:
            raise
        except tuple(_ANSWERS) as error:
            number = _ANSWERS[type(error)]
            raise type(error)(number, os.strerror(number), str(path)) from error
        except Exception as error:  # the client libraries raise many kinds
            if attempt == ATTEMPTS or _is_refusal(error):
                text = ' '.join(str(error).split()) or type(error).__name__
                raise BucketError(errno.EIO, text[:300], str(path)) from error
        time.sleep(wait * random.uniform(0.5, 1.5))
        wait = min(2 * wait, _LONGEST_WAIT)
    raise AssertionError('unreachable')


def _is_refusal(error: Exception) -> bool:
    """Whether repeating a request is useless: missing credentials, forbidden, malformed."""
    if isinstance(error, PermissionError):
        return True
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if kinds & {'NoCredentialsError', 'ParamValidationError', 'DefaultCredentialsError'}:
        return True
    code = str(getattr(error, 'code', ''))
    return code in ('400', '401', '403') or str(error).startswith('Forbidden')

"""Arrays in buckets, read in blocks that are cached on a local disk.

A block is a file with a checksum, so that later processes can use it, even if the process that
wrote it was killed. The least recently used blocks are removed when the cache is full.
"""

import atexit
import collections
import concurrent.futures
import contextlib
import functools
import hashlib
import io
import math
import os
import pathlib
import tempfile
import threading
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from filelock import FileLock

from bert_jax.errors import UserError
from bert_jax.storage import names, temporary
from bert_jax.storage.bucket import BucketPath

BLOCK_BYTES = 2**22
_CHECKSUM_BYTES = 4
_READERS = 16  # simultaneous downloads
_HEADER_BYTES = 2**10  # upper bound of the header of a .npy file

# NumPy parses the header of an .npy file with `ast`, which raises a SystemError now and then if
# several threads use it (python/cpython#106905).
npy_header_lock = threading.Lock()

_Key = tuple[str, int]  # name of a file in the cache, number of the block
_Claim: TypeAlias = FileLock | temporary.TemporaryFolder


class BlockCache:
    """A folder of blocks for one process; a second process gets a temporary folder."""

    def __init__(self, folder: pathlib.Path, max_bytes: int, claim: '_Claim'):
        """Hold an empty cache; `claim` keeps the folder for this process."""
        self._folder, self._max_bytes, self._claim = folder, max_bytes, claim
        self._bytes = 0
        self._lock = threading.Lock()
        self._pool = concurrent.futures.ThreadPoolExecutor(_READERS)
        # Least recently used first. None stands for an unverified block of an earlier process.
        self._blocks: collections.OrderedDict[_Key, np.ndarray | None] = collections.OrderedDict()
        self._sizes: dict[_Key, int] = {}
        self._pending: dict[_Key, concurrent.futures.Future[np.ndarray]] = {}

    @classmethod
    def open(cls, folder: str | os.PathLike[str], max_bytes: int) -> 'BlockCache':
        """Open a folder, which is created if needed, with the blocks of earlier processes.

        Args:
            folder: The folder.
            max_bytes: Total size of its files; at least one block.
        """
        claimed, claim = _claim(pathlib.Path(folder).expanduser())
        cache = cls(claimed, max_bytes, claim)
        cache._find_earlier()
        return cache

    def blocks(self, array: 'BlockArray', numbers: list[int]) -> list[np.ndarray]:
        """Return blocks of an array, each uint8 [bytes]; missing blocks are read concurrently."""
        with self._lock:
            results = [self._find(array, number) for number in numbers]
        try:
            return [
                block.result() if isinstance(block, concurrent.futures.Future) else block
                for block in results
            ]
        except OSError as error:
            raise UserError(f'cannot read {error.filename}: {error.strerror}') from error

    def _find(self, array: 'BlockArray', number: int) -> Any:
        """A block, or the future of a block that is being read."""
        key = array.name, number
        block = self._blocks.get(key)
        if block is not None:
            self._blocks.move_to_end(key)
            return block
        if key not in self._pending:
            self._pending[key] = self._pool.submit(self._read, array, key)
        return self._pending[key]

    def _read(self, array: 'BlockArray', key: _Key) -> np.ndarray:
        """Verify the block on disk, or read it from the bucket and cache it if possible."""
        try:
            block = _open_verified(self._file(key)) if key in self._blocks else None
            if block is None:
                data = array.read_block(key[1])
                block = np.frombuffer(data, np.uint8)
                with contextlib.suppress(OSError):  # the disk is full
                    block = self._write(key, data)
            with self._lock:
                self._keep(key, block)
            return block
        finally:
            with self._lock:
                del self._pending[key]

    def _write(self, key: _Key, data: bytes) -> np.ndarray:
        file = self._file(key)
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix('.partial')
        try:
            partial.write_bytes(data + _checksum(data))
            partial.rename(file)
        finally:
            partial.unlink(missing_ok=True)
        return _map(file)

    def _keep(self, key: _Key, block: np.ndarray | None) -> None:
        if not self._file(key).exists():
            return
        size = self._file(key).stat().st_size
        self._bytes += size - self._sizes.get(key, 0)
        self._sizes[key] = size
        self._blocks[key] = block
        self._blocks.move_to_end(key)
        while self._bytes > self._max_bytes and len(self._blocks) > 1:
            oldest, _ = self._blocks.popitem(last=False)
            self._bytes -= self._sizes.pop(oldest)
            self._file(oldest).unlink(missing_ok=True)  # a memory map keeps its contents

    def _find_earlier(self) -> None:
        times_and_keys = []
        for file in self._folder.glob('*/*.block'):
            if not names.is_digest(file.parent.name):  # not ours
                continue
            with contextlib.suppress(ValueError):
                times_and_keys.append((file.stat().st_mtime, (file.parent.name, int(file.stem))))
        for _, key in sorted(times_and_keys):
            self._keep(key, None)

    def _file(self, key: _Key) -> pathlib.Path:
        return self._folder / key[0] / f'{key[1]}.block'


class BlockArray:
    """A one-dimensional array in a .npy file of a bucket, with the NumPy methods that we use."""

    def __init__(self, path: BucketPath, name: str, header: '_Header', cache: BlockCache):
        """Hold what is known of the file.

        Args:
            path: The file.
            name: Name of the file in the cache, a SHA-256 that identifies its contents.
            header: The header of the file.
            cache: The cache of its blocks.
        """
        self.name, self._path, self._cache = name, path, cache
        self._length, self.dtype, self._offset = header
        self._per_block = BLOCK_BYTES // self.dtype.itemsize

    def __len__(self) -> int:
        return self._length

    def read_block(self, number: int) -> bytes:
        """Read a block from the bucket."""
        size = self.dtype.itemsize
        start, stop = number * self._per_block, min((number + 1) * self._per_block, self._length)
        return self._path.read_range(self._offset + start * size, self._offset + stop * size)

    def view(self, kind: type) -> 'BlockArray':
        """Return the array itself; `view(np.ndarray)` makes a memory map a plain array."""
        return self

    def take(self, index_N: np.ndarray) -> np.ndarray:
        """Return the values at these indices, in any order."""
        flat_N = np.asarray(index_N).reshape(-1)
        if np.any(flat_N[1:] < flat_N[:-1]):
            order_N = np.argsort(flat_N, kind='stable')
            values_N = np.empty(len(flat_N), self.dtype)
            values_N[order_N] = self._take_sorted(flat_N[order_N])
        else:
            values_N = self._take_sorted(flat_N)
        return values_N.reshape(np.shape(index_N))

    def _take_sorted(self, index_N: np.ndarray) -> np.ndarray:
        if not len(index_N):
            return np.empty(0, self.dtype)
        first, last = index_N[0] // self._per_block, index_N[-1] // self._per_block
        if first == last:
            return np.asarray(self._blocks([first])[0].take(index_N - first * self._per_block))
        edges = index_N.searchsorted(np.arange(first, last + 2) * self._per_block)
        ranks = np.flatnonzero(np.diff(edges))
        values_N = np.empty(len(index_N), self.dtype)
        for rank, block in zip(ranks, self._blocks(first + ranks), strict=True):
            part = slice(edges[rank], edges[rank + 1])
            values_N[part] = block.take(index_N[part] - (first + rank) * self._per_block)
        return values_N

    def __getitem__(self, index: Any) -> Any:
        """Return the values of a slice or of indices (array) as an array, or a single value."""
        if isinstance(index, slice):
            return self.take(np.arange(self._length)[index])
        index = np.asarray(index)
        return self.take(np.where(index < 0, index + self._length, index))[()]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.concatenate([*self._blocks(range(self._num_blocks)), np.empty(0, self.dtype)])

    def searchsorted(self, value_N: np.ndarray) -> np.ndarray:
        """Return where values belong in this sorted array, as numpy.searchsorted."""
        value_N = np.asarray(value_N)
        number_N = np.maximum(self._first_values.searchsorted(value_N) - 1, 0)
        result_N = np.empty(value_N.shape, np.int64)
        numbers = np.unique(number_N)
        for number, block in zip(numbers, self._blocks(numbers), strict=True):
            in_block_N = number_N == number
            positions = block.searchsorted(value_N[in_block_N])
            result_N[in_block_N] = positions + number * self._per_block
        return result_N

    @property
    def _num_blocks(self) -> int:
        return math.ceil(self._length / self._per_block)

    @functools.cached_property
    def _first_values(self) -> np.ndarray:
        return self.take(np.arange(self._num_blocks) * self._per_block)

    def _blocks(self, numbers: Any) -> list[np.ndarray]:
        blocks = self._cache.blocks(self, [int(number) for number in numbers])
        return [block.view(self.dtype) for block in blocks]


@functools.cache
def open_cache(folder: str, max_bytes: int) -> BlockCache:
    """Return the cache in a folder: always the same object, because only one can use it."""
    return BlockCache.open(folder, max_bytes)


def open_arrays(files: Mapping[Any, str], folder: str, max_bytes: int) -> list['BlockArray']:
    """Open one-dimensional .npy files in buckets; see `paths.open_arrays`."""
    cache = open_cache(folder, max_bytes)
    with concurrent.futures.ThreadPoolExecutor(_READERS) as pool:
        headers = pool.map(_read_header, files)
        return [
            BlockArray(path, _name(path, files[path]), header, cache)
            for path, header in zip(files, headers, strict=True)
        ]


def _name(path: BucketPath, identity: str) -> str:
    """The name of a file in the cache."""
    return hashlib.sha256(f'{path}\n{identity}'.encode()).hexdigest()


class _Header(NamedTuple):
    """The length and dtype of the values of an array file, and where they begin."""

    length: int
    dtype: np.dtype
    offset: int


def _read_header(path: BucketPath) -> _Header:
    file = io.BytesIO(path.read_head(_HEADER_BYTES))
    np.lib.format.read_magic(file)
    with npy_header_lock:
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    return _Header(shape[0], dtype, file.tell())


def _claim(folder: pathlib.Path) -> tuple[pathlib.Path, _Claim]:
    """Lock a folder for this process, or make a temporary folder if it is in use.

    Returns:
        The folder, and what keeps it for this process as long as it is referenced.
    """
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / 'lock', timeout=0, thread_local=False, fallback_to_soft=False)
        lock.acquire()
        return folder, lock
    own = temporary.TemporaryFolder(pathlib.Path(tempfile.gettempdir()), 'bert_jax-blocks-')
    atexit.register(own.remove)
    return own.path, own


def _checksum(data: Any) -> bytes:
    return zlib.crc32(data).to_bytes(_CHECKSUM_BYTES, 'little')


def _map(file: pathlib.Path) -> np.ndarray:
    size = file.stat().st_size - _CHECKSUM_BYTES
    return np.asarray(np.memmap(file, np.uint8, 'r', shape=(size,)))


def _open_verified(file: pathlib.Path) -> np.ndarray | None:
    """Map a block of an earlier process; None if it is damaged or gone."""
    try:
        data = file.read_bytes()
        intact = _checksum(data[:-_CHECKSUM_BYTES]) == data[-_CHECKSUM_BYTES:]
        return _map(file) if intact and len(data) > _CHECKSUM_BYTES else None
    except OSError:
        return None

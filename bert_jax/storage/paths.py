"""Files and folders by name, on disks and in buckets.

Files that are written step by step or mapped into memory are in a *local copy*: on a disk, the file
or folder itself; for a bucket, a copy in the scratch folder of this process. `fetch` downloads it
and `push` uploads changes. `publish` completes it: on a disk by a rename, in a bucket by uploading
a marker, a file of the folder, last.
"""

import concurrent.futures
import errno
import glob as local_glob
import os
import pathlib
import re
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bert_jax.errors import UserError, unknown
from bert_jax.storage import hub, temporary
from bert_jax.storage.path import BucketError, Path, Status

if TYPE_CHECKING:
    from bert_jax.storage.bucket_folder import BucketFolder

_REQUESTS = 8  # at a time
_LEFTOVER = re.compile(r'[0-9]+(\.deleted)?\.unfinished')


class CacheSettings(NamedTuple):
    """The folder that caches blocks of arrays in buckets, and the total size of its files."""

    folder: str = '~/.cache/bert_jax/blocks'
    max_bytes: int = 50 * 10**9


DEFAULT_CACHE = CacheSettings()


def path(name: str | os.PathLike[str]) -> Path:
    """Return the path of a file or folder, on a disk or in a bucket; '~' is expanded.

    Raises:
        UserError: The name is a URL of an unsupported kind, or names no bucket.
    """
    return _find(name)


def on_disk(name: str | os.PathLike[str]) -> pathlib.Path:
    """Return the path of a file or folder; raise UserError if it is in a bucket."""
    found = _find(name)
    if not isinstance(found, pathlib.Path):
        raise UserError(
            f'{os.fspath(name)} is in a bucket, which is not supported here: name a path on a disk'
        )
    return found


def local(name: str | os.PathLike[str]) -> pathlib.Path:
    """Return the local copy of a file or folder, which may not exist yet.

    Raises:
        UserError: The name in the bucket cannot be the name of a file below the scratch folder.
    """
    target = _find(name)
    return target if isinstance(target, pathlib.Path) else target.local()


def name_of(copy: Path) -> str:
    """Return the name of the file or folder that has this local copy."""
    if temporary.is_scratch(copy):
        return copy.relative_to(temporary.scratch()).as_posix().replace('/', '://', 1)
    return str(copy)


def fetch(
    name: str | os.PathLike[str], patterns: Sequence[str] = ('*',), without: Sequence[str] = ()
) -> pathlib.Path:
    """Bring the local copy of a file or folder up to date and return its path.

    Args:
        name: The file or folder; it need not exist.
        patterns: Patterns of the names of files to download from a folder in a bucket.
        without: Patterns of the names of folders in it whose files are not downloaded.

    Raises:
        UserError: A name in the bucket is not of a file below the folder, or also of a folder.
    """
    source = _find(name)
    if not isinstance(source, pathlib.Path):
        source.fetch(patterns, without)
    return local(source)


def push(name: str | os.PathLike[str], without: Sequence[str] = ()) -> None:
    """Upload the files of a local copy that have changed since the last upload or download.

    They are uploaded in the order in which they were written, so that after an interruption the
    bucket has a state that this machine had before.

    Args:
        name: The folder in the bucket; does nothing for a folder on a disk.
        without: Patterns of the names of folders in it that are left out.
    """
    target = _find(name)
    if not isinstance(target, pathlib.Path):
        target.push(without)


def upload(folder: pathlib.Path, target: Path) -> None:
    """Upload all files of a folder on this machine to one in a bucket, several at a time."""
    found = _find(target)
    assert not isinstance(found, pathlib.Path)
    found.upload_files(folder)


def sizes(folder: Path, names: Iterable[str]) -> dict[str, int]:
    """Return name → bytes for the named files of a folder that exist."""
    found = _find(folder)
    if isinstance(found, pathlib.Path):
        return {name: (found / name).stat().st_size for name in names if (found / name).is_file()}
    files = {str(file.relative_to(found)): status for file, status in found.files().items()}
    return {name: files[name].st_size for name in names if name in files}


def statuses(names: Iterable[str]) -> dict[str, Status]:
    """Return name → size and time for the named files that exist."""

    def status(name: str) -> Status | None:
        try:
            return Status.of(path(name) if is_in_bucket(name) else pathlib.Path(name))
        except BucketError:
            raise
        except OSError:
            return None

    names = list(names)
    if any(map(is_in_bucket, names)):
        with concurrent.futures.ThreadPoolExecutor(_REQUESTS) as pool:
            results = list(pool.map(status, names))
    else:
        results = list(map(status, names))
    return {name: result for name, result in zip(names, results, strict=True) if result}


def total_bytes(folder: Path) -> int:
    """Return the size of all files below a folder."""
    found = _find(folder)
    if isinstance(found, pathlib.Path):
        return sum(file.stat().st_size for file in found.rglob('*') if file.is_file())
    return sum(status.st_size for status in found.files().values())


def is_in_bucket(name: str | os.PathLike[str]) -> bool:
    """Whether a file or folder is in a bucket."""
    return not isinstance(_find(name), pathlib.Path)


def is_stream(name: str | os.PathLike[str]) -> bool:
    """Whether a file is written as it is, without a temporary name: a device or a pipe.

    /dev/stdout may lead to a file that the shell has opened; renaming would replace the device.
    """
    found = path(name)
    if is_in_bucket(found) or found.is_dir():
        return False
    is_of_process = str(found).startswith(('/dev/std', '/dev/fd/'))
    return is_of_process or (found.exists() and not found.is_file())


def publish(partial: pathlib.Path, name: str | os.PathLike[str], marker: str = '') -> None:
    """Give a finished file or folder its name.

    Args:
        partial: The file or folder, on this machine; it is gone afterwards.
        name: Its name, on the same disk or in a bucket; a folder must not exist.
        marker: Name of the file that marks the folder as complete in a bucket; without this file,
            the file that was written last.

    Raises:
        UserError: Another process completed the folder, or has taken over a lock above it.
        OSError: It cannot be written.
    """
    target = _find(name)
    if isinstance(target, pathlib.Path):
        partial.rename(target)
        sync(target.parent)
    else:
        target.publish(partial, marker)


def finished(folder: Path, marker: str) -> Sequence[Path]:
    """Return the complete folders in a folder: in a bucket, those with their marker."""
    found = _find(folder)
    if isinstance(found, pathlib.Path):
        return list(found.iterdir()) if found.is_dir() else []
    return found.finished(marker)


def parent_exists(name: str | os.PathLike[str]) -> bool:
    """Whether the folder of a file exists, so that the file can be created; true in a bucket."""
    target = _find(name)
    return not isinstance(target, pathlib.Path) or target.parent.is_dir()


def write(target: Path, content: bytes) -> None:
    """Write a file atomically: other processes see all of it or nothing."""
    found = _find(target)
    if not isinstance(found, pathlib.Path):
        found.write_bytes(content)
        return
    partial = found.with_name(f'{found.name}.{uuid.uuid4().hex}.partial')
    partial.write_bytes(content)
    sync(partial)
    os.replace(partial, found)


def check_writable(folder: Path) -> None:
    """Raise OSError if a folder on a disk cannot be created or written; a bucket is not asked."""
    if is_in_bucket(folder):
        return
    parent = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not parent.is_dir():
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if not os.access(parent, os.W_OK | os.X_OK):
        is_read_only = os.statvfs(parent).f_flag & os.ST_RDONLY
        code = errno.EROFS if is_read_only else errno.EACCES
        raise OSError(code, os.strerror(code))


def leftovers(folder: Path, marker: str) -> Sequence[Path]:
    """Return the unfinished folders that killed processes have left in a folder.

    Their names are numbers, followed on a disk by '.unfinished'; in a bucket, they have no marker.
    Other files and folders there are not ours.
    """
    found = _find(folder)
    if not isinstance(found, pathlib.Path):
        return found.leftovers(marker)
    return sorted(
        path
        for path in found.glob('*.unfinished')
        if _LEFTOVER.fullmatch(path.name) and path.is_dir() and not path.is_symlink()
    )


def retract(folder: Path, marker: str) -> None:
    """Remove a complete folder; a kill leaves it complete or as one of its `leftovers`."""
    found = _find(folder)
    if not isinstance(found, pathlib.Path):
        found.retract(marker)
    elif found.exists():
        shutil.rmtree(found.rename(found.with_name(f'{found.name}.deleted.unfinished')))


def remove(folder: Path) -> None:
    """Remove an unfinished folder, if it exists."""
    found = _find(folder)
    if not isinstance(found, pathlib.Path):
        found.rmtree()
    elif found.exists():
        shutil.rmtree(found)


def drop(name: str | os.PathLike[str]) -> None:
    """Remove the local copy of a file or folder in a bucket."""
    if is_in_bucket(name):
        copy = local(name)
        shutil.rmtree(copy, ignore_errors=True)
        copy.unlink(missing_ok=True)


def open_binary(name: str | os.PathLike[str]) -> Any:
    """Open a file to read its bytes; files in buckets are read in ranges."""
    source = _find(name)
    return open(name, 'rb') if isinstance(source, pathlib.Path) else source.open()


def open_arrow(name: str) -> Any:
    """Open a file for pyarrow; files on disks are read without Python code."""
    import pyarrow  # takes 0.1 s

    source = _find(name)
    if isinstance(source, pathlib.Path):
        return pyarrow.OSFile(name)
    return pyarrow.PythonFile(source.open(), mode='r')


def open_arrays(files: Mapping[Any, str], cache: CacheSettings) -> list[Any]:
    """Open one-dimensional .npy files: as memory maps on a disk, as BlockArrays in a bucket.

    Args:
        files: File → a text that identifies its contents among those at this path. A corpus may
            claim the digest of another: with the path, it only ever reads its own blocks.
        cache: The cache of blocks.
    """
    if not any(map(is_in_bucket, files)):
        return [np.load(path, mmap_mode='r') for path in files]
    from bert_jax.storage import block_cache

    return block_cache.open_arrays(files, *cache)


def glob(pattern: str) -> list[str] | None:
    """Return the files in a bucket that match a pattern, sorted; None for a path on a disk."""
    source = _find(pattern)
    if isinstance(source, pathlib.Path):
        return None
    if not local_glob.has_magic(pattern):
        return [pattern] if source.is_file() else []
    return sorted(map(str, source.matches()))


def sync(path: Path) -> None:
    """Wait until the contents of a file, or the entries of a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _find(name: str | os.PathLike[str]) -> 'pathlib.Path | BucketFolder':
    scheme, separator, rest = os.fspath(name).partition('://')
    if not separator or not re.fullmatch('[A-Za-z][A-Za-z0-9+.-]*', scheme):
        return pathlib.Path(name).expanduser()
    if scheme == hub.SCHEME:
        return hub.fetch(os.fspath(name))
    from bert_jax.storage.bucket import PACKAGES
    from bert_jax.storage.bucket_folder import BucketFolder

    if isinstance(name, BucketFolder):
        return name
    if scheme not in PACKAGES:
        raise unknown(f'kind of storage in {os.fspath(name)!r}:', scheme, PACKAGES)
    if not rest.strip('/'):
        raise UserError(f'{os.fspath(name)!r} names no bucket')
    return BucketFolder(os.fspath(name))

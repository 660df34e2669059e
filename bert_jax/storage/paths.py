"""Files and folders by name, on disks and in buckets.

Files that are written step by step or mapped into memory are in a *local copy*: on a disk, the file
or folder itself; for a bucket, a copy in the scratch folder of this process. `fetch` downloads it
and `push` uploads changes. `publish` completes it: on a disk by a rename, in a bucket by uploading
a marker, a file of the folder, last.
"""

import atexit
import concurrent.futures
import errno
import fnmatch
import functools
import glob as local_glob
import os
import pathlib
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from bert_jax.errors import UserError, unknown
from bert_jax.storage import leases, names, temporary
from bert_jax.storage.bucket import PACKAGES, BucketError, BucketPath, Status
from bert_jax.storage.path import Path

UNFINISHED = ('.partial', '.tmp', '.unfinished')  # suffixes of names that `push` leaves out
_TRANSFERS = 8  # simultaneous uploads or downloads
_LEFTOVER = re.compile(r'[0-9]+(\.deleted)?\.unfinished')

_Item = TypeVar('_Item')
_Result = TypeVar('_Result')

# Local copy → its status, and the status of the file in the bucket (None after an upload).
_copied: dict[pathlib.Path, tuple[Status, Status | None]] = {}


def path(name: str | os.PathLike[str]) -> Path:
    """Return the path of a file or folder, on a disk or in a bucket; '~' is expanded.

    Raises:
        UserError: The name is a URL of an unsupported kind, or names no bucket.
    """
    if isinstance(name, BucketPath):
        return name
    scheme, separator, rest = os.fspath(name).partition('://')
    if not separator or not re.fullmatch('[A-Za-z][A-Za-z0-9+.-]*', scheme):
        return pathlib.Path(name).expanduser()
    if scheme not in PACKAGES:
        raise unknown(f'kind of storage in {os.fspath(name)!r}:', scheme, PACKAGES)
    if not rest.strip('/'):
        raise UserError(f'{os.fspath(name)!r} names no bucket')
    return BucketPath(os.fspath(name))


def on_disk(name: str | os.PathLike[str]) -> pathlib.Path:
    """Return the path of a file or folder; raise UserError if it is in a bucket."""
    found = path(name)
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
    target = path(name)
    if isinstance(target, pathlib.Path):
        return target
    key = str(target).replace('://', '/')
    return _scratch() / names.check(key, target)


def name_of(copy: Path) -> str:
    """Return the name of the file or folder that has this local copy."""
    if _scratch.cache_info().currsize and copy.is_relative_to(_scratch()):
        return copy.relative_to(_scratch()).as_posix().replace('/', '://', 1)
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
    source, copy = path(name), local(name)
    if not isinstance(source, BucketPath):
        return copy
    needed = []
    for file, status in source.files().items():
        folders = file.relative_to(source).parts[:-1]
        is_named = _matches(file.name, patterns) or file == source
        if is_named and not any(_matches(folder, without) for folder in folders):
            needed.append((file, status))
    names.check_distinct([str(file) for file, _ in needed], source)
    _transfer(lambda item: _download(*item), needed)
    return copy


def push(name: str | os.PathLike[str], without: Sequence[str] = ()) -> None:
    """Upload the files of a local copy that have changed since the last upload or download.

    They are uploaded in the order in which they were written, so that after an interruption the
    bucket has a state that this machine had before.

    Args:
        name: The folder in the bucket; does nothing for a folder on a disk.
        without: Patterns of the names of folders in it that are left out.
    """
    target, copy = path(name), local(name)
    if not isinstance(target, BucketPath):
        return
    leases.check(target)
    statuses = {file: _status(file) for file in copy.rglob('*') if file.is_file()}
    for file in sorted(statuses, key=lambda file: statuses[file].st_mtime_ns):
        parts = file.relative_to(copy).parts
        is_unfinished = any(part.endswith(UNFINISHED) for part in parts)
        is_known = file in _copied and _copied[file][0] == statuses[file]
        if is_unfinished or is_known or any(_matches(part, without) for part in parts[:-1]):
            continue
        _upload(file, target / file.relative_to(copy).as_posix())


def upload(folder: pathlib.Path, target: Path, skip: pathlib.Path | None = None) -> None:
    """Upload all files of a folder on this machine except `skip`, several at a time."""
    assert isinstance(target, BucketPath)
    files = [file for file in sorted(folder.rglob('*')) if file.is_file() and file != skip]
    leases.check(target)
    _transfer(lambda file: _upload(file, target / file.relative_to(folder).as_posix()), files)


def sizes(folder: Path, names: Iterable[str]) -> dict[str, int]:
    """Return name → bytes for the named files of a folder that exist."""
    if isinstance(folder, BucketPath):
        files = {str(file.relative_to(folder)): status for file, status in folder.files().items()}
        return {name: files[name].st_size for name in names if name in files}
    return {name: (folder / name).stat().st_size for name in names if (folder / name).is_file()}


def statuses(names: Iterable[str]) -> dict[str, Status]:
    """Return name → size and time for the named files that exist."""

    def status(name: str) -> Status | None:
        try:
            return _status(path(name) if is_in_bucket(name) else pathlib.Path(name))
        except BucketError:
            raise
        except OSError:
            return None

    names = list(names)
    results = _transfer(status, names) if any(map(is_in_bucket, names)) else map(status, names)
    return {name: result for name, result in zip(names, results, strict=True) if result}


def total_bytes(folder: Path) -> int:
    """Return the size of all files below a folder."""
    if isinstance(folder, BucketPath):
        return sum(status.st_size for status in folder.files().values())
    return sum(file.stat().st_size for file in folder.rglob('*') if file.is_file())


def is_in_bucket(name: str | os.PathLike[str]) -> bool:
    """Whether a file or folder is in a bucket."""
    return isinstance(path(name), BucketPath)


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
    target = path(name)
    if not isinstance(target, BucketPath):
        partial.rename(target)
        sync(target.parent)
    elif partial.is_file():
        target.upload(partial)
        partial.unlink()
    else:
        last = partial / marker
        if not last.is_file():
            files = [file for file in partial.rglob('*') if file.is_file()]
            last = max(files, key=lambda file: file.stat().st_mtime_ns)
        upload(partial, target, skip=last)
        leases.check(target)
        mark(target / last.relative_to(partial).as_posix(), last.read_bytes())
        shutil.rmtree(partial)


def mark(marker: BucketPath, content: bytes) -> None:
    """Create the marker of a folder in a bucket; raise UserError if the marker exists."""
    try:
        marker.create(content)
    except FileExistsError:
        raise UserError(f'another process has completed {marker.parent} in the meantime') from None


def finished(folder: Path, marker: str) -> Sequence[Path]:
    """Return the complete folders in a folder: in a bucket, those with their marker."""
    if isinstance(folder, BucketPath):
        return [file.parent for file in folder.glob(f'*/{marker}')]
    return list(folder.iterdir()) if folder.is_dir() else []


def parent_exists(name: str | os.PathLike[str]) -> bool:
    """Whether the folder of a file exists, so that the file can be created; true in a bucket."""
    target = path(name)
    return isinstance(target, BucketPath) or target.parent.is_dir()


def write(target: Path, content: bytes) -> None:
    """Write a file atomically: other processes see all of it or nothing."""
    if isinstance(target, BucketPath):
        target.write_bytes(content)
        return
    partial = pathlib.Path(target).with_name(f'{target.name}.{uuid.uuid4().hex}.partial')
    partial.write_bytes(content)
    sync(partial)
    os.replace(partial, target)


def check_writable(folder: Path) -> None:
    """Raise OSError if a folder on a disk cannot be created or written; a bucket is not asked."""
    if isinstance(folder, BucketPath):
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
    if isinstance(folder, BucketPath):
        parts = {file.relative_to(folder).parts for file in folder.files()}
        started = {folder / first for first, *rest in parts if rest and first.isdecimal()}
        return sorted(started - set(finished(folder, marker)))
    return sorted(
        path
        for path in pathlib.Path(folder).glob('*.unfinished')
        if _LEFTOVER.fullmatch(path.name) and path.is_dir() and not path.is_symlink()
    )


def retract(folder: Path, marker: str) -> None:
    """Remove a complete folder; a kill leaves it complete or as one of its `leftovers`."""
    if isinstance(folder, BucketPath):
        leases.check(folder)
        (folder / marker).unlink(missing_ok=True)
        folder.rmtree()
    elif folder.exists():
        deleted = folder.with_name(f'{folder.name}.deleted.unfinished')
        shutil.rmtree(pathlib.Path(folder).rename(deleted))


def remove(folder: Path) -> None:
    """Remove an unfinished folder, if it exists."""
    if isinstance(folder, BucketPath):
        folder.rmtree()
    elif folder.exists():
        shutil.rmtree(folder)


def drop(name: str | os.PathLike[str]) -> None:
    """Remove the local copy of a file or folder in a bucket."""
    if isinstance(path(name), BucketPath):
        copy = local(name)
        shutil.rmtree(copy, ignore_errors=True)
        copy.unlink(missing_ok=True)


def open_binary(name: str | os.PathLike[str]) -> Any:
    """Open a file to read its bytes; files in buckets are read in ranges."""
    source = path(name)
    return source.open() if isinstance(source, BucketPath) else open(name, 'rb')


def open_arrow(name: str) -> Any:
    """Open a file for pyarrow; files on disks are read without Python code."""
    import pyarrow  # takes 0.1 s

    source = path(name)
    if isinstance(source, BucketPath):
        return pyarrow.PythonFile(source.open(), mode='r')
    return pyarrow.OSFile(name)


def glob(pattern: str) -> list[str] | None:
    """Return the files in a bucket that match a pattern, sorted; None for a path on a disk."""
    source = path(pattern)
    if not isinstance(source, BucketPath):
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


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _download(source: BucketPath, status: Status) -> None:
    copy = local(source)
    if copy in _copied and copy.exists() and _copied[copy] == (_status(copy), status):
        return
    copy.parent.mkdir(parents=True, exist_ok=True)
    source.download(copy)
    _copied[copy] = _status(copy), status


def _upload(file: pathlib.Path, target: BucketPath) -> None:
    status = _status(file)
    target.upload(file)
    _copied[file] = status, None


def _status(file: Path) -> Status:
    result = file.stat()
    return Status(result.st_size, result.st_mtime_ns)


def _transfer(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    with concurrent.futures.ThreadPoolExecutor(_TRANSFERS) as pool:
        return list(pool.map(function, items))


@functools.cache
def _scratch() -> pathlib.Path:
    """A folder on this machine that is removed when this process ends."""
    folder = temporary.TemporaryFolder(pathlib.Path(tempfile.gettempdir()), 'bert_jax-scratch-')
    atexit.register(folder.remove)
    return folder.path

"""Files and folders by name, on disks and in buckets.

Whatever is written step by step, or mapped into memory, is in a *local copy*: on a disk the file
or folder itself, and for a bucket one in the scratch folder of this process. `fetch` downloads it,
`push` uploads what has changed, and `publish` completes it: a folder on a disk gets its name by a
rename, one in a bucket is complete once it has its marker, the file that is written last.
"""

import atexit
import concurrent.futures
import contextlib
import fcntl
import fnmatch
import functools
import glob as local_glob
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any, TypeVar, cast

from bert_jax.errors import UserError, unknown
from bert_jax.storage import leases
from bert_jax.storage.bucket import EXTRAS, BucketError, BucketPath, Status

UNFINISHED = ('.partial', '.tmp', '.unfinished')  # ends of names that `push` leaves out
_TRANSFERS = 8  # at the same time
_SCRATCH = 'bert_jax-'

_Item = TypeVar('_Item')
_Result = TypeVar('_Result')

# Local copy → its size and time, and those of the file in the bucket (None after an upload).
_copied: dict[pathlib.Path, tuple[Status, Status | None]] = {}


def path(name: str | os.PathLike[str]) -> pathlib.Path:
    """Return the path of a file or folder, on a disk or in a bucket; '~' is expanded.

    Raises:
        UserError: The name is a URL of another kind, or lacks the bucket.
    """
    if isinstance(name, BucketPath):
        return cast(pathlib.Path, name)
    scheme, separator, rest = os.fspath(name).partition('://')
    if not separator or not re.fullmatch('[A-Za-z][A-Za-z0-9+.-]*', scheme):
        return pathlib.Path(name).expanduser()
    if scheme not in EXTRAS:
        raise unknown(f'kind of storage in {os.fspath(name)!r}:', scheme, EXTRAS)
    if not rest.strip('/'):
        raise UserError(f'{os.fspath(name)!r} names no bucket')
    return cast(pathlib.Path, BucketPath(os.fspath(name)))


def on_disk(name: str | os.PathLike[str]) -> pathlib.Path:
    """Return the path of a file or folder; UserError if it is in a bucket."""
    if is_in_bucket(name):
        raise UserError(
            f'{os.fspath(name)} is in a bucket, which is not possible here: name a path on a disk'
        )
    return path(name)


def local(name: str | os.PathLike[str]) -> pathlib.Path:
    """Return the local copy of a file or folder, which may not exist yet."""
    target = path(name)
    if not isinstance(target, BucketPath):
        return target
    return _scratch() / str(target).replace('://', '/')


def name_of(copy: pathlib.Path) -> str:
    """Return the name of the file or folder that has this local copy."""
    if _scratch.cache_info().currsize and copy.is_relative_to(_scratch()):
        return copy.relative_to(_scratch()).as_posix().replace('/', '://', 1)
    return str(copy)


def fetch(
    name: str | os.PathLike[str], patterns: Sequence[str] = ('*',), without: Sequence[str] = ()
) -> pathlib.Path:
    """Return the local copy of a file or folder, up to date.

    Args:
        name: The file or folder; it need not exist.
        patterns: Which files of a folder in a bucket are needed, by name.
        without: Patterns of the names of folders in it that are not.
    """
    source, copy = path(name), local(name)
    if not isinstance(source, BucketPath):
        return copy
    wanted = {}
    for file, status in source.files().items():
        folders = file.relative_to(source).parts[:-1]
        is_needed = _matches(file.name, patterns) or file == source
        if is_needed and not any(_matches(folder, without) for folder in folders):
            wanted[file] = status
    _transfer(lambda item: _download(*item), wanted.items())
    return copy


def push(name: str | os.PathLike[str], without: Sequence[str] = ()) -> None:
    """Upload the files of a local copy that have changed since the last upload or download.

    They are uploaded in the order in which they were written, so that what is in the bucket after
    an interruption was at some time on this machine too.

    Args:
        name: The folder in the bucket; nothing is done on a disk.
        without: Names of folders in it that are left out.
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


def upload(folder: pathlib.Path, target: pathlib.Path, besides: pathlib.Path | None = None) -> None:
    """Upload all files of a folder on this machine, several at a time, but not `besides`."""
    files = [file for file in sorted(folder.rglob('*')) if file.is_file() and file != besides]
    leases.check(target)
    _transfer(lambda file: _upload(file, target / file.relative_to(folder).as_posix()), files)


def sizes(folder: pathlib.Path, names: Iterable[str]) -> dict[str, int]:
    """Return the bytes of those files in a folder that exist, by name."""
    if isinstance(folder, BucketPath):
        found = {str(file.relative_to(folder)): status for file, status in folder.files().items()}
        return {name: found[name].st_size for name in names if name in found}
    return {name: (folder / name).stat().st_size for name in names if (folder / name).is_file()}


def statuses(names: Iterable[str]) -> dict[str, Status]:
    """Return the size and time of those files that exist, by name."""

    def status(name: str) -> Status | None:
        try:
            found = path(name).stat() if is_in_bucket(name) else os.stat(name)
        except BucketError:
            raise
        except OSError:
            return None
        return Status(found.st_size, found.st_mtime_ns)

    names = list(names)
    found = _transfer(status, names) if any(map(is_in_bucket, names)) else map(status, names)
    return {name: each for name, each in zip(names, found, strict=True) if each}


def total_bytes(folder: pathlib.Path) -> int:
    """Return the size of all files below a folder."""
    if isinstance(folder, BucketPath):
        return sum(status.st_size for status in folder.files().values())
    return sum(file.stat().st_size for file in folder.rglob('*') if file.is_file())


def is_in_bucket(name: str | os.PathLike[str]) -> bool:
    """Whether a file or folder is in a bucket."""
    return isinstance(path(name), BucketPath)


def publish(partial: pathlib.Path, name: str | os.PathLike[str], marker: str = '') -> None:
    """Give a finished file or folder its name.

    Args:
        partial: The file or folder, on this machine; it is gone afterwards.
        name: Its name, on the same disk or in a bucket; a folder must not exist.
        marker: Name of the file of a folder that shows that it is complete in a bucket; if there
            is none, the one that was written last.

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
        if not marker or not last.exists():
            files = [file for file in partial.rglob('*') if file.is_file()]
            last = max(files, key=lambda file: file.stat().st_mtime_ns)
        upload(partial, target, besides=last)
        leases.check(target)
        mark(target / last.relative_to(partial).as_posix(), last.read_bytes())
        shutil.rmtree(partial)


def mark(marker: Any, content: bytes) -> None:
    """Create the marker of a folder in a bucket; UserError if another process has done so."""
    try:
        marker.create(content)
    except FileExistsError:
        raise UserError(f'{marker.parent} was completed by another process meanwhile') from None


def finished(folder: pathlib.Path, marker: str) -> list[pathlib.Path]:
    """Return the complete folders in a folder: in a bucket, those with their marker."""
    if isinstance(folder, BucketPath):
        return [file.parent for file in folder.glob(f'*/{marker}')]
    return list(folder.iterdir()) if folder.is_dir() else []


def leftovers(folder: pathlib.Path, marker: str) -> list[pathlib.Path]:
    """Return what a killed process has left in a folder: names that end in '.unfinished' on a
    disk, and folders without their marker in a bucket."""
    if isinstance(folder, BucketPath):
        begun = {folder / file.relative_to(folder).parts[0] for file in folder.files()}
        return sorted(begun - set(finished(folder, marker)))
    return sorted(folder.glob('*.unfinished'))


def retract(folder: pathlib.Path, marker: str) -> None:
    """Remove a complete folder; a kill leaves all of it or what `leftovers` finds."""
    if isinstance(folder, BucketPath):
        leases.check(folder)
        (folder / marker).unlink(missing_ok=True)
        folder.rmtree()
    elif folder.exists():
        shutil.rmtree(folder.rename(folder.with_name(f'{folder.name}.deleted.unfinished')))


def remove(folder: pathlib.Path) -> None:
    """Remove an unfinished folder, if it exists."""
    if isinstance(folder, BucketPath):
        folder.rmtree()
    elif folder.exists():
        shutil.rmtree(folder)


def drop(name: str | os.PathLike[str]) -> None:
    """Free the space of a local copy of what is in a bucket."""
    if isinstance(path(name), BucketPath):
        copy = local(name)
        shutil.rmtree(copy, ignore_errors=True)
        copy.unlink(missing_ok=True)


def open_binary(name: str | os.PathLike[str]) -> Any:
    """Open a file to read its bytes; one in a bucket is read in ranges."""
    source = path(name)
    return source.open() if isinstance(source, BucketPath) else open(name, 'rb')


def open_arrow(name: str) -> Any:
    """Open a file for pyarrow, which reads those on disks without Python."""
    import pyarrow  # takes 0.1 s

    source = path(name)
    if isinstance(source, BucketPath):
        return pyarrow.PythonFile(source.open(), mode='r')
    return pyarrow.OSFile(name)


def glob(pattern: str) -> list[str] | None:
    """Return the files in a bucket that match a pattern, sorted; None for a pattern of a disk."""
    source = path(pattern)
    if not isinstance(source, BucketPath):
        return None
    if not local_glob.has_magic(pattern):
        return [pattern] if source.is_file() else []
    return sorted(map(str, source.matches()))


def sync(path: pathlib.Path) -> None:
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


def _upload(file: pathlib.Path, target: Any) -> None:
    status = _status(file)
    target.upload(file)
    _copied[file] = status, None


def _status(file: pathlib.Path) -> Status:
    status = file.stat()
    return Status(status.st_size, status.st_mtime_ns)


def _transfer(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    with concurrent.futures.ThreadPoolExecutor(_TRANSFERS) as pool:
        return list(pool.map(function, items))


@functools.cache
def _scratch() -> pathlib.Path:
    """A folder on this machine that is removed when this process ends.

    If it is killed, the next process that makes one removes its folder.
    """
    root = pathlib.Path(tempfile.gettempdir())
    for old in root.glob(f'{_SCRATCH}*'):
        with contextlib.suppress(OSError), open(old / 'lock') as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(old)
    folder = pathlib.Path(tempfile.mkdtemp(prefix=_SCRATCH))
    lock = open(folder / 'lock', 'w')  # noqa: SIM115  (open until the process ends)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    _open_locks.append(lock)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


_open_locks: list[IO[str]] = []

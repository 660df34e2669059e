"""Folders in buckets: their copies on this machine, and how they become complete.

A folder is complete when it has its marker, a file that is uploaded last. The local copy of
s3://BUCKET/NAME is the file or folder s3/BUCKET/NAME in the scratch folder of this process.
"""

import concurrent.futures
import fnmatch
import glob
import pathlib
import shutil
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any, ClassVar, Self, TypeVar

from bert_jax.errors import UserError
from bert_jax.storage import held_locks, names, temporary
from bert_jax.storage.bucket import BucketPath
from bert_jax.storage.path import Status

_UNFINISHED = ('.partial', '.tmp', '.unfinished')  # suffixes of names that `push` leaves out
_TRANSFERS = 8  # simultaneous uploads or downloads

_Item = TypeVar('_Item')

# Local copy → its status, and the status of the file in the bucket (None after an upload).
_copied: dict[pathlib.Path, tuple[Status, Status | None]] = {}


class BucketFolder(BucketPath):
    """A folder in a bucket, or a file; what `paths` returns for the name of either."""

    is_on_disk: ClassVar[bool] = False

    def local(self) -> pathlib.Path:
        """Return the local copy, which may not exist yet.

        Raises:
            UserError: The name in the bucket cannot be the name of a file below the scratch folder.
        """
        return temporary.scratch() / names.check(str(self).replace('://', '/'), self)

    def fetch(self, patterns: Sequence[str], without: Sequence[str]) -> None:
        """Bring the local copy up to date; the arguments are those of `paths.fetch`."""
        needed = []
        for file, status in self.files().items():
            folders = file.relative_to(self).parts[:-1]
            is_named = _matches(file.name, patterns) or file == self
            if is_named and not any(_matches(folder, without) for folder in folders):
                needed.append((file, status))
        names.check_distinct([str(file) for file, _ in needed], self)
        _in_parallel(lambda item: _download(*item), needed)

    def push(self, without: Sequence[str]) -> None:
        """Upload the changes of the local copy; see `paths.push`."""
        copy = self.local()
        held_locks.check(self)
        statuses = {file: Status.of(file) for file in copy.rglob('*') if file.is_file()}
        for file in sorted(statuses, key=lambda file: statuses[file].st_mtime_ns):
            parts = file.relative_to(copy).parts
            is_unfinished = any(part.endswith(_UNFINISHED) for part in parts)
            is_known = file in _copied and _copied[file][0] == statuses[file]
            if is_unfinished or is_known or any(_matches(part, without) for part in parts[:-1]):
                continue
            _upload(file, self / file.relative_to(copy).as_posix())

    def upload_files(self, folder: pathlib.Path, skip: pathlib.Path | None = None) -> None:
        """Upload all files of a folder on this machine except `skip`, several at a time."""
        files = [file for file in sorted(folder.rglob('*')) if file.is_file() and file != skip]
        held_locks.check(self)
        _in_parallel(lambda file: _upload(file, self / file.relative_to(folder).as_posix()), files)

    def publish(self, partial: pathlib.Path, marker: str) -> None:
        """Upload a finished file or folder, the marker last; see `paths.publish`."""
        if partial.is_file():
            self.upload(partial)
            partial.unlink()
            return
        last = partial / marker
        if not last.is_file():
            files = [file for file in partial.rglob('*') if file.is_file()]
            last = max(files, key=lambda file: file.stat().st_mtime_ns)
        self.upload_files(partial, skip=last)
        held_locks.check(self)
        try:
            (self / last.relative_to(partial).as_posix()).create(last.read_bytes())
        except FileExistsError:
            raise UserError(f'another process has completed {self} in the meantime') from None
        shutil.rmtree(partial)

    def replace(self, partial: pathlib.Path, marker: str) -> None:
        """Publish a folder in place of another one; buckets do not rename folders."""
        self.retract(marker)
        self.publish(partial, marker)

    def drop(self) -> None:
        """Remove the local copy."""
        copy = self.local()
        shutil.rmtree(copy, ignore_errors=True)
        copy.unlink(missing_ok=True)

    def sizes(self, names: Iterable[str]) -> dict[str, int]:
        """Return name → bytes for the named files of the folder that exist."""
        files = {str(file.relative_to(self)): status for file, status in self.files().items()}
        return {name: files[name].st_size for name in names if name in files}

    def total_bytes(self) -> int:
        """Return the size of all files below the folder."""
        return sum(status.st_size for status in self.files().values())

    def has_parent(self) -> bool:
        """Return True: folders exist with their files."""
        return True

    def check_writable(self) -> None:
        """Do nothing: the first request shows whether the bucket can be written."""

    def write(self, content: bytes) -> None:
        """Write a file; other processes see all of it or nothing."""
        self.write_bytes(content)

    def remove(self) -> None:
        """Remove all files below the folder."""
        self.rmtree()

    def read_up_to(self, limit: int) -> bytes | None:
        """Read a file, unless it has more bytes than `limit`."""
        content = self.read_head(limit + 1)
        return content if len(content) <= limit else None

    def open_bytes(self) -> IO[Any]:
        """Open a file to read its bytes, in ranges."""
        return self.open()

    def open_arrow(self) -> Any:
        """Open a file for pyarrow."""
        import pyarrow  # takes 0.1 s

        return pyarrow.PythonFile(self.open(), mode='r')

    def matching(self) -> list[str]:
        """Return the files that match the path as a glob, sorted."""
        if not glob.has_magic(str(self)):
            return [str(self)] if self.is_file() else []
        return sorted(map(str, self.matches()))

    def finished(self, marker: str) -> list[Self]:
        """Return the complete folders in this folder."""
        return [file.parent for file in self.glob(f'*/{marker}')]

    def leftovers(self, marker: str) -> list[Self]:
        """Return the folders with a number as their name and without the marker."""
        parts = {file.relative_to(self).parts for file in self.files()}
        started = {self / first for first, *rest in parts if rest and names.is_number(first)}
        return sorted(started - set(self.finished(marker)))

    def retract(self, marker: str) -> None:
        """Remove a complete folder, its marker first."""
        held_locks.check(self)
        (self / marker).unlink(missing_ok=True)
        self.rmtree()


def _in_parallel(function: Callable[[_Item], object], items: Iterable[_Item]) -> None:
    """Call a function for items, several at a time."""
    with concurrent.futures.ThreadPoolExecutor(_TRANSFERS) as pool:
        list(pool.map(function, items))


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _download(source: BucketFolder, status: Status) -> None:
    copy = source.local()
    if copy in _copied and copy.exists() and _copied[copy] == (Status.of(copy), status):
        return
    copy.parent.mkdir(parents=True, exist_ok=True)
    source.download(copy)
    _copied[copy] = Status.of(copy), status


def _upload(file: pathlib.Path, target: BucketPath) -> None:
    status = Status.of(file)
    target.upload(file)
    _copied[file] = status, None

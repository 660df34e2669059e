"""Folders and files on disks, with the operations that buckets do in another way."""

import ctypes
import dataclasses
import errno
import os
import pathlib
import re
import shutil
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from bert_jax.storage.path import Path

_LEFTOVER = re.compile(r'[0-9]+(\.deleted)?\.unfinished')
_HERE, _RENAME_EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux, see renameat2(2)


@dataclasses.dataclass(frozen=True)
class DiskFolder:
    """A folder on a disk, or a file; see `folder.Folder`."""

    path: pathlib.Path

    is_on_disk: ClassVar[bool] = True

    def local(self) -> pathlib.Path:
        return self.path

    def fetch(self, patterns: Sequence[str], without: Sequence[str]) -> None:
        """Do nothing: the folder is its own copy."""

    def push(self, without: Sequence[str]) -> None:
        """Do nothing: the folder is its own copy."""

    def drop(self) -> None:
        """Do nothing: the folder is its own copy."""

    def sizes(self, names: Iterable[str]) -> dict[str, int]:
        files = {name: self.path / name for name in names}
        return {name: file.stat().st_size for name, file in files.items() if file.is_file()}

    def total_bytes(self) -> int:
        return sum(file.stat().st_size for file in self.path.rglob('*') if file.is_file())

    def publish(self, partial: pathlib.Path, marker: str) -> None:
        partial.rename(self.path)
        sync(self.path.parent)

    def replace(self, partial: pathlib.Path, marker: str) -> None:
        if self.path.exists():
            _exchange(partial, self.path)
        else:
            self.publish(partial, marker)

    def finished(self, marker: str) -> Sequence[Path]:
        return list(self.path.iterdir()) if self.path.is_dir() else []

    def leftovers(self, marker: str) -> Sequence[Path]:
        return sorted(
            path
            for path in self.path.glob('*.unfinished')
            if _LEFTOVER.fullmatch(path.name) and path.is_dir() and not path.is_symlink()
        )

    def retract(self, marker: str) -> None:
        if self.path.exists():
            name = f'{self.path.name}.deleted.unfinished'
            shutil.rmtree(self.path.rename(self.path.with_name(name)))

    def remove(self) -> None:
        if self.path.exists():
            shutil.rmtree(self.path)

    def has_parent(self) -> bool:
        return self.path.parent.is_dir()

    def check_writable(self) -> None:
        parent = next(parent for parent in (self.path, *self.path.parents) if parent.exists())
        if not parent.is_dir():
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(parent, os.W_OK | os.X_OK):
            is_read_only = os.statvfs(parent).f_flag & os.ST_RDONLY
            code = errno.EROFS if is_read_only else errno.EACCES
            raise OSError(code, os.strerror(code))

    def write(self, content: bytes) -> None:
        partial = self.path.with_name(f'{self.path.name}.{uuid.uuid4().hex}.partial')
        partial.write_bytes(content)
        sync(partial)
        os.replace(partial, self.path)

    def create(self, content: bytes) -> None:
        with open(self.path, 'xb') as file:
            file.write(content)

    def read_up_to(self, limit: int) -> bytes | None:
        if self.path.exists() and not self.path.is_file():  # a pipe would block, a device not end
            code = errno.EISDIR if self.path.is_dir() else errno.EINVAL
            raise OSError(code, os.strerror(code), str(self.path))
        with open(self.path, 'rb') as file:
            size = os.fstat(file.fileno()).st_size
            return file.read(size) if size <= limit else None

    def open_bytes(self) -> Any:
        return open(self.path, 'rb')

    def open_arrow(self) -> Any:
        import pyarrow  # takes 0.1 s

        return pyarrow.OSFile(str(self.path))

    def matching(self) -> list[str] | None:
        return None


def sync(path: Path) -> None:
    """Wait until the contents of a file, or the entries of a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exchange(new: pathlib.Path, path: pathlib.Path) -> None:
    """Let two folders change their names; a kill leaves one of them at `path`.

    On Linux this is one step. On other systems, a kill between the two renames leaves both folders
    beside `path`.
    """
    swap = getattr(ctypes.CDLL(None, use_errno=True), 'renameat2', None)
    if swap and swap(_HERE, os.fsencode(new), _HERE, os.fsencode(path), _RENAME_EXCHANGE) == 0:
        return
    old = path.rename(new.with_name(f'{new.name}.old'))
    try:
        new.rename(path)
    except OSError:
        old.rename(path)
        raise

"""What the paths of files on disks and in buckets have in common."""

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, Self

from bert_jax.errors import UserError


class BucketError(UserError, OSError):
    """A request that failed permanently: a one-line message, and an OSError for handlers."""

    def __str__(self) -> str:
        return f'{self.filename} cannot be read or written: {self.strerror}'


class FileStatus(Protocol):
    """Size and time of a file, as in os.stat_result and `Status`."""

    @property
    def st_size(self) -> int: ...

    @property
    def st_mtime_ns(self) -> int: ...


def is_on_hub(name: str | os.PathLike[str]) -> bool:
    """Whether a name is hf://…, of the Hugging Face Hub (hub.py)."""
    return os.fspath(name).startswith('hf://')


class Path(Protocol):
    """A file or folder, on a disk (`pathlib.Path`) or in a bucket (`bucket.BucketPath`).

    The methods are those of `pathlib.Path`. A folder in a bucket exists with its files.
    """

    @property
    def name(self) -> str: ...

    @property
    def stem(self) -> str: ...

    @property
    def suffix(self) -> str: ...

    @property
    def parent(self) -> Self: ...

    @property
    def parents(self) -> Sequence[Self]: ...

    @property
    def parts(self) -> tuple[str, ...]: ...

    def __fspath__(self) -> str: ...

    def __lt__(self, other: Self, /) -> bool: ...

    def __truediv__(self, name: str, /) -> Self: ...

    def with_name(self, name: str, /) -> Self: ...

    def with_suffix(self, suffix: str, /) -> Self: ...

    def relative_to(self, folder: Self, /) -> Self: ...

    def is_relative_to(self, folder: Self, /) -> bool: ...

    def as_posix(self) -> str: ...

    def absolute(self) -> Self: ...

    def resolve(self) -> Self: ...

    def is_absolute(self) -> bool: ...

    def exists(self) -> bool: ...

    def is_file(self) -> bool: ...

    def is_dir(self) -> bool: ...

    def stat(self) -> FileStatus: ...

    def iterdir(self) -> Iterator[Self]: ...

    def glob(self, pattern: str, /) -> Iterator[Self]: ...

    def rglob(self, pattern: str, /) -> Iterator[Self]: ...

    def mkdir(self, *, parents: bool = ..., exist_ok: bool = ...) -> None: ...

    def read_bytes(self) -> bytes: ...

    def read_text(self, encoding: str | None = ..., errors: str | None = ...) -> str: ...

    def write_bytes(self, data: bytes, /) -> int: ...

    def write_text(
        self, text: str, /, encoding: str | None = ..., errors: str | None = ...
    ) -> int: ...

    def unlink(self, missing_ok: bool = ...) -> None: ...


class Status(NamedTuple):
    """Size and time of a file, named as in os.stat_result.

    Attributes:
        st_size: Bytes.
        st_mtime_ns: Time of the last change, in ns.
    """

    st_size: int
    st_mtime_ns: int

    @classmethod
    def of(cls, file: Path) -> 'Status':
        """Ask for the status of a file."""
        result = file.stat()
        return cls(result.st_size, result.st_mtime_ns)

"""The operations on folders and files that disks and buckets do in different ways."""

import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Protocol

from bert_jax.storage.path import Path


class Folder(Protocol):
    """A folder or a file: `disk_folder.DiskFolder` or `bucket_folder.BucketFolder`.

    The functions of `paths` with the same names say what the operations do.

    Attributes:
        is_on_disk: whether it is its own local copy, and the kernel has locks for it.
    """

    is_on_disk: ClassVar[bool]

    def local(self) -> pathlib.Path:
        """Return the local copy, which may not exist yet."""

    def fetch(self, patterns: Sequence[str], without: Sequence[str]) -> None:
        """Bring the local copy up to date."""

    def push(self, without: Sequence[str]) -> None:
        """Upload the changes of the local copy."""

    def drop(self) -> None:
        """Remove the local copy, unless it is the only one."""

    def sizes(self, names: Iterable[str]) -> dict[str, int]:
        """Return name → bytes for the named files in it that exist."""

    def total_bytes(self) -> int:
        """Return the size of all files below it."""

    def publish(self, partial: pathlib.Path, marker: str) -> None:
        """Give a finished file or folder this name."""

    def replace(self, partial: pathlib.Path, marker: str) -> None:
        """Give a finished folder this name, in place of a folder that has it."""

    def finished(self, marker: str) -> Sequence[Path]:
        """Return the complete folders in it."""

    def leftovers(self, marker: str) -> Sequence[Path]:
        """Return the unfinished folders that killed processes have left in it."""

    def retract(self, marker: str) -> None:
        """Remove it, so that a kill leaves it complete or as one of the leftovers."""

    def remove(self) -> None:
        """Remove it, if it exists."""

    def has_parent(self) -> bool:
        """Whether the folder that it is in exists or need not."""

    def check_writable(self) -> None:
        """Raise OSError if it is known that it cannot be written."""

    def write(self, content: bytes) -> None:
        """Write a file atomically."""

    def create(self, content: bytes) -> None:
        """Write a new file; raise FileExistsError if it exists."""

    def read_up_to(self, limit: int) -> bytes | None:
        """Read a file, unless it has more bytes than `limit`."""

    def open_bytes(self) -> Any:
        """Open a file to read its bytes."""

    def open_arrow(self) -> Any:
        """Open a file for pyarrow."""

    def matching(self) -> list[str] | None:
        """Return the files that match it as a glob; None: the caller must look on the disk."""

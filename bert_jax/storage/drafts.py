"""Folders that are written step by step and complete at once.

The draft of FOLDER on a disk is FOLDER.partial, which is renamed at the end. The draft of a folder
in a bucket has the same name: its files are written to the local copy and uploaded now and then,
the file that marks the folder as complete last.
"""

import abc
import contextlib
import os
import pathlib
import shutil
from collections.abc import Iterable, Sequence
from typing import ClassVar

from bert_jax.storage import paths
from bert_jax.storage.disk_folder import sync
from bert_jax.storage.path import Path


class Draft(abc.ABC):
    """An unfinished folder.

    Class attributes:
        save_seconds: Between saves: the most work that an interruption loses.

    Attributes:
        target: The finished folder.
        folder: The draft on this machine, which need not exist.
        shared: The draft as other machines see it.
    """

    save_seconds: ClassVar[float]
    target: Path
    folder: pathlib.Path
    shared: Path

    def fetch(self, patterns: Sequence[str], without: Sequence[str] = ()) -> None:  # noqa: B027
        """Bring files that an interrupted process has left to this machine."""

    def clear(self) -> None:
        """Replace what an interrupted process has left by an empty folder."""
        if self.folder.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True)

    def save(self, finished: Iterable[str] = ()) -> None:  # noqa: B027
        """Make the files safe from an interruption; those named may leave this machine."""

    @abc.abstractmethod
    def publish(self, marker: str, own: Sequence[str], without: str) -> None:
        """Turn the draft into the finished folder.

        Args:
            marker: The file that marks the folder as complete.
            own: Files of the draft that the finished folder does not have.
            without: A folder in the draft whose files need not be safe.
        """

    @abc.abstractmethod
    def discard(self) -> None:
        """Remove the draft after a failure."""


class DraftOnDisk(Draft):
    """FOLDER.partial."""

    save_seconds = 30.0

    def __init__(self, target: pathlib.Path):
        self.target = target
        self.shared = self.folder = target.with_name(target.name + '.partial')

    def publish(self, marker: str, own: Sequence[str], without: str) -> None:
        for path in [*self.folder.rglob('*'), self.folder]:
            if not path.is_relative_to(self.folder / without):
                sync(path)
        os.rename(self.folder, self.target)
        sync(self.target.parent)
        for name in own:
            (self.target / name).unlink(missing_ok=True)

    def discard(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class DraftInBucket(Draft):
    """A folder in a bucket without its marker."""

    save_seconds = 300.0  # each save uploads whole unfinished files

    def __init__(self, target: Path):
        self.target = self.shared = target
        self.folder = paths.local(target)

    def fetch(self, patterns: Sequence[str], without: Sequence[str] = ()) -> None:
        paths.drop(self.target)
        paths.fetch(self.target, patterns, without)

    def clear(self) -> None:
        paths.remove(self.target)
        super().clear()

    def save(self, finished: Iterable[str] = ()) -> None:
        paths.push(self.target)
        for name in finished:
            (self.folder / name).unlink(missing_ok=True)

    def publish(self, marker: str, own: Sequence[str], without: str) -> None:
        for name in own:
            (self.folder / name).unlink(missing_ok=True)
        paths.publish(self.folder, self.target, marker)
        for name in own:
            (self.target / name).unlink(missing_ok=True)

    def discard(self) -> None:
        with contextlib.suppress(OSError):  # the bucket itself may have caused the failure
            paths.remove(self.target)


def of(name: str | os.PathLike[str]) -> Draft:
    """Return the draft of a folder; nothing is read or written."""
    target = paths.path(name)
    return DraftInBucket(target) if paths.is_in_bucket(target) else DraftOnDisk(paths.local(target))

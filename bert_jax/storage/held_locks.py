"""The leases that this process holds: what it writes below one that it has lost is refused."""

from typing import Protocol

from bert_jax.storage.path import Path


class HeldLock(Protocol):
    """A lock that may be lost to another process."""

    path: Path

    def check(self) -> None:
        """Raise UserError if it is lost."""


held: set[HeldLock] = set()


def check(path: Path) -> None:
    """Raise UserError if this process has lost a lock in this folder or one above it."""
    for lock in list(held):
        if lock.path.parent in (path, *path.parents):
            lock.check()

"""Which documents are kept out of training: a rule by the hash of their text."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from bert_jax.data import corpus


def hash_limit(fraction: float) -> int:
    """Documents with a hash below it are held out."""
    return int(fraction * 2.0**64)


@dataclasses.dataclass
class Aside:
    """A document put aside, and how many copies of it were met."""

    document: corpus.Documents
    hash: int
    copies: int


class HeldOutRule:
    """Which documents of one source are held out: those whose hash falls below the fraction.

    Neither split is left empty if there are two different documents: where the hashes of all
    fall on one side, the one closest to the other side goes there, with its copies. It takes one
    pass, and holds one document in memory until both sides have been met; only such a document
    may land behind its place in the order of the source.
    """

    def __init__(self, fraction: float):
        self._limit = np.uint64(hash_limit(fraction))
        self._met: set[str] = set()
        self._aside: Aside | None = None
        self._decided_any = False

    def add(
        self, documents: corpus.Documents, hashes: np.ndarray
    ) -> Iterator[tuple[str, corpus.Documents]]:
        """Yields (split, documents) for what is decided so far; hashes are uint64 [documents]."""
        below = hashes < self._limit
        sides = {'held_out': below, 'train': ~below}
        sides = {split: chosen for split, chosen in sides.items() if chosen.any()}
        if len(self._met.union(sides)) == 2:
            for split in self._met:
                yield from self._release(split)
            for split, chosen in sides.items():
                yield split, documents.select(chosen)
        else:
            for split in sides:
                yield from self._all_but_closest(split, documents, hashes)
        self._met.update(sides)

    def _all_but_closest(self, split: str, documents: corpus.Documents, hashes: np.ndarray):
        """Keeps aside the document closest to the side that has none; yields the others."""
        closest = int(hashes.min() if split == 'train' else hashes.max())
        if self._aside and (self._aside.hash < closest) == (split == 'train'):
            closest = self._aside.hash
        if self._aside and self._aside.hash != closest:
            self._decided_any = True
            yield from self._release(split)
        same = hashes == np.uint64(closest)
        if same.any():
            first = np.arange(len(hashes)) == same.argmax()
            self._aside = self._aside or Aside(documents.select(first), closest, copies=0)
            self._aside.copies += int(same.sum())
        if not same.all():
            self._decided_any = True
            yield split, documents.select(~same)

    def _release(self, split: str):
        if self._aside:
            for _ in range(self._aside.copies):
                yield split, self._aside.document
        self._aside = None

    def finish(self) -> Iterator[tuple[str, corpus.Documents]]:
        """Yields the document still aside, for the split that would have stayed empty."""
        if self._aside and self._decided_any:
            yield from self._release('train' if 'held_out' in self._met else 'held_out')

    @property
    def undecided(self) -> Aside | None:
        """The only document of the source, if it has no two different ones."""
        return self._aside

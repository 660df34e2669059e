"""The rule that decides which documents are held out of training, by the hash of their text."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np

from bert_jax.data.corpus_writer import TokenizedDocuments
from bert_jax.errors import UserError

SplitDocuments: TypeAlias = tuple[str, TokenizedDocuments]  # ('train' or 'held_out', documents)


@dataclasses.dataclass
class DeferredDocument:
    """A document whose split is not decided yet.

    Attributes:
        document: The document.
        hash: Hash of its text, an unsigned 64-bit integer.
        copies: Number of occurrences of the document.
    """

    document: TokenizedDocuments
    hash: int
    copies: int


def hash_limit(fraction: float) -> int:
    """Return the threshold: documents whose 64-bit hash is below it are held out."""
    return int(fraction * 2.0**64)


class HeldOutRule:
    """Assigns the documents of one source to splits: hashes below a limit are held out.

    If all documents of the source are on one side of the limit, the document closest to the limit
    (with its copies) changes sides, so that each split has a document as soon as the source has
    two different ones. This takes one pass and keeps one document in memory until both sides have
    a document; only that document may be written out of order.

    Attributes:
        undecided: The document in memory; after `finish`, the only document of the source, if it
            has no two different ones.
    """

    def __init__(self, fraction: float):
        """Create the rule; `fraction` is the expected share of held-out documents."""
        self._limit = np.uint64(hash_limit(fraction))
        self._seen: set[str] = set()
        self.undecided: DeferredDocument | None = None
        self._decided_any = False

    def add(self, documents: TokenizedDocuments, hashes: np.ndarray) -> Iterator[SplitDocuments]:
        """Yield (split, documents) for the documents decided so far.

        Args:
            documents: The next documents of the source.
            hashes: uint64 [documents], hashes of their texts.
        """
        below = hashes < self._limit
        pairs = (('held_out', below), ('train', ~below))
        sides = {split: chosen for split, chosen in pairs if chosen.any()}
        if len(self._seen.union(sides)) == 2:
            for split in self._seen:
                yield from self._release(split)
            for split, chosen in sides.items():
                yield split, documents.select(chosen)
        else:
            for split in sides:
                yield from self._defer_closest(split, documents, hashes)
        self._seen.update(sides)

    def _defer_closest(
        self, split: str, documents: TokenizedDocuments, hashes: np.ndarray
    ) -> Iterator[SplitDocuments]:
        """Defer the document closest to the limit and yield the others."""
        closest = int(hashes.min() if split == 'train' else hashes.max())
        if self.undecided and (self.undecided.hash < closest) == (split == 'train'):
            closest = self.undecided.hash
        if self.undecided and self.undecided.hash != closest:
            self._decided_any = True
            yield from self._release(split)
        same = hashes == np.uint64(closest)
        if same.any():
            first = np.arange(len(hashes)) == same.argmax()
            if not self.undecided:
                self.undecided = DeferredDocument(documents.select(first), closest, copies=0)
            self.undecided.copies += int(same.sum())
        if not same.all():
            self._decided_any = True
            yield split, documents.select(~same)

    def _release(self, split: str) -> Iterator[SplitDocuments]:
        if self.undecided:
            for _ in range(self.undecided.copies):
                yield split, self.undecided.document
        self.undecided = None

    def finish(self) -> Iterator[SplitDocuments]:
        """Yield the deferred document, for the split that would be empty without it."""
        if self.undecided and self._decided_any:
            yield from self._release('train' if 'held_out' in self._seen else 'held_out')


def assign_single_documents(
    hashes: Sequence[int], fraction: float, has_held_out: bool
) -> list[str]:
    """Return the splits of sources that have a single document each.

    Args:
        hashes: Hash of each source's document.
        fraction: Expected share of held-out documents.
        has_held_out: Whether other sources have filled both splits already. The limit then
            decides; otherwise, the document with the smallest hash is held out.

    Raises:
        UserError: One of the splits would have no document.
    """
    num_distinct = len(set(hashes))
    if not has_held_out and num_distinct < 2:
        raise UserError(
            f'the sources have {num_distinct} distinct document(s) with tokens, but a held-out '
            'split needs at least two: add text, or separate it into documents with documents=…'
        )
    limit = hash_limit(fraction) if has_held_out else min(hashes) + 1
    return ['held_out' if value < limit else 'train' for value in hashes]

"""Passages that texts share, found by hashes of 13 words in a row.

A passage counts if its hash is divisible by 32, so that all texts sample the same passages
(Broder 1997, "On the resemblance and containment of documents", section 4). Line breaks, case,
punctuation and numbers, such as those of verses and pages, do not matter.
"""

import collections
import dataclasses
import pathlib
import zlib

import numpy as np
import numpy.typing as npt

WORDS = 13  # in a passage
SAMPLE = 32  # one passage in so many counts
MULTIPLIER = 0x9E3779B97F4A7C15  # odd, so that no bit of a hash is lost
LETTERS = bytes(
    byte + 32 if 65 <= byte <= 90 else byte if 97 <= byte <= 122 or byte >= 128 else 32
    for byte in range(256)
)

Hashes = npt.NDArray[np.uint64]


@dataclasses.dataclass(frozen=True)
class Book:
    """A text file, its number of words, and the hashes of its sampled passages, sorted."""

    path: pathlib.Path
    num_words: int
    passages: Hashes


def read(path: pathlib.Path) -> Book:
    text = path.read_bytes()
    words = text.translate(LETTERS).split()
    return Book(path, len(text.split()), hash_passages(words))


def hash_passages(words: list[bytes]) -> Hashes:
    """Return the distinct hashes of sampled passages, sorted."""
    hashes = np.fromiter(map(zlib.crc32, words), np.uint64, len(words))
    count = max(len(words) - WORDS + 1, 0)
    passages = np.zeros(count, np.uint64)
    for offset in range(WORDS):
        passages = passages * np.uint64(MULTIPLIER) + hashes[offset : offset + count]
    passages ^= passages >> np.uint64(29)  # the low bits of a product depend on low bits alone
    return np.unique(passages[passages % SAMPLE == 0])


def union(books: list[Book]) -> Hashes:
    """Return the distinct passages of several books, sorted."""
    empty = np.empty(0, np.uint64)
    return np.unique(np.concatenate([empty, *(book.passages for book in books)]))


def are_in(passages: Hashes, table: Hashes) -> npt.NDArray[np.bool_]:
    """Return whether a sorted table has each passage; np.isin would sort it every time."""
    if not len(table):
        return np.zeros(len(passages), bool)
    places = np.minimum(np.searchsorted(table, passages), len(table) - 1)
    return table[places] == passages


def find_shared(book: Book, others: list[Book], smallest_share: float) -> tuple[str, float] | None:
    """Return the book of `others` that shares most with this one, and the share.

    The share is that of the sampled passages of the shorter of the two books. One or two passages
    are a quotation: they are not counted.
    """
    shares = []
    for other in others:
        shared = are_in(book.passages, other.passages).sum()
        if shared > 2:
            shorter = min(len(book.passages), len(other.passages))
            shares.append((float(shared) / shorter, other.path.name))
    share, name = max(shares, default=(0.0, ''))
    return (name, share) if share > smallest_share else None


def find_repeated(books: list[Book], largest_share: float) -> dict[pathlib.Path, tuple[str, float]]:
    """Find books that are mostly contained in longer books, such as collected editions.

    Books are taken from the longest to the shortest. A book is repeated if more than
    `largest_share` of its passages are in the books that were kept before.

    Returns:
        For each repeated book, the kept book that has most of these passages, and the share of
        its passages that are in kept books.
    """
    everything = np.concatenate([book.passages for book in books])
    hashes, counts = np.unique(everything, return_counts=True)
    in_several = hashes[counts > 1]
    first: dict[int, str] = {}  # passage → the kept book that has it
    repeated = {}
    for book in sorted(books, key=lambda book: (-book.num_words, book.path.name)):
        candidates = book.passages[are_in(book.passages, in_several)].tolist()
        owners = collections.Counter(first[one] for one in candidates if one in first)
        share = owners.total() / max(len(book.passages), 1)
        if share > largest_share:
            repeated[book.path] = (owners.most_common(1)[0][0], share)
        else:
            for passage in candidates:
                first.setdefault(passage, book.path.name)
    return repeated

"""The rule that holds documents out of training, by the hash of their text."""

import bisect
import hashlib
import itertools
from collections.abc import Iterable, Mapping

import numpy as np

from bert_jax.errors import UserError

_HASHED_CHARACTERS = 2**20  # hashed at once, to save memory
# What to do about too few documents.
DIVIDE = (
    'divide a text source into more documents by ending it in ;documents=blank_line (paragraphs), '
    ';documents=line or ;documents=title:^CHAPTER (a regular expression), without held_out_by=file'
)
LEAST = 2  # documents of each language in each split: a random next sentence needs two


def text_hash(text: str) -> int:
    """Return a 64-bit hash of a text without its whitespace; see `hash_of_parts`."""
    starts = range(0, len(text), _HASHED_CHARACTERS)
    return hash_of_parts(text[start : start + _HASHED_CHARACTERS] for start in starts)


def hash_of_parts(parts: Iterable[str]) -> int:
    """Return a 64-bit hash of a text in parts, such as lines: BLAKE2b of its UTF-8 bytes.

    Whitespace is left out, so copies that are wrapped or indented differently have the same hash.
    The held-out split of every corpus depends on this function; it must not change.
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(''.join(part.split()).encode('utf-8', 'surrogatepass'))
    return int.from_bytes(digest.digest(), 'little')


class HeldOutRule:
    """Assigns documents to splits: hashes below a limit are held out, with few exceptions.

    All sources share the rule, so copies of a text are in the same split.

    Attributes:
        exceptions: Hash → whether documents with this hash are held out, regardless of the limit.
    """

    def __init__(self, fraction: float, exceptions: Mapping[int, bool] | None = None):
        """Create the rule; `fraction` is the expected share of held-out documents."""
        self._limit = np.uint64(fraction * 2.0**64)
        self.exceptions = exceptions or {}

    def is_held_out(self, hashes: np.ndarray) -> np.ndarray:
        """Return which documents are held out, bool [N], by their hashes, uint64 [N]."""
        held_out = hashes < self._limit
        for value, is_held_out in self.exceptions.items():
            held_out[hashes == np.uint64(value)] = is_held_out
        return held_out


def choose_rule(hashes: Mapping[str, Iterable[int]], fraction: float) -> HeldOutRule:
    """Return the rule that gives each language enough documents in both splits.

    Each split gets at least two different documents of a language, or one if the language has only
    two or three: the documents closest to the limit change sides. The only document of a language
    is for training, unless all languages have a single document.

    Args:
        hashes: Language → hashes of its documents; read only until both splits have enough.
        fraction: Expected share of held-out documents.

    Raises:
        UserError: There are fewer than two different documents.
    """
    limit = int(fraction * 2.0**64)
    groups = [extremes(values, fraction) for values in hashes.values()]
    if all(len(group) < 2 for group in groups):
        group = extremes(itertools.chain(*groups), fraction)
        if len(group) < 2:
            raise UserError(
                f'the sources have {len(group)} distinct document(s), but at least two are needed '
                f'to hold out a share of {fraction:g} (held_out_fraction): add text, or {DIVIDE}'
            )
        groups = [group]
    exceptions: dict[int, bool] = {}
    for group in groups:
        least = min(LEAST, len(group) // 2)
        num_held_out = min(max(bisect.bisect_left(group, limit), least), len(group) - max(least, 1))
        for place, value in enumerate(group):
            if (place < num_held_out) != (value < limit):
                exceptions[value] = place < num_held_out or exceptions.get(value, False)
    return HeldOutRule(fraction, exceptions)


def extremes(hashes: Iterable[int], fraction: float) -> list[int]:
    """Return up to LEAST smallest and LEAST largest different hashes, sorted.

    Stops as soon as LEAST hashes are below the limit of this fraction and LEAST are not.
    `choose_rule` needs no other hashes. The extremes of several sets can be combined: pass all of
    them to this function.
    """
    limit = int(fraction * 2.0**64)
    kept: list[int] = []
    for value in hashes:
        if value not in kept:
            bisect.insort(kept, value)
            del kept[LEAST:-LEAST]
            if len(kept) == 2 * LEAST and bisect.bisect_left(kept, limit) == LEAST:
                break
    return kept

"""The rule that decides which documents are held out of training, by the hash of their text."""

import bisect
import hashlib
from collections.abc import Iterable, Mapping

import numpy as np

from bert_jax.errors import UserError

_HASHED_CHARACTERS = 2**20  # at once, to save memory
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
    found = hashlib.blake2b(digest_size=8)
    for part in parts:
        found.update(''.join(part.split()).encode('utf-8', 'surrogatepass'))
    return int.from_bytes(found.digest(), 'little')


class HeldOutRule:
    """Assigns documents to splits: hashes below a limit are held out, with few exceptions.

    The rule is one for all sources, so the copies of a text are on the same side everywhere.

    Attributes:
        exceptions: Whether documents with these hashes are held out, wherever the limit is.
    """

    def __init__(self, fraction: float, exceptions: Mapping[int, bool] | None = None):
        """Create the rule.

        Args:
            fraction: Expected share of held-out documents.
            exceptions: Whether documents with these hashes are held out, wherever the limit is.
        """
        self._limit = np.uint64(fraction * 2.0**64)
        self.exceptions = exceptions or {}

    def is_held_out(self, hashes: np.ndarray) -> np.ndarray:
        """Return which documents are held out, bool [N], by their hashes, uint64 [N]."""
        held_out = hashes < self._limit
        for value, side in self.exceptions.items():
            held_out[hashes == np.uint64(value)] = side
        return held_out


def choose_rule(hashes: Mapping[str, Iterable[int]], fraction: float) -> HeldOutRule:
    """Return the rule that gives each language enough documents in both splits.

    Each split gets at least two different documents of a language, one if the language has only
    two or three: those closest to the limit change sides. The only document of a language is for
    training, unless all languages have a single document.

    Args:
        hashes: Language → hashes of its documents; read only until both splits have enough.
        fraction: Expected share of held-out documents.

    Raises:
        UserError: There are fewer than two different documents.
    """
    limit = int(fraction * 2.0**64)
    found_extremes = [extremes(values, fraction) for values in hashes.values()]
    if all(len(found) < 2 for found in found_extremes):
        together = extremes((value for found in found_extremes for value in found), fraction)
        if len(together) < 2:
            raise UserError(
                f'the sources have {len(together)} distinct document(s), but a held-out split '
                'needs at least two: add text, or separate it into documents with documents=…'
            )
        found_extremes = [together]
    exceptions: dict[int, bool] = {}
    for found in found_extremes:
        least = min(LEAST, len(found) // 2)
        number = min(max(bisect.bisect_left(found, limit), least), len(found) - max(least, 1))
        for place, value in enumerate(found):
            if (place < number) != (value < limit):
                exceptions[value] = place < number or exceptions.get(value, False)
    return HeldOutRule(fraction, exceptions)


def extremes(hashes: Iterable[int], fraction: float) -> list[int]:
    """Return the smallest and largest different hashes, up to LEAST of each, sorted.

    Stops as soon as LEAST are below the limit of this fraction and as many are not. `choose_rule`
    needs no other hashes; those of several parts of a text may be combined.
    """
    limit = int(fraction * 2.0**64)
    found: list[int] = []
    for value in hashes:
        if value not in found:
            bisect.insort(found, value)
            del found[LEAST:-LEAST]
            if len(found) == 2 * LEAST and bisect.bisect_left(found, limit) == LEAST:
                break
    return found

"""Samples the text to train a vocabulary on: random lines in given shares of languages.

Whether a line is drawn depends on a random number, a hash of its document and its position there.
The sample is therefore the same for any number of machines and any division of the text among them.
"""

import collections
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from bert_jax.text import languages

LEVELS = 54  # a line has level k or higher with probability 2^-k


class LanguageShare(NamedTuple):
    """How much text of a language is drawn.

    Attributes:
        repeats: How often the whole text is taken.
        below: Lines with a random number below this are taken once more; 2^64 takes all lines.
    """

    repeats: int
    below: int

    @property
    def passes(self) -> int:
        """How often the text is read."""
        return self.repeats + bool(self.below)


def sample(texts: Iterable[str], limit: int) -> Iterator[str]:
    """Yield random lines of a stream of texts, about limit / 2 to `limit` characters.

    The lines stay in order, and the lines of a text stay together. All lines are yielded if they
    have at most `limit` characters; otherwise at least one line is.
    """
    kept: collections.deque[tuple[str, np.ndarray]] = collections.deque()
    characters = np.zeros(LEVELS, np.int64)
    level = 0
    for text in texts:
        levels, text_characters = _measure(text)
        characters += text_characters
        kept.append((text, levels))
        if level < (level := _first_level(characters, limit)):
            kept = collections.deque(_select(text, levels, level) for text, levels in kept)
        else:
            kept[-1] = _select(text, levels, level)
    while kept:
        text, levels = kept.popleft()  # frees it
        if len(levels):
            yield text


def count_characters(texts: Iterable[str]) -> np.ndarray:
    """Return the number of characters in the lines of each level, int64 [LEVELS]."""
    total = np.zeros(LEVELS, np.int64)
    for text in texts:
        total += _measure(text)[1]
    return total


def choose_shares(
    characters: Mapping[str, np.ndarray], alpha: float, limit: int
) -> dict[str, LanguageShare]:
    """Return how much text of each language is drawn.

    Languages have the shares q_i ∝ p_i^alpha, where p_i is the share of characters. The text of a
    language is repeated if it is shorter than its share. With a single language, or alpha = 1, the
    lines are the same as from `sample`.

    Args:
        characters: For each language, the result of `count_characters` for its text.
        alpha: Exponent, 0 ≤ alpha ≤ 1.
        limit: Maximum number of characters; at most the total of the texts is drawn.

    Raises:
        UserError: alpha is invalid, or a language has no text.
    """
    if alpha == 1 or len(characters) == 1:
        level = _first_level(np.sum(list(characters.values()), axis=0), limit)
        return dict.fromkeys(characters, LanguageShare(0, 2 ** (64 - level)))
    amounts = [int(counts.sum()) for counts in characters.values()]
    sizes = languages.shares(amounts, alpha) * min(sum(amounts), limit)
    return {
        language: LanguageShare(int(size // amount), int(size % amount / amount * 2**64))
        for language, amount, size in zip(characters, amounts, sizes, strict=True)
    }


def draw_lines(texts: Iterable[str], below: int) -> Iterator[str]:
    """Yield the lines of each text whose random number is below `below`, if there are any."""
    for text in texts:
        if below == 2**64:
            yield text
        elif below:
            lines = text.split('\n')
            chosen = _numbers(text, len(lines)) < np.uint64(below)
            if chosen.any():
                yield '\n'.join(itertools.compress(lines, chosen))


def mixture(
    texts: Mapping[str, Callable[[], Iterator[str]]], shares: Mapping[str, LanguageShare]
) -> Iterator[str]:
    """Yield text of all languages in these amounts.

    Args:
        texts: For each language, a function that streams its texts; see `LanguageShare.passes`.
        shares: See `choose_shares`.
    """
    for language, share in shares.items():
        for _ in range(share.repeats):
            yield from texts[language]()
        if share.below:
            yield from draw_lines(texts[language](), share.below)


def _numbers(text: str, count: int) -> np.ndarray:
    """A random number for each of the `count` lines of a text: uint64 [count].

    Splitmix64 (Steele et al. 2014, "Fast splittable pseudorandom number generators") with a hash
    of the text as its seed.
    """
    seed = hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=8).digest()
    state = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state += np.frombuffer(seed, '<u8')
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def _measure(text: str) -> tuple[np.ndarray, np.ndarray]:
    """The level of each line, int8 [lines], and the characters of each level, int64 [LEVELS].

    The level of a line is the number of leading zeros of its random number, up to LEVELS - 1.
    """
    lines = text.split('\n')
    numbers = _numbers(text, len(lines))
    bits = np.frexp((numbers >> np.uint64(11)).astype(np.float64))[1]
    levels = (LEVELS - 1 - bits).astype(np.int8)
    characters = np.zeros(LEVELS, np.int64)
    np.add.at(characters, levels, list(map(len, lines)))
    return levels, characters


def _first_level(characters: np.ndarray, limit: int) -> int:
    """The lowest level with at most `limit` characters in the lines of this level or higher.

    The result is at most the highest level that has a line.
    """
    above = np.cumsum(characters[::-1])[::-1]
    return min(int(np.sum(above > limit)), int(np.flatnonzero(characters).max(initial=0)))


def _select(text: str, levels: np.ndarray, level: int) -> tuple[str, np.ndarray]:
    """The lines of a text with this level or higher, and their levels."""
    chosen = levels >= level
    if chosen.all():
        return text, levels
    return '\n'.join(itertools.compress(text.split('\n'), chosen)), levels[chosen]

"""The text a vocabulary is trained on: random lines, with each language in a given share.

Whether a line is drawn depends on a number made from its document and its place there. The sample
is therefore the same however many machines draw it, in whatever pieces they read the text.
"""

import collections
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from bert_jax.data import languages

TRAINING_CHARACTERS = 2**26  # of a longer text, lines of about this length are drawn
LEVELS = 54  # a line of level k, or a higher one, has the probability 2^-k


class Share(NamedTuple):
    """How much of a language is drawn.

    Attributes:
        repeats: How often all of its text is taken.
        below: Besides, lines with a number below this are taken; 2^64 takes all.
    """

    repeats: int
    below: int


def sample(texts: Iterable[str], limit: int) -> Iterator[str]:
    """Yield random lines of a stream of texts, about limit / 2 to `limit` characters.

    They stay in order, and those of a text stay together. All are yielded if they are not longer
    than the limit, and at least one if they are.
    """
    kept: collections.deque[tuple[str, np.ndarray]] = collections.deque()
    characters = np.zeros(LEVELS, np.int64)
    level = 0
    for text in texts:
        lines = text.split('\n')
        levels = _levels(_numbers(text, len(lines)))
        characters += _characters(lines, levels)
        kept.append((text, levels))
        if level < (level := _first_level(characters, limit)):
            kept = collections.deque(_select(*own, level) for own in kept)
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
        lines = text.split('\n')
        total += _characters(lines, _levels(_numbers(text, len(lines))))
    return total


def choose_shares(
    characters: Mapping[str, np.ndarray], alpha: float, limit: int
) -> dict[str, Share]:
    """Return how much of each language is drawn.

    Languages have the shares q_i ∝ p_i^alpha, p_i by characters. One whose share is more than its
    text is repeated. With a single language, or alpha = 1, the lines are those of `sample`.

    Args:
        characters: For each language, what `count_characters` returns for its text.
        alpha: Exponent, 0 ≤ alpha ≤ 1.
        limit: Maximum number of characters; the total of the texts if that is less.

    Raises:
        UserError: alpha is invalid, or a language has no text.
    """
    if alpha == 1 or len(characters) == 1:
        level = _first_level(np.sum(list(characters.values()), axis=0), limit)
        return dict.fromkeys(characters, Share(0, 2 ** (64 - level)))
    amounts = [int(counts.sum()) for counts in characters.values()]
    wanted = languages.shares(amounts, alpha) * min(sum(amounts), limit)
    return {
        language: Share(int(size // amount), int(size % amount / amount * 2**64))
        for language, amount, size in zip(characters, amounts, wanted, strict=True)
    }


def draw_lines(texts: Iterable[str], below: int) -> Iterator[str]:
    """Yield the lines of each text with a number below this, if there are any."""
    for text in texts:
        if below == 2**64:
            yield text
        elif below:
            lines = text.split('\n')
            chosen = _numbers(text, len(lines)) < np.uint64(below)
            if chosen.any():
                yield '\n'.join(itertools.compress(lines, chosen))


def mixture(
    texts: Mapping[str, Callable[[], Iterator[str]]], alpha: float, limit: int
) -> Iterator[str]:
    """Yield the text of all languages as `choose_shares` says.

    Args:
        texts: For each language, a function that streams its texts. It is called at least twice.
        alpha: See `choose_shares`.
        limit: See `choose_shares`.
    """
    characters = {language: count_characters(stream()) for language, stream in texts.items()}
    for language, share in choose_shares(characters, alpha, limit).items():
        for _ in range(share.repeats):
            yield from texts[language]()
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


def _levels(numbers: np.ndarray) -> np.ndarray:
    """The leading zeros of each number, up to LEVELS - 1."""
    bits = np.frexp((numbers >> np.uint64(11)).astype(np.float64))[1]
    return (LEVELS - 1 - bits).astype(np.int8)


def _characters(lines: list[str], levels: np.ndarray) -> np.ndarray:
    lengths = np.fromiter(map(len, lines), np.int64, len(lines))
    found = np.zeros(LEVELS, np.int64)
    np.add.at(found, levels, lengths)
    return found


def _first_level(characters: np.ndarray, limit: int) -> int:
    """The lowest level from which on there are at most `limit` characters, but at least a line."""
    above = np.cumsum(characters[::-1])[::-1]
    return min(int(np.sum(above > limit)), int(np.flatnonzero(characters).max(initial=0)))


def _select(text: str, levels: np.ndarray, level: int) -> tuple[str, np.ndarray]:
    """The lines of a text from a level on, and their levels."""
    chosen = levels >= level
    if chosen.all():
        return text, levels
    return '\n'.join(itertools.compress(text.split('\n'), chosen)), levels[chosen]

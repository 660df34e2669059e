"""Mixtures of languages with the shares of `text.languages`, exact in every block of examples."""

import collections
import copy
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from bert_jax import sampling
from bert_jax.errors import UserError
from bert_jax.examples.example_source import ExampleSource
from bert_jax.text.languages import largest_remainder, shares

BLOCK = 1000  # examples in which every language has its share, rounded up or down
BLOCKS = 1000  # blocks in a period, over which the rounding cancels out
_STRIDE = 617  # spreads the blocks that round up; coprime to BLOCKS
_PERIOD = BLOCK * BLOCKS


def counts_per_block(count_L: np.ndarray) -> np.ndarray:
    """Distribute counts over blocks: every entry is count / BLOCKS, rounded down or up.

    The remainders are distributed by systematic sampling: they are laid end to end on a line, and
    in each block the languages whose remainder contains a multiple of BLOCKS, minus the block's
    offset, get one more. Each offset occurs once, so the columns have the right sums.

    Args:
        count_L: int64 [L] with the sum BLOCK · BLOCKS.

    Returns:
        int64 [BLOCKS, L], whose rows have the sum BLOCK and whose columns have the sums count_L.
    """
    whole_L, rest_L = np.divmod(count_L, BLOCKS)
    edge_L = np.concatenate([[0], np.cumsum(rest_L)])
    offset_N = np.arange(BLOCKS) * _STRIDE % BLOCKS
    return whole_L + np.diff((edge_L + offset_N[:, None]) // BLOCKS, axis=1)


class Mixture(ExampleSource):
    """Examples of several languages; each language has its own source and epochs.

    Example n is the k-th of its language; the language and k are functions of (seed, n). In every
    block of BLOCK examples each language has its share, rounded down or up, in a random order; in a
    period of BLOCK · BLOCKS examples the counts are as `largest_remainder` rounds them. The pattern
    of languages, not the examples, repeats after a period. Uses 5 MB of memory.

    Attributes:
        batch_size: Rows of a global batch.
        num_examples: Total of the epochs of all languages.
        shares: Share q_i of each language; p_i is its share of the examples in an epoch.
    """

    def __init__(self, sources: dict[str, ExampleSource], alpha: float, batch_size: int, seed: int):
        """Mix the sources of languages; raise UserError if one would never occur."""
        self.batch_size = batch_size
        self._sources = sources
        amounts = [source.num_examples for source in sources.values()]
        self.num_examples = sum(amounts)
        shares_L = shares(amounts, alpha)
        self.shares = dict(zip(sources, shares_L.tolist(), strict=True))
        self._count_L = largest_remainder(shares_L, _PERIOD)
        for language, count in zip(sources, self._count_L, strict=True):
            if not count:
                raise UserError(
                    f'language {language!r} would be less than one in {_PERIOD:,} examples: '
                    'decrease language_alpha'
                )
        self._language_N, self._rank_N = _pattern(self._count_L, seed)
        self._shift_L = np.zeros(len(sources), np.int64)

    def continuing(self, seen: Mapping[str, int], number: int) -> 'Mixture':
        """Return this mixture, to follow `number` examples of mixtures with other shares.

        Each language continues with the example after its last.

        Args:
            seen: Examples of each language in the run before.
            number: Number of the next example; those before it are not meant to be read.
        """
        mixture, observed = copy.copy(self), self.observed(number)
        shifts = [seen[language] - observed[language] for language in self.shares]
        mixture._shift_L = np.array(shifts, np.int64)
        return mixture

    def observed(self, num_examples: int) -> dict[str, int]:
        """Return how many of the first `num_examples` examples each language has."""
        periods, rest = divmod(num_examples, _PERIOD)
        count_L = np.bincount(self._language_N[:rest], minlength=len(self._sources))
        return dict(zip(self.shares, (count_L + periods * self._count_L).tolist(), strict=True))

    def language_shares(self, number: int) -> dict[str, tuple[float, float]]:
        seen = self.observed(number)
        return {name: (seen[name] / number, share) for name, share in self.shares.items()}

    def examples(self, number_B: np.ndarray) -> dict[str, np.ndarray]:
        """Return the examples of the sources; example_index is the number modulo 2^31."""
        period_B, place_B = np.divmod(number_B, _PERIOD)
        language_B = self._language_N[place_B]
        nth_B = period_B * self._count_L[language_B] + self._rank_N[place_B]
        nth_B = np.maximum(nth_B + self._shift_L[language_B], 0)
        parts, rows = [], []
        for language, source in enumerate(self._sources.values()):
            row_R = np.flatnonzero(language_B == language)
            if row_R.size:
                rows.append(row_R)
                parts.append(source.examples(nth_B[row_R]))
        order_B = np.argsort(np.concatenate(rows))
        batch = {name: np.concatenate([part[name] for part in parts])[order_B] for name in parts[0]}
        batch['example_index'] = (number_B % 2**31).astype(np.int32)
        return batch

    def statistics(self) -> dict[str, int]:
        """Return the sums of the counts of all sources."""
        total: collections.Counter[str] = collections.Counter()
        for source in self._sources.values():
            total.update(source.statistics())
        return dict(total)


def mix_languages(
    make: Callable[[str, int], ExampleSource],
    names: Iterable[str],
    alpha: float,
    batch_size: int,
    seed: int,
) -> ExampleSource:
    """Return a source of examples in which languages have the shares q_i ∝ p_i^alpha.

    The source of a language reads only text in this language, so random next sentences are in the
    same language.

    Args:
        make: make(language, seed) returns the source of a language.
        names: Languages.
        alpha: Exponent, 0 ≤ alpha ≤ 1.
        batch_size: Rows of a global batch.
        seed: Seed of the mixture and of all sources.

    Raises:
        UserError: alpha is invalid, or `make` failed for a language.
    """
    sources = {}
    for number, name in enumerate(names):
        try:
            sources[name] = make(name, int(sampling.key(seed, number)[0]))
        except UserError as error:
            raise UserError(f'language {name!r}: {error}') from None
    return Mixture(sources, alpha, batch_size, seed)


def _pattern(count_L: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The language of each example in a period (uint16) and its rank in the language (int32)."""
    block_NL = counts_per_block(count_L)
    language = np.tile(np.arange(len(count_L), dtype=np.uint16), BLOCKS)
    language_NE = np.repeat(language, block_NL.ravel()).reshape(BLOCKS, BLOCK)
    bits = sampling.random_bits(sampling.key(seed), np.arange(_PERIOD), lanes=1)
    order_NE = np.argsort(bits.reshape(BLOCKS, BLOCK), axis=1)
    language_N = np.take_along_axis(language_NE, order_NE, axis=1).ravel()
    rank_N = np.empty(_PERIOD, np.int32)
    first_L = np.cumsum(count_L) - count_L
    by_language_N = np.argsort(language_N, kind='stable')
    rank_N[by_language_N] = np.arange(_PERIOD) - np.repeat(first_L, count_L)
    return language_N, rank_N

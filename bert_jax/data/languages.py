"""Languages in chosen shares: q_i ∝ p_i^alpha, exact in every block of examples.

p_i is a language's share of the text and alpha the smoothing of XLM (Conneau and Lample 2019,
section 3.1): 1 keeps the shares, 0 makes all alike; XLM-R used .3.
"""

import collections
from collections.abc import Callable, Iterable

import numpy as np

from bert_jax.data import sampling
from bert_jax.data.example_source import Examples
from bert_jax.errors import UserError

BLOCK = 1000  # examples in which every language has its share, rounded up or down
BLOCKS = 1000  # after so many blocks the rounding has evened out and the counts come again
_STRIDE = 617  # spreads the blocks that round up; no common divisor with BLOCKS
_PERIOD = BLOCK * BLOCKS


def shares(amounts, alpha: float) -> np.ndarray:
    """q_i ∝ (amount_i / Σ amounts)^alpha, float64 [L]. Raises UserError unless 0 ≤ alpha ≤ 1 and
    every amount is above 0."""
    check_alpha(alpha)
    amounts_L = np.asarray(amounts, np.float64)
    if not (amounts_L > 0).all():
        raise UserError('a language without any text cannot have a share')
    powers_L = (amounts_L / amounts_L.sum()) ** alpha
    return powers_L / powers_L.sum()


def check_alpha(alpha: float):
    """Raises UserError unless 0 ≤ alpha ≤ 1."""
    if not 0 <= alpha <= 1:
        raise UserError(
            f'language_alpha is {alpha}; it must lie between 0 (all languages alike) and 1 (by '
            'amount)'
        )


def largest_remainder(shares_L: np.ndarray, total: int) -> np.ndarray:
    """int64 [L] with sum `total`: shares · total rounded down, or up where the remainder is among
    the largest."""
    exact_L = shares_L * total
    count_L = np.floor(exact_L).astype(np.int64)
    order_L = np.argsort(count_L - exact_L, kind='stable')
    count_L[order_L[: total - count_L.sum()]] += 1
    return count_L


def counts_per_block(count_L: np.ndarray) -> np.ndarray:
    """int64 [BLOCKS, L]: rows with sum BLOCK and columns with sum count_L (of sum BLOCK · BLOCKS),
    every entry count / BLOCKS rounded down or up.

    What rounding down leaves over is given out by systematic sampling: with the remainders laid
    end to end on a line, a block gives one more to each of those that a multiple of BLOCKS, less
    the block's offset, falls into. Each offset occurs once, so that all columns come out.
    """
    whole_L, rest_L = np.divmod(count_L, BLOCKS)
    edge_L = np.concatenate([[0], np.cumsum(rest_L)])
    offset_N = np.arange(BLOCKS) * _STRIDE % BLOCKS
    return whole_L + np.diff((edge_L + offset_N[:, None]) // BLOCKS, axis=1)


class Mixture(Examples):
    """Examples of several languages, each from a source of its own, which has its own epochs.

    Example n is the k-th one of its language; language and k follow from (seed, n). In every BLOCK
    examples from a multiple of it on each language has its share, rounded down or up, in an order
    drawn for each block; in BLOCK · BLOCKS examples the counts are those of `largest_remainder`.
    Then the pattern of languages comes again (not the examples). Uses 5 MB of memory.

    Attributes:
      shares: language → q_i, with p_i by examples in an epoch.
      num_examples: an epoch of every language.

    Raises UserError for a bad alpha and for a language that would never come.
    """

    def __init__(self, sources: dict[str, Examples], alpha: float, batch_size: int, seed: int):
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
                    f'language {language!r} would have less than one in {_PERIOD:,} examples: '
                    'lower language_alpha'
                )
        self._language_N, self._rank_N = _pattern(self._count_L, seed)

    def language_of(self, number_B: np.ndarray) -> np.ndarray:
        """Which language (its place in `shares`) examples are of, int64 [B]."""
        return self._language_N[number_B % _PERIOD].astype(np.int64)

    def observed(self, num_examples: int) -> dict[str, int]:
        """How many of the first examples are of each language."""
        periods, rest = divmod(num_examples, _PERIOD)
        count_L = np.bincount(self._language_N[:rest], minlength=len(self._sources))
        return dict(zip(self.shares, (count_L + periods * self._count_L).tolist(), strict=True))

    def examples(self, number_B: np.ndarray) -> dict[str, np.ndarray]:
        """The examples of these numbers, as the sources make them; example_index is the number
        modulo 2^31."""
        period_B, place_B = np.divmod(number_B, _PERIOD)
        language_B = self._language_N[place_B]
        nth_B = period_B * self._count_L[language_B] + self._rank_N[place_B]
        batch = {}
        for language, source in enumerate(self._sources.values()):
            row_R = np.flatnonzero(language_B == language)
            if not row_R.size:
                continue
            for name, array in source.examples(nth_B[row_R]).items():
                if name not in batch:
                    batch[name] = np.empty((len(number_B), *array.shape[1:]), array.dtype)
                batch[name][row_R] = array
        batch['example_index'] = (number_B % 2**31).astype(np.int32)
        return batch

    def statistics(self) -> dict[str, int]:
        """The counts of all sources together."""
        total = collections.Counter()
        for source in self._sources.values():
            total.update(source.statistics())
        return dict(total)


def mixed(
    make: Callable[[str | None, int], Examples],
    names: Iterable[str],
    alpha: float,
    batch_size: int,
    seed: int,
) -> Examples:
    """A source of examples of languages in shares q_i ∝ p_i^alpha.

    make(language, seed) gives the source of one language, and make(None, seed), which is the
    result if there is one language only, that of the whole text. As each language's source knows
    its own text alone, a random next sentence is of the same language too.

    Raises UserError for a bad alpha, and what `make` raises, with the language's name.
    """
    check_alpha(alpha)
    names = list(names)
    if len(names) == 1:
        return make(None, seed)
    sources = {}
    for number, name in enumerate(names):
        try:
            sources[name] = make(name, int(sampling.key(seed, number)[0]))
        except UserError as error:
            raise UserError(f'language {name!r}: {error}') from None
    return Mixture(sources, alpha, batch_size, seed)


def _pattern(count_L: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The language of each example of a period (uint16) and how many of it came before (int32)."""
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

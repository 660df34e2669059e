"""Masking of whole words and of n-grams, as in the code of BERT and ALBERT.

Local letters: W slots for the words of a row, N words of an n-gram.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.objectives.masking_schemes import (
    BudgetedScheme,
    ChosenPositions,
    RowWords,
    TokenRow,
    draw_lengths,
    find_words,
    lowest_ranks,
)
from bert_jax.types import Key

BEYOND = np.iinfo(np.int32).max  # number of tokens that no budget allows


@dataclasses.dataclass(frozen=True)
class WholeWords(BudgetedScheme):
    """Whole words in random order, skipping words that exceed the remaining number.

    Source: google-research/bert create_pretraining_data.py with do_whole_word_mask.
    """

    needs_words = True

    def choose(self, key: Key, row: TokenRow, num_predictions: int) -> ChosenPositions:
        words, slots = find_words(row), row.input_ids_T.shape
        tokens_1W = ngram_tokens(jnp.ones(slots, jnp.int32), words, row, 1)
        return self._take(jax.random.uniform(key, slots), tokens_1W, words, row, num_predictions)

    def _take(
        self,
        draws_W: jax.Array,
        tokens_NW: jax.Array,
        words: RowWords,
        row: TokenRow,
        num_predictions: int,
    ) -> ChosenPositions:
        """Choose the tokens of n-grams; see `take_ngrams`."""
        number_T = jnp.broadcast_to(self.num_to_choose(row, num_predictions), draws_W.shape)
        budget_W = number_T.at[words.first_W].get(mode='fill', fill_value=0)
        ids_T = self.budget_ids(row)
        ids_W = jnp.zeros_like(budget_W) if ids_T is None else _at_words(ids_T, words)
        rank_W = take_ngrams(draws_W, tokens_NW, ids_W, budget_W)
        return _tokens_of(rank_W, words, row, num_predictions)


@dataclasses.dataclass(frozen=True)
class Ngrams(WholeWords):
    """N-grams of words, p(n) ∝ 1/n for n ≤ longest_ngram (Lan et al. 2020, section 4.1).

    One n-gram is drawn for each word of the row, and n-grams are tried in random order. An n-gram
    that exceeds the remaining number of tokens is shortened by words; an n-gram whose first word
    does not fit, or that overlaps an earlier n-gram, is skipped. N-grams end with their sequence,
    but may reach across a [SEP].

    Source: google-research/albert create_pretraining_data.py, create_masked_lm_predictions.

    Attributes:
        longest_ngram: Maximum length of an n-gram in words.
    """

    longest_ngram: int

    def choose(self, key: Key, row: TokenRow, num_predictions: int) -> ChosenPositions:
        order_key, length_key = jax.random.split(key)
        words, slots = find_words(row), row.input_ids_T.shape
        lengths_W = draw_lengths(length_key, self.probabilities(), slots)
        tokens_NW = ngram_tokens(lengths_W, words, row, self.longest_ngram)
        draws_W = jax.random.uniform(order_key, slots)
        return self._take(draws_W, tokens_NW, words, row, num_predictions)

    def probabilities(self) -> np.ndarray:
        """Return p(n) for n = 1 … longest_ngram."""
        p = 1 / np.arange(1, self.longest_ngram + 1)
        return np.asarray(p / p.sum())


def ngram_tokens(lengths_W: jax.Array, words: RowWords, row: TokenRow, longest: int) -> jax.Array:
    """Count the tokens in the first words of the n-gram that starts at each word.

    Args:
        lengths_W: int32, number of words of each n-gram; n-grams end with their sequence.
        words: The words of `row`.
        row: The row.
        longest: Maximum of `lengths_W`, N.

    Returns:
        int32 [N, W]: entry [n, w] is for n + 1 words from w on; BEYOND after the n-gram.
    """
    segment_ids_T = jnp.zeros_like(row.input_ids_T)
    if row.segment_ids_T is not None:
        segment_ids_T = row.segment_ids_T
    segment_W = _at_words(segment_ids_T, words)
    is_same_NW = (segment_W >= 0) & (_ahead(segment_W, longest, -1) == segment_W)
    is_inside_NW = is_same_NW & (jnp.arange(longest)[:, None] < lengths_W)
    tokens_NW = jnp.cumsum(_ahead(words.stop_W - words.first_W, longest, 0), axis=0)
    return jnp.where(is_inside_NW, tokens_NW, BEYOND)


def take_ngrams(
    draws_W: jax.Array, tokens_NW: jax.Array, budget_ids_W: jax.Array, budget_W: jax.Array
) -> jax.Array:
    """Take n-grams in the order of their draws while they fit and do not overlap.

    Args:
        draws_W: float32, the draw of the n-gram that starts at each word; the lowest comes first.
        tokens_NW: See `ngram_tokens`.
        budget_ids_W: int32, n-grams with the same id share a budget.
        budget_W: int32, the number of tokens to take.

    Returns:
        int32 [W], the rank of the n-gram that took each word; W if none did.
    """
    longest, slots = tokens_NW.shape
    n_N1 = jnp.arange(longest)[:, None]
    rank_W = _inverse(jnp.argsort(draws_W))
    order_W = jnp.lexsort((draws_W, budget_ids_W))  # by budget, and within a budget by draw
    place_W, ordered_ids_W = _inverse(order_W), budget_ids_W[order_W]
    start_W = jnp.searchsorted(ordered_ids_W, ordered_ids_W)

    def takers(num_words_W: jax.Array) -> jax.Array:
        return _lowest_cover(jnp.where(n_N1 < num_words_W, rank_W, slots))

    def update(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        """Take n-grams, given how many words the n-grams before them took in the last pass.

        Each pass settles at least one more n-gram of each budget, in practice almost all of them.
        """
        before_W, _ = state
        # What the n-grams with lower draws leave of each budget, if they are as in the last pass.
        used_W = jnp.max(jnp.where(n_N1 < before_W, tokens_NW, 0), axis=0)
        sums_W = jnp.pad(jnp.cumsum(used_W[order_W]), (1, 0))
        left_W = budget_W - (sums_W[:-1] - sums_W[start_W])[place_W]
        fits_NW = tokens_NW <= left_W
        # An n-gram is taken whole or not at all: no n-gram before it may have any of its words.
        is_free_NW = _ahead(takers(before_W), longest, slots) >= rank_W
        is_free_W = jnp.all(is_free_NW | ~fits_NW, axis=0)
        num_words_W = jnp.where(is_free_W, jnp.sum(fits_NW, axis=0), 0)
        return num_words_W, jnp.any(num_words_W != before_W)

    everything = (jnp.sum(tokens_NW < BEYOND, axis=0), jnp.bool_(True))
    num_words_W, _ = jax.lax.while_loop(lambda state: state[1], update, everything)
    return takers(num_words_W)


def _at_words(values_T: jax.Array, words: RowWords) -> jax.Array:
    """[W]: the values at the first token of each word; −1 in unused slots."""
    return values_T.at[words.first_W].get(mode='fill', fill_value=-1)


def _ahead(values_W: jax.Array, longest: int, fill: int) -> jax.Array:
    """[N, W]: the values of the N words that start at each word; `fill` beyond the last word."""
    padded = jnp.pad(values_W, (0, longest - 1), constant_values=fill)
    return jnp.stack([padded[n : n + len(values_W)] for n in range(longest)])


def _lowest_cover(rank_NW: jax.Array) -> jax.Array:
    """[W]: the lowest rank of the n-grams that cover each word.

    Entry [n, w] of `rank_NW` is the rank of the n-gram that starts at w, W if it has no word n.
    """
    longest, slots = rank_NW.shape
    padded_NX = jnp.pad(rank_NW, ((0, 0), (longest - 1, 0)), constant_values=slots)
    starts = [longest - 1 - n for n in range(longest)]
    shifted = [padded_NX[n, start : start + slots] for n, start in enumerate(starts)]
    return jnp.min(jnp.stack(shifted), axis=0)


def _inverse(order_W: jax.Array) -> jax.Array:
    """The place of each index in a permutation."""
    return jnp.zeros_like(order_W).at[order_W].set(jnp.arange(len(order_W), dtype=order_W.dtype))


def _tokens_of(
    rank_W: jax.Array, words: RowWords, row: TokenRow, num_predictions: int
) -> ChosenPositions:
    """Choose the tokens of the words that `take_ngrams` took, in the order of the draws."""
    slots = len(rank_W)
    rank_T = jnp.where(row.can_choose_T, rank_W[words.index_T], slots)
    positions_T = lowest_ranks(rank_T, slots)
    positions_P, number = positions_T[:num_predictions], jnp.sum(rank_T < slots)
    # The budgets of several sequences may add up to more than the limit: cut at a whole word.
    first_left_out = positions_T[min(num_predictions, slots - 1)]
    is_cut_P = words.index_T[positions_P] == words.index_T[first_left_out]
    num_cut = jnp.where(number > num_predictions, jnp.sum(is_cut_P), 0)
    return ChosenPositions(positions_P, jnp.minimum(number, num_predictions) - num_cut)

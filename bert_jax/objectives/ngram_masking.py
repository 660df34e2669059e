"""Masking of whole words and of n-grams, as in the code of BERT and ALBERT.

Local letters: W slots for the words of a row, N words of an n-gram.
"""

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.objectives.token_rows import (
    ChosenPositions,
    RowWords,
    TokenRow,
    draw_lengths,
    find_words,
    lowest_ranks,
    num_to_choose,
)
from bert_jax.types import Key

if TYPE_CHECKING:
    from bert_jax.objectives.masking import Masking


def choose_words(
    key: Key, row: TokenRow, masking: 'Masking', num_predictions: int
) -> ChosenPositions:
    """Choose whole words in random order, skipping words that exceed the remaining number.

    Source: google-research/bert create_pretraining_data.py with do_whole_word_mask.
    """
    words = find_words(row.input_ids_T, row.can_choose_T, masking.is_word_start)
    draws_W = jax.random.uniform(key, (len(row.input_ids_T),))
    lengths_W = jnp.ones(len(row.input_ids_T), jnp.int32)
    rank_W = take_ngrams(draws_W, lengths_W, words, row, masking, 1, num_predictions)
    return _tokens_of(rank_W, words, row, num_predictions)


def choose_ngrams(
    key: Key, row: TokenRow, masking: 'Masking', num_predictions: int
) -> ChosenPositions:
    """Choose n-grams of words, p(n) ∝ 1/n for n ≤ longest_ngram (Lan et al. 2020, section 4.1).

    One n-gram is drawn for each word of the row, and n-grams are tried in random order. An n-gram
    that exceeds the remaining number of tokens is shortened by words; an n-gram whose first word
    does not fit, or that overlaps an earlier n-gram, is skipped. N-grams end with their sequence,
    but may reach across a [SEP].

    Source: google-research/albert create_pretraining_data.py, create_masked_lm_predictions.
    """
    order_key, length_key = jax.random.split(key)
    words = find_words(row.input_ids_T, row.can_choose_T, masking.is_word_start)
    slots = (len(row.input_ids_T),)
    lengths_W = draw_lengths(length_key, ngram_lengths(masking), slots)
    draws_W = jax.random.uniform(order_key, slots)
    rank_W = take_ngrams(
        draws_W, lengths_W, words, row, masking, masking.longest_ngram, num_predictions
    )
    return _tokens_of(rank_W, words, row, num_predictions)


def take_ngrams(
    draws_W: jax.Array,
    lengths_W: jax.Array,
    words: RowWords,
    row: TokenRow,
    masking: 'Masking',
    longest: int,
    num_predictions: int,
) -> jax.Array:
    """Take n-grams in the order of `draws_W` while they fit and do not overlap.

    Args:
        draws_W: float32, the random draw of the n-gram that starts at each word.
        lengths_W: int32, the number of words of that n-gram.
        words: The words of `row`.
        longest: Maximum of `lengths_W`.
        num_predictions: Maximum number of tokens to take.

    Returns:
        int32 [W], the rank of the n-gram that took each word; W if none did.
    """
    slots = len(draws_W)
    n_N1 = jnp.arange(longest)[:, None]
    num_tokens_NW = jnp.cumsum(_ahead(words.stop_W - words.first_W, longest), axis=0)
    segment_W = row.segment_ids_T.at[words.first_W].get(mode='fill', fill_value=-1)
    is_same_NW = (jnp.arange(slots) < words.number) & (_ahead(segment_W, longest) == segment_W)
    in_ngram_NW = (n_N1 < lengths_W) & is_same_NW  # n-grams end with their sequence
    number_T = jnp.broadcast_to(num_to_choose(row, masking, num_predictions), (slots,))
    left_W = number_T.at[words.first_W].get(mode='fill', fill_value=0)
    budget_W = segment_W if row.budget_ids_T is not None else jnp.zeros_like(segment_W)
    # Sort n-grams by budget, and within a budget by draw.
    order_W = jnp.lexsort((draws_W, budget_W))
    place_W = _inverse(order_W)
    ordered_W = budget_W[order_W]
    start_W, stop_W = (
        jnp.searchsorted(ordered_W, ordered_W, side=side) for side in ('left', 'right')
    )

    def running_sums(values_W: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Sum values over the earlier n-grams of each n-gram's budget, and over the budget."""
        sums_W = jnp.pad(jnp.cumsum(values_W[order_W]), (1, 0))
        before_W, total_W = sums_W[:-1] - sums_W[start_W], sums_W[stop_W] - sums_W[start_W]
        return before_W[place_W], total_W[place_W]

    def take(state: _Taken) -> _Taken:
        """Take the n-grams of each budget up to the first that earlier n-grams shorten."""
        fits_NW = in_ngram_NW & (num_tokens_NW <= state.left_W) & state.is_open_W
        num_words_W = jnp.sum(fits_NW, axis=0)
        tokens_W = jnp.max(jnp.where(fits_NW, num_tokens_NW, 0), axis=0)
        is_free_W = ~jnp.any(fits_NW & (_ahead(state.rank_W, longest, slots) < slots), axis=0)
        is_taken_W = _first_of_overlapping(
            is_free_W & (num_words_W > 0), num_words_W, place_W, longest
        )
        before_W, _ = running_sums(jnp.where(is_taken_W, tokens_W, 0))
        is_too_long_W = (num_words_W > 0) & (tokens_W > state.left_W - before_W)
        num_too_long_W, _ = running_sums(is_too_long_W.astype(jnp.int32))
        is_open_W = is_too_long_W | (num_too_long_W > 0)
        is_taken_W &= ~is_open_W
        _, used_W = running_sums(jnp.where(is_taken_W, tokens_W, 0))
        new_rank_W = _lowest_cover(jnp.where(is_taken_W, rank_W, slots), num_words_W, longest)
        return _Taken(jnp.minimum(state.rank_W, new_rank_W), state.left_W - used_W, is_open_W)

    rank_W = _inverse(jnp.argsort(draws_W))
    initial = _Taken(jnp.full(slots, slots, jnp.int32), left_W, jnp.ones(slots, bool))
    return jax.lax.while_loop(lambda state: jnp.any(state.is_open_W), take, initial).rank_W


class _Taken(NamedTuple):
    """The state of `take_ngrams`.

    Attributes:
        rank_W: The rank of the n-gram that took each word.
        left_W: Number of tokens left to take in the word's sequence or row.
        is_open_W: Whether the n-gram that starts at each word is still to be tried.
    """

    rank_W: jax.Array
    left_W: jax.Array
    is_open_W: jax.Array


def _first_of_overlapping(
    can_take_W: jax.Array, num_words_W: jax.Array, place_W: jax.Array, longest: int
) -> jax.Array:
    """Take each n-gram that overlaps none taken before it, bool [W].

    Each pass decides at least one more n-gram, in practice almost all of them.
    """
    slots = len(place_W)
    n_N1 = jnp.arange(longest)[:, None]

    def update_taken(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        taken_W, _ = state
        taker_W = _lowest_cover(jnp.where(taken_W, place_W, slots), num_words_W, longest)
        takers_NW = jnp.where(n_N1 < num_words_W, _ahead(taker_W, longest, slots), slots)
        new_W = can_take_W & (jnp.min(takers_NW, axis=0) >= place_W)
        return new_W, jnp.any(new_W != taken_W)

    all_taken = (can_take_W, jnp.bool_(True))
    return jax.lax.while_loop(lambda state: state[1], update_taken, all_taken)[0]


def _ahead(values_W: jax.Array, longest: int, fill: int = 0) -> jax.Array:
    """[N, W]: the values of the N words that start at each word; `fill` beyond the last word."""
    padded = jnp.pad(values_W, (0, longest - 1), constant_values=fill)
    return jnp.stack([padded[n : n + len(values_W)] for n in range(longest)])


def _lowest_cover(values_W: jax.Array, num_words_W: jax.Array, longest: int) -> jax.Array:
    """[W]: the lowest value of the n-grams that cover each word; W if none does.

    `values_W` and `num_words_W` describe the n-gram that starts at each word.
    """
    slots = len(values_W)
    n_N1 = jnp.arange(longest)[:, None]
    covering_NW = jnp.where(n_N1 < num_words_W, values_W, slots)
    padded_NX = jnp.pad(covering_NW, ((0, 0), (longest - 1, 0)), constant_values=slots)
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


def ngram_lengths(masking: 'Masking') -> np.ndarray:
    """Return p(n) ∝ 1/n for n = 1 … longest_ngram."""
    p = 1 / np.arange(1, masking.longest_ngram + 1)
    return p / p.sum()

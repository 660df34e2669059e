"""Masking of whole words and of n-grams, as in the code of BERT and ALBERT."""

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.objectives.token_rows import (
    ChosenPositions,
    TokenRow,
    Words,
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

    One n-gram is drawn for each word of the row. They are tried in random order; one that exceeds
    the remaining number is shortened by words, and skipped if its first word does not fit or if it
    overlaps an earlier one. An n-gram ends with its sequence, but may reach across a [SEP].

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
    words: Words,
    row: TokenRow,
    masking: 'Masking',
    longest: int,
    num_predictions: int,
) -> jax.Array:
    """Take n-grams in the order of `draws_W` while they fit and do not overlap.

    Args:
        draws_W: float32, by first word.
        lengths_W: int32, number of words by first word.
        words: The words of the row.
        row: The row.
        masking: The settings.
        longest: Maximum of `lengths_W`.
        num_predictions: Maximum number of tokens to take.

    Returns:
        int32 [W], the rank of the n-gram that took each word; W if none did.
    """
    slots = len(draws_W)
    index_W = jnp.arange(slots)
    rank_W = jnp.zeros(slots, jnp.int32).at[jnp.argsort(draws_W)].set(index_W)

    def ahead(values_W: jax.Array) -> jax.Array:
        """[N, W]: the values of the N words from each one on, 0 beyond the last."""
        padded = jnp.pad(values_W, (0, longest - 1))
        return jnp.stack([padded[n : n + slots] for n in range(longest)])

    n_N1 = jnp.arange(longest)[:, None]
    num_tokens_NW = jnp.cumsum(ahead(words.stop_W - words.first_W), axis=0)
    segment_W = row.segment_ids_T.at[words.first_W].get(mode='fill', fill_value=-1)
    is_drawn_NW = (n_N1 < lengths_W) & (index_W < words.number) & (ahead(segment_W) == segment_W)

    def take(state: _Taken) -> _Taken:
        """Take the next n-gram; those before it in the order were skipped for good."""
        left_W = jnp.minimum(state.left_W, state.room)
        num_words_W = jnp.sum(is_drawn_NW & (num_tokens_NW <= left_W), axis=0)
        is_taken_NW = ahead(state.rank_W < slots) & (n_N1 < num_words_W)
        can_take_W = (num_words_W > 0) & ~jnp.any(is_taken_NW, axis=0) & (rank_W > state.rank)
        rank = jnp.min(jnp.where(can_take_W, rank_W, slots))
        num_words = jnp.sum(jnp.where(rank_W == rank, num_words_W, 0))
        first = jnp.sum(jnp.where(rank_W == rank, index_W, 0))
        is_new_W = (index_W >= first) & (index_W < first + num_words)
        num_new = jnp.sum(jnp.where(is_new_W, words.stop_W - words.first_W, 0))
        sequence = jnp.sum(jnp.where(rank_W == rank, budget_W, 0))
        return _Taken(
            jnp.where(is_new_W, rank, state.rank_W),
            state.left_W - jnp.where(budget_W == sequence, num_new, 0),
            state.room - num_new,
            rank,
        )

    number_T = jnp.broadcast_to(num_to_choose(row, masking, num_predictions), (slots,))
    left_W = number_T.at[words.first_W].get(mode='fill', fill_value=0)
    budget_W = segment_W if row.budget_ids_T is not None else jnp.zeros_like(segment_W)
    none = _Taken(
        jnp.full(slots, slots, jnp.int32), left_W, jnp.int32(num_predictions), jnp.int32(-1)
    )
    found = jax.lax.while_loop(
        lambda state: jnp.any(state.left_W > 0) & (state.rank < slots), take, none
    )
    return found.rank_W


class _Taken(NamedTuple):
    """The state of `take_ngrams`.

    Attributes:
        rank_W: The rank of the n-gram that took each word.
        left_W: Number of tokens left to take in the word's sequence or row.
        room: The same for the row, by the maximum number of predictions.
        rank: Rank of the last n-gram.
    """

    rank_W: jax.Array
    left_W: jax.Array
    room: jax.Array
    rank: jax.Array


def _tokens_of(
    rank_W: jax.Array, words: Words, row: TokenRow, num_predictions: int
) -> ChosenPositions:
    """The tokens of the words that `take_ngrams` took."""
    none = len(rank_W)
    rank_T = jnp.where(row.can_choose_T, rank_W[words.index_T], none)
    return ChosenPositions(lowest_ranks(rank_T, num_predictions), jnp.sum(rank_T < none))


def ngram_lengths(masking: 'Masking') -> np.ndarray:
    """Return p(n) ∝ 1/n for n = 1 … longest_ngram."""
    p = 1 / np.arange(1, masking.longest_ngram + 1)
    return p / p.sum()

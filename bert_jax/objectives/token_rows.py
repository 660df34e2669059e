"""The tokens and words of one example or packed row, from which masking schemes choose."""

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.types import Key

if TYPE_CHECKING:
    from bert_jax.objectives.masking import Masking


class TokenRow(NamedTuple):
    """One example, arrays of length T.

    Attributes:
        input_ids_T: int32.
        attention_mask_T: int32.
        can_choose_T: bool, neither special nor padding.
        segment_ids_T: int32, the number of the sequence in a packed row; 0 if rows are not packed.
        budget_ids_T: int32, tokens with the same id share a budget, the number of tokens to choose;
            None: one budget for the row.
    """

    input_ids_T: jax.Array
    attention_mask_T: jax.Array
    can_choose_T: jax.Array
    segment_ids_T: jax.Array
    budget_ids_T: jax.Array | None


class ChosenPositions(NamedTuple):
    """P distinct positions, int32; the first `number` (int32 scalar) are chosen."""

    positions_P: jax.Array
    number: jax.Array


class RowWords(NamedTuple):
    """The words of a row in order, in T slots; the first `number` slots are used.

    A word ends where the next one starts. Special tokens do not belong to a word and end the word
    before them. The first token of a text starts a word even if the vocabulary marks it as a
    continuation. Unused slots hold (T, T, 0).

    Attributes:
        first_W: int32, first token.
        stop_W: int32, one past the last token.
        left_W: int32, number of words from this one up to the next special token.
        number: int32 scalar, how many words there are.
        index_T: int32, index of each token's word; arbitrary for special tokens and padding.
    """

    first_W: jax.Array
    stop_W: jax.Array
    left_W: jax.Array
    number: jax.Array
    index_T: jax.Array


def num_to_choose(row: TokenRow, masking: 'Masking', num_predictions: int) -> jax.Array:
    """Return n = min(num_predictions, max(1, round(rate · length))), special tokens counted.

    Source: google-research/bert create_pretraining_data.py, create_masked_lm_predictions.

    Returns:
        int32: for the row, or [T] for the sequence of each token if every sequence has a budget.
    """
    mask_T, budget_ids_T = row.attention_mask_T, row.budget_ids_T
    if budget_ids_T is None:
        length_X = jnp.sum(mask_T)
    else:
        length_X = jax.ops.segment_sum(mask_T, budget_ids_T, len(mask_T) + 1)[budget_ids_T]
    return jnp.clip(jnp.round(masking.rate * length_X), 1, num_predictions).astype(jnp.int32)


def find_words(
    input_ids_T: jax.Array, can_choose_T: jax.Array, is_word_start_V: np.ndarray | None
) -> RowWords:
    """Find the words of a row.

    Args:
        input_ids_T: int32.
        can_choose_T: bool, neither special nor padding.
        is_word_start_V: bool, whether a token starts a word.
    """
    length = len(input_ids_T)
    after_special_T = ~jnp.pad(can_choose_T[:-1], (1, 0))
    starts_T = jnp.asarray(is_word_start_V)[input_ids_T] | after_special_T
    is_first_T = can_choose_T & starts_T
    continues_T = jnp.pad(can_choose_T & ~starts_T, (0, 1))[1:]
    is_last_T = can_choose_T & ~continues_T
    first_W, last_W = (
        jnp.nonzero(is_end_T, size=length, fill_value=length)[0]
        for is_end_T in (is_first_T, is_last_T)
    )
    # Words from a token on, minus the words after the next special token.
    ahead_T = jax.lax.cumsum(is_first_T.astype(jnp.int32), reverse=True)
    beyond_T = jax.lax.cummax(jnp.where(can_choose_T, 0, ahead_T), reverse=True)
    return RowWords(
        first_W,
        jnp.minimum(last_W + 1, length),
        (ahead_T - beyond_T).at[first_W].get(mode='fill', fill_value=0),
        jnp.sum(is_first_T),
        jnp.cumsum(is_first_T) - 1,
    )


def lowest_ranks(rank_T: jax.Array, num_predictions: int) -> jax.Array:
    """Return the positions of the lowest ranks; equal ranks from left to right."""
    return jnp.argsort(rank_T, stable=True)[:num_predictions]


def draw_lengths(key: Key, probability_L: np.ndarray, shape: tuple[int, ...]) -> jax.Array:
    """Draw numbers from 1 … L with these probabilities, int32 of the given shape."""
    below_L = jnp.asarray(np.cumsum(probability_L)[:-1], jnp.float32)
    return 1 + jnp.sum(jax.random.uniform(key, shape)[..., None] >= below_L, axis=-1)

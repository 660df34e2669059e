"""Where the words of one example are, by the vocabulary's own mark of a word's first token."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Words(NamedTuple):
    """The words of one row in order, in T slots of which the first `count` are in use.

    A word ends where the next one starts. Special tokens belong to none and end the one before
    them; what a row begins with counts as a word, were it the rest of one. Unused slots hold
    (T, T, 0).
    """

    first_W: jax.Array  # int32 [T] the first token
    stop_W: jax.Array  # int32 [T] one past the last token
    left_W: jax.Array  # int32 [T] words up to the next special token, itself included
    count: jax.Array  # int32 []
    number_T: jax.Array  # int32 [T] the word of each token; of no meaning where it has none
    is_last_T: jax.Array  # bool [T] the last token of a word


def find_words(
    input_ids_T: jax.Array, can_choose_T: jax.Array, is_word_start_V: np.ndarray
) -> Words:
    """can_choose_T: bool [T], neither special nor padding. is_word_start_V: bool [V]."""
    length = len(input_ids_T)
    after_special_T = ~jnp.pad(can_choose_T[:-1], (1, 0))
    starts_T = jnp.asarray(is_word_start_V)[input_ids_T] | after_special_T
    is_first_T = can_choose_T & starts_T
    goes_on_T = jnp.pad(can_choose_T & ~starts_T, (0, 1))[1:]
    is_last_T = can_choose_T & ~goes_on_T
    first_W, last_W = (
        jnp.nonzero(is_edge_T, size=length, fill_value=length)[0]
        for is_edge_T in (is_first_T, is_last_T)
    )
    # Of the words from a token on, those from the next special token on are out of its reach.
    ahead_T = jax.lax.cumsum(is_first_T.astype(jnp.int32), reverse=True)
    beyond_T = jax.lax.cummax(jnp.where(can_choose_T, 0, ahead_T), reverse=True)
    return Words(
        first_W,
        jnp.minimum(last_W + 1, length),
        (ahead_T - beyond_T).at[first_W].get(mode='fill', fill_value=0),
        jnp.sum(is_first_T),
        jnp.cumsum(is_first_T) - 1,
        is_last_T,
    )

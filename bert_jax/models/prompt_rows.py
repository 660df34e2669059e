"""Rows in which the vectors of a tuned prompt follow the first token of every sequence."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.errors import UserError
from bert_jax.models.rows import Rows, gather_positions
from bert_jax.types import Array


class PromptRows(NamedTuple):
    """Positions of T tokens and S prompts of length L in longer rows of X = T + S · L.

    Attributes:
        order_BX: int32, the index of each position among the T tokens and S · L prompt vectors.
        place_BT: int32, the position of each token.
        first_BS: int32, the first token of each sequence, before prompts were inserted; T for
            absent sequences, whose prompts are padding at the end of the row.
        length: L.
    """

    order_BX: jax.Array
    place_BT: jax.Array
    first_BS: jax.Array
    length: int

    def insert(self, text_BTX: Array, prompt_BSX: jax.Array) -> jax.Array:
        """Merge the values of tokens and of each sequence's prompt vectors, [B, X, …].

        Args:
            text_BTX: [B, T, …].
            prompt_BSX: [B, S, L, …].
        """
        prompt_BPX = prompt_BSX.reshape(text_BTX.shape[0], -1, *text_BTX.shape[2:])
        both_BX = jnp.concatenate([text_BTX, prompt_BPX], axis=1)
        order = self.order_BX.reshape(*self.order_BX.shape, *[1] * (both_BX.ndim - 2))
        return jnp.take_along_axis(both_BX, order, axis=1)

    def insert_first_values(self, text_BT: Array, absent: int) -> jax.Array:
        """`insert` for values that a prompt shares with the first token of its sequence.

        absent: the value for prompts of absent sequences.
        """
        padded_BT = jnp.pad(text_BT, [(0, 0), (0, 1)], constant_values=absent)
        first_values_BS = jnp.take_along_axis(padded_BT, self.first_BS, axis=1)
        shape = (*first_values_BS.shape, self.length)
        return self.insert(text_BT, jnp.broadcast_to(first_values_BS[:, :, None], shape))

    def text(self, x_BXD: jax.Array) -> jax.Array:
        """Return the states of the tokens, [B, T, D]."""
        return gather_positions(x_BXD, self.place_BT)


def prompt_rows(rows: Rows, length: int) -> PromptRows:
    """Place prompts of this length in rows of one sequence or, with segment ids, of several.

    Raises:
        UserError: packed rows without first positions, so the number of sequences is unknown.
    """
    is_token_BT, segment_ids_BT = rows.is_token_BT, rows.segment_ids_BT
    num_tokens = is_token_BT.shape[1]
    if segment_ids_BT is None:
        is_first_BT, num_sequences = is_token_BT & (jnp.cumsum(is_token_BT, axis=1) == 1), 1
    else:
        if rows.first_positions_BS is None:
            raise UserError('a tuned prompt in packed rows needs first_positions_BS')
        before_BT = jnp.pad(segment_ids_BT[:, :-1], ((0, 0), (1, 0)), constant_values=-1)
        is_first_BT = is_token_BT & (segment_ids_BT != before_BT)
        num_sequences = rows.first_positions_BS.shape[1]
    t_T = jnp.arange(num_tokens)
    num_before_BT = jnp.cumsum(is_first_BT, axis=1) - is_first_BT
    place_BT = t_T + length * num_before_BT
    first_BS = jnp.sort(jnp.where(is_first_BT, t_T, num_tokens), axis=1)[:, :num_sequences]
    end_BT = jnp.pad(
        place_BT, [(0, 0), (0, 1)], constant_values=num_tokens + length * num_sequences
    )
    prompt_BSL = jnp.take_along_axis(end_BT, first_BS, axis=1)[:, :, None] + 1 + jnp.arange(length)
    keys_BX = jnp.concatenate([place_BT, prompt_BSL.reshape(place_BT.shape[0], -1)], axis=1)
    return PromptRows(jnp.argsort(keys_BX, axis=1), place_BT, first_BS, length)

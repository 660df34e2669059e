"""One vector for each sequence: its pooled states, without parameters."""

import jax
import jax.numpy as jnp

from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.heads import Head
from bert_jax.models.rows import Rows, gather_positions, masked_max, masked_mean


def _first(states_BTD: jax.Array, member_BST: jax.Array) -> jax.Array:
    return gather_positions(states_BTD, member_BST.argmax(-1))


def _last(states_BTD: jax.Array, member_BST: jax.Array) -> jax.Array:
    return gather_positions(states_BTD, (member_BST * jnp.arange(member_BST.shape[2])).max(2))


# Name → function of states [B, T, D] and of which positions each sequence has, bool [B, S, T].
POOLINGS = {'mean': masked_mean, 'cls': _first, 'lasttoken': _last, 'max': masked_max}


class EmbeddingHead(Head):
    """vectors_BSD of the sequences of packed rows, fp32, not normalized.

    Attributes:
        pooling: 'mean' of all tokens, the state of the first token, 'cls', or of the last one,
            'lasttoken', or the 'max' of each number; special tokens included.
    """

    pooling: str = 'mean'

    def __call__(
        self, states: EncoderOutput, rows: Rows, dropout_seeds_B: jax.Array | None = None
    ) -> jax.Array:
        """Return [B, S, D]; S = 1 for one sequence per row."""
        return POOLINGS[self.pooling](states.hidden_BTD.astype(jnp.float32), rows.members())

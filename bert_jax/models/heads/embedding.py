"""One vector for each sequence: its pooled states, without parameters."""

import jax
import jax.numpy as jnp

from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.heads import Head
from bert_jax.models.rows import Rows, gather_positions, masked_mean


def _first(states_BTD: jax.Array, member_BST: jax.Array) -> jax.Array:
    return gather_positions(states_BTD, member_BST.argmax(-1))


def _maximum(states_BTD: jax.Array, member_BST: jax.Array) -> jax.Array:
    def of_sequence(member_BT: jax.Array) -> jax.Array:
        return jnp.max(jnp.where(member_BT[..., None], states_BTD, -jnp.inf), axis=1)

    maximum_BSD = jax.lax.map(of_sequence, jnp.moveaxis(member_BST, 1, 0)).swapaxes(0, 1)
    return jnp.where(member_BST.any(-1)[..., None], maximum_BSD, 0)


# Name → function of states [B, T, D] and of which positions each sequence has, bool [B, S, T].
POOLINGS = {'mean': masked_mean, 'cls': _first, 'max': _maximum}


class EmbeddingHead(Head):
    """vectors_BSD of the sequences of packed rows, fp32, not normalized.

    Attributes:
        pooling: 'mean' of all tokens, 'cls', the state of the first token, or the 'max' of each
            number; special tokens included.
    """

    pooling: str = 'mean'

    def __call__(
        self, states: EncoderOutput, rows: Rows, dropout_seeds_B: jax.Array | None = None
    ) -> jax.Array:
        """Return [B, S, D]; S = 1 for one sequence per row."""
        return POOLINGS[self.pooling](states.hidden_BTD.astype(jnp.float32), rows.members())

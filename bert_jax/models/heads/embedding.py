"""One vector for each sequence: its pooled states, without parameters."""

import jax
import jax.numpy as jnp

from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.heads import Head
from bert_jax.models.pooling import POOLINGS
from bert_jax.models.rows import Rows


class EmbeddingHead(Head):
    """vectors_BSD of the sequences of packed rows, fp32, not normalized.

    Attributes:
        pooling: a key of POOLINGS.
    """

    pooling: str = 'mean'

    def __call__(
        self, states: EncoderOutput, rows: Rows, dropout_seeds_B: jax.Array | None = None
    ) -> jax.Array:
        """Return [B, S, D]; S = 1 for one sequence per row."""
        return POOLINGS[self.pooling](states.hidden_BTD.astype(jnp.float32), rows.members())

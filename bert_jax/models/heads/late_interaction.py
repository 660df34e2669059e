"""A vector for each token: a projection of its state, with the norm 1."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.heads import Head
from bert_jax.models.rows import Rows

_EPSILON = 1e-12  # smallest norm that vectors are divided by


class LateInteractionHead(Head):
    """vectors_BTE of all positions, float32 (Khattab and Zaharia 2020, section 3.2).

    Attributes:
        size: E, the numbers of a vector; 0: those of a state, without a projection.
    """

    size: int = 128

    is_module = True
    is_per_token = True

    @nn.compact
    def __call__(
        self, states: EncoderOutput, rows: Rows, dropout_seeds_B: jax.Array | None = None
    ) -> jax.Array:
        """Return [B, T, E]; vectors of padding are finite and meaningless."""
        hidden_BTD = states.hidden_BTD
        if self.size:
            width = self.architecture.hidden_size
            shape, names = (width, self.size), ('embed', None)
            options = dict(use_bias=False, init_range=width**-0.5, name='projection')
            hidden_BTD = self.make_dense('BTD,DE->BTE', shape, names, **options)(hidden_BTD)
        vectors_BTE = hidden_BTD.astype(jnp.float32)
        square_BT1 = jnp.sum(jnp.square(vectors_BTE), axis=-1, keepdims=True)
        return vectors_BTE * jax.lax.rsqrt(jnp.maximum(square_BT1, _EPSILON**2))

    @nn.nowrap
    def flops(self, sequence_length: int, num_predictions: int) -> int:
        return 2 * sequence_length * self.architecture.hidden_size * self.size

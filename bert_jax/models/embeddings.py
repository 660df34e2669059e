"""Token, position and type embeddings."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.errors import UserError
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.dropout import dropout
from bert_jax.models.normalization import LayerNorm
from bert_jax.models.partitioning import constrain
from bert_jax.models.products import weight_init


class Embeddings(nn.Module):
    """Token + position + type vectors, normalised, with dropout: [B, T, D] in the compute dtype.

    `token_VD` is the matrix of token embeddings, [padded_vocab_size, D] fp32, rows beyond
    vocab_size zero.
    """

    architecture: Architecture
    compute: Compute

    def setup(self):
        architecture = self.architecture
        size, init = architecture.hidden_size, weight_init(architecture)
        self.token_VD = self.param(
            'token',
            nn.with_logical_partitioning(
                _zero_from_row(architecture.vocab_size, init), ('vocab', 'embed')
            ),
            (architecture.padded_vocab_size, size),
        )
        self.position_TD = self.param(
            'position',
            nn.with_logical_partitioning(init, ('positions', 'embed')),
            (architecture.max_position_embeddings, size),
        )
        self.type_SD = self.param(
            'type',
            nn.with_logical_partitioning(init, ('types', 'embed')),
            (architecture.type_vocab_size, size),
        )
        self.norm = LayerNorm(architecture, self.compute)

    def __call__(self, input_ids_BT, token_type_ids_BT, seeds_B):
        architecture = self.architecture
        length = input_ids_BT.shape[1]
        if length > architecture.max_position_embeddings:
            raise UserError(
                f'sequence length {length} exceeds the {architecture.max_position_embeddings} '
                'positions of the model (max_position_embeddings)'
            )
        if token_type_ids_BT is None:
            types_BTD = self.type_SD[0]
        else:
            # One-hot: the gradient is a product and not a scatter into a handful of rows.
            one_hot_BTS = jax.nn.one_hot(token_type_ids_BT, architecture.type_vocab_size)
            types_BTD = jnp.einsum('BTS,SD->BTD', one_hot_BTS, self.type_SD, precision='highest')
        # Whole rows, or the vectors would come out cut along embed and have to change hands.
        token_VD = constrain(self.token_VD, ('vocab', None))
        x_BTD = constrain(token_VD[input_ids_BT], ('batch', 'length', 'embed'))
        x_BTD = x_BTD + self.position_TD[:length] + types_BTD
        x_BTD = self.norm(x_BTD.astype(self.compute.activation_dtype))
        x_BTD = dropout(x_BTD, architecture.hidden_dropout, seeds_B)
        return constrain(x_BTD, ('batch', 'length', 'embed'))


def _zero_from_row(row: int, init):
    def padded_init(key, shape, dtype=jnp.float32):
        values = init(key, shape, dtype)
        return jnp.where(jnp.arange(shape[0])[:, None] < row, values, 0)

    return padded_init

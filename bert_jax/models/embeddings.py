"""Token, position and type embeddings."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.errors import UserError
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.dropout import dropout
from bert_jax.models.linear import Dense, weight_init
from bert_jax.models.normalization import make_norm
from bert_jax.models.partitioning import constrain


class Embeddings(nn.Module):
    """Token + position + type vectors, normalized, with dropout, and where they have a width of
    their own projected: [B, T, D] in the compute dtype.

    `token_VD` is the matrix of token embeddings, [padded_vocab_size, embedding width] fp32, rows
    beyond vocab_size zero. The architecture's `positions`:
        learned: the vector of the index in the sequence, or of a given one.
        counted: of the number of real positions up to this one, on from first_position, and all
            padding has the row before; the same for a sequence padded left or right. Or, from
            given indices of tokens without padding between them, the same.
        none: no vectors; with mask_decoder there is a table of them, which is not used here.
    """

    architecture: Architecture
    compute: Compute

    def setup(self):
        architecture = self.architecture
        width, init = architecture.embedding_width, weight_init(architecture)
        self.token_VD = self.param(
            'token',
            nn.with_logical_partitioning(
                _zero_from_row(architecture.vocab_size, init), ('vocab', 'embed')
            ),
            (architecture.padded_vocab_size, width),
        )
        if architecture.positions != 'none' or architecture.mask_decoder:
            self.position_TD = self.param(
                'position',
                nn.with_logical_partitioning(init, ('positions', 'embed')),
                (architecture.max_position_embeddings, width),
            )
        if architecture.type_vocab_size:
            self.type_SD = self.param(
                'type',
                nn.with_logical_partitioning(init, ('types', 'embed')),
                (architecture.type_vocab_size, width),
            )
        if architecture.embedding_norm:
            self.norm = make_norm(architecture, self.compute)
        if architecture.embedding_size is not None:
            shape = (width, architecture.hidden_size)
            names = ('features', 'embed')
            self.projection = Dense('BTE,ED->BTD', shape, names, architecture, self.compute)

    def __call__(
        self, input_ids_BT, attention_mask_BT, token_type_ids_BT, seeds_B, positions_BT=None
    ):
        architecture = self.architecture
        length = input_ids_BT.shape[1]
        if length > architecture.max_length:
            raise UserError(
                f'sequence length {length} exceeds the {architecture.max_length} '
                'positions of the model (max_position_embeddings)'
            )
        # Whole rows, or the vectors would come out cut along embed and have to change hands.
        token_VD = constrain(self.token_VD, ('vocab', None))
        x_BTD = constrain(token_VD[input_ids_BT], ('batch', 'length', 'embed'))
        if architecture.positions == 'learned':
            x_BTD = x_BTD + self.absolute(length, positions_BT)
        elif architecture.positions == 'counted':
            rows_BT = self._counted(attention_mask_BT, positions_BT)
            x_BTD = x_BTD + self.absolute(length, rows_BT)
        if architecture.type_vocab_size:
            x_BTD = x_BTD + self._types(token_type_ids_BT)
        x_BTD = x_BTD.astype(self.compute.activation_dtype)
        if architecture.embedding_norm:
            x_BTD = self.norm(x_BTD)
        if architecture.embedding_mask:
            x_BTD = x_BTD * (attention_mask_BT > 0)[..., None]
        x_BTD = dropout(x_BTD, architecture.hidden_dropout, seeds_B)
        if architecture.embedding_size is not None:
            x_BTD = self.projection(x_BTD)
        return constrain(x_BTD, ('batch', 'length', 'embed'))

    def absolute(self, length: int, rows_BT=None):
        """[T, D], the vectors of the first positions; or [B, T, D], those of given rows."""
        if rows_BT is None:
            return self.position_TD[:length]
        position_TD = constrain(self.position_TD, ('positions', None))
        return constrain(position_TD[rows_BT], ('batch', 'length', 'embed'))

    def _counted(self, attention_mask_BT, positions_BT):
        real_BT = (attention_mask_BT > 0).astype(jnp.int32)
        count_BT = jnp.cumsum(real_BT, axis=1) if positions_BT is None else positions_BT + 1
        rows_BT = count_BT * real_BT + self.architecture.first_position - 1
        return jnp.maximum(rows_BT, 0)

    def _types(self, token_type_ids_BT):
        count = self.architecture.type_vocab_size
        if token_type_ids_BT is None or count == 1:
            return self.type_SD[0]
        # One-hot: the gradient is a product and not a scatter into a handful of rows.
        one_hot_BTS = jax.nn.one_hot(token_type_ids_BT, count)
        return jnp.einsum('BTS,SD->BTD', one_hot_BTS, self.type_SD, precision='highest')


def _zero_from_row(row: int, init):
    def padded_init(key, shape, dtype=jnp.float32):
        values = init(key, shape, dtype)
        return jnp.where(jnp.arange(shape[0])[:, None] < row, values, 0)

    return padded_init

"""The encoder: embeddings, a stack of blocks, a pooler."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.attention import mask_bias
from bert_jax.models.block import Block
from bert_jax.models.dropout import fold
from bert_jax.models.embeddings import Embeddings
from bert_jax.models.partitioning import constrain
from bert_jax.models.products import Dense


class EncoderOutput(NamedTuple):
    """hidden_BTD: states of the last layer, in the compute dtype.

    pooled_BD: tanh of a learnt map of the first position's state.
    all_hidden_LBTD: if asked for, the embeddings' output and every layer's, L = num_layers + 1.
    """

    hidden_BTD: jax.Array
    pooled_BD: jax.Array
    all_hidden_LBTD: jax.Array | None = None


class Encoder(nn.Module):
    """A bidirectional Transformer encoder (Devlin et al. 2019, section 3).

    Parameters: embeddings, layers_0 … layers_{L−1} (with compute.scan_layers one stacked `layers`,
    see `stack_layers`), pooler; fp32.
    """

    architecture: Architecture
    compute: Compute

    def setup(self):
        settings = (self.architecture, self.compute)
        size, num_layers = self.architecture.hidden_size, self.architecture.num_layers
        self.embeddings = Embeddings(*settings)
        layer = _Layer
        if self.compute.remat:
            layer = nn.remat(layer, prevent_cse=not self.compute.scan_layers)
        if self.compute.scan_layers:
            self.layers = nn.scan(
                layer,
                variable_axes={'params': 0},
                split_rngs={'params': True},
                in_axes=(0, nn.broadcast, nn.broadcast),
                length=num_layers,
                metadata_params={nn.PARTITION_NAME: 'layers'},
            )(*settings)
        else:
            self.layers = [layer(*settings) for _ in range(num_layers)]
        self.pooler = Dense('BD,DE->BE', (size, size), ('embed', 'features'), *settings)

    def __call__(
        self,
        input_ids_BT: jax.Array,
        attention_mask_BT: jax.Array,
        token_type_ids_BT: jax.Array | None = None,
        dropout_seeds_B: jax.Array | None = None,
        *,
        all_hidden: bool = False,
    ) -> EncoderOutput:
        """Encodes a batch of token ids.

        input_ids_BT, token_type_ids_BT: int32; without types every position is of type 0.
        attention_mask_BT: 1 for real positions, 0 for padding.
        dropout_seeds_B: uint32, one per example (see dropout.py); None for evaluation.
        all_hidden: also return the states of every layer.
        Raises UserError for a sequence longer than max_position_embeddings.
        """
        x_BTD = self.embeddings(input_ids_BT, token_type_ids_BT, fold(dropout_seeds_B, 0))
        embedded_BTD = x_BTD
        bias_B11T = mask_bias(attention_mask_BT)
        if self.compute.scan_layers:
            numbers_L = jnp.arange(self.architecture.num_layers)
            x_BTD, hidden_LBTD = self.layers(x_BTD, numbers_L, bias_B11T, dropout_seeds_B)
        else:
            states = []
            for number, layer in enumerate(self.layers):
                x_BTD, _ = layer(x_BTD, number, bias_B11T, dropout_seeds_B)
                states.append(x_BTD)
            hidden_LBTD = jnp.stack(states)  # compiled away unless asked for
        pooled_BD = jnp.tanh(self.pooler(constrain(x_BTD[:, 0], ('batch', 'embed'))))
        if not all_hidden:
            return EncoderOutput(x_BTD, pooled_BD)
        all_hidden_LBTD = jnp.concatenate([embedded_BTD[None], hidden_LBTD])
        return EncoderOutput(x_BTD, pooled_BD, all_hidden_LBTD)

    def embedding_table(self) -> jax.Array:
        """The token embeddings, [padded_vocab_size, D] fp32, for a decoder tied to them."""
        return self.embeddings.token_VD


class _Layer(Block):
    """A block in the form of a step of nn.scan: (x, number, …) → (x, x)."""

    def __call__(self, x_BTD, number, bias_B11T, dropout_seeds_B):
        x_BTD = super().__call__(x_BTD, bias_B11T, fold(dropout_seeds_B, number + 1))
        return x_BTD, x_BTD

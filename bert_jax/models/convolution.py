"""A convolution over positions beside the first layer."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.activations import ACTIVATIONS
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.dropout import dropout
from bert_jax.models.linear import Dense
from bert_jax.models.normalization import make_norm


class Convolution(nn.Module):
    """(embedded_BTD, x_BTD, seeds_B, segment_ids_BT) → norm(x + activation(dropout(convolution(
    embedded)))): the embeddings of convolution_width neighbors, padding and what is outside, or of
    another segment, counted as zero, and the output of the first layer (ConvLayer of
    microsoft/DeBERTa, bert.py).

    kernel: [width, D, D], the neighbors from left to right.
    """

    architecture: Architecture
    compute: Compute

    @nn.compact
    def __call__(
        self,
        embedded_BTD: jax.Array,
        x_BTD: jax.Array,
        seeds_B: jax.Array | None,
        segment_ids_BT: jax.Array | None = None,
    ):
        architecture, settings = self.architecture, (self.architecture, self.compute)
        size, width, length = (
            architecture.hidden_size,
            architecture.convolution_width,
            x_BTD.shape[1],
        )

        def neighbors(x_BTX):
            """[B, T, W, …]"""
            around = [(0, 0), (width // 2, width // 2), *[(0, 0)] * (x_BTX.ndim - 2)]
            padded_BTX = jnp.pad(x_BTX, around)
            return jnp.stack([padded_BTX[:, w : w + length] for w in range(width)], axis=2)

        embedded_BTWD = neighbors(embedded_BTD)
        if segment_ids_BT is not None:
            same_BTW = neighbors(segment_ids_BT) == segment_ids_BT[:, :, None]
            embedded_BTWD = jnp.where(same_BTW[..., None], embedded_BTWD, 0)
        shape, names = (width, size, size), (None, 'embed', 'features')
        dense = Dense('BTWD,WDE->BTE', shape, names, *settings, name='dense')
        update_BTD = dropout(dense(embedded_BTWD), architecture.hidden_dropout, seeds_B)
        update_BTD = ACTIVATIONS[architecture.convolution_act](update_BTD)
        return make_norm(*settings, name='norm')(x_BTD + update_BTD)

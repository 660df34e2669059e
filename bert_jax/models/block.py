"""A layer of the Transformer, and DeBERTa's convolution beside the first layer."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.lazy_table import LazyTable
from bert_jax.models.attention import (
    AlibiAttention,
    Attention,
    Context,
    LayerConstants,
    RotaryAttention,
)
from bert_jax.models.dropout import dropout, fold_in
from bert_jax.models.feedforward import ACTIVATIONS, FEEDFORWARDS
from bert_jax.models.module import Addition, Module
from bert_jax.models.partitioning import constrain
from bert_jax.models.tuning_method import Sublayer

if TYPE_CHECKING:
    from bert_jax.models.cache import KeysValues

ATTENTIONS: LazyTable[type[Attention]] = LazyTable(
    {
        'standard': Attention,
        'rotary': RotaryAttention,
        'alibi': AlibiAttention,
        'disentangled': 'bert_jax.models.disentangled:DisentangledAttention',
        'relative': 'bert_jax.models.relative_attention:RelativeAttention',
        'relative_bias': 'bert_jax.models.relative_bias:RelativeBiasAttention',
    }
)
# Dropout sites.
_ATTENTION_WEIGHTS, _ATTENTION_OUTPUT, _FEEDFORWARD_OUTPUT = range(3)
_CROSS_WEIGHTS, _CROSS_OUTPUT, _FEEDFORWARD_INNER = range(3, 6)


class Block(Module):
    """Attention and feed-forward, each with dropout, a residual connection and a norm.

    Attributes:
        skip_norm: omit the norm before attention.
        has_cross_attention: attend to the states of an encoder between the two.
    """

    skip_norm: bool = False
    has_cross_attention: bool = False

    def setup(self) -> None:
        settings = (self.architecture, self.compute)
        self.attention = ATTENTIONS[self.architecture.attention.kind](*settings)
        self.feedforward = FEEDFORWARDS[self.architecture.feedforward](*settings)
        if not self.skip_norm:
            self.attention_norm = self.make_norm()
        self.feedforward_norm = self.make_norm()
        if self._is_both:
            self.attention_output_norm = self.make_norm()
            self.feedforward_output_norm = self.make_norm()
        if self.has_cross_attention:
            from bert_jax.models.cross_attention import CrossAttention  # encoders do without it

            self.cross_attention = CrossAttention(*settings)
            self.cross_attention_norm = self.make_norm()
            if self._is_both:
                self.cross_attention_output_norm = self.make_norm()
        self.tuning = self.make_tuning('block')

    def __call__(
        self,
        x_BTD: jax.Array,
        constants: LayerConstants,
        context: Context,
        seeds_B: jax.Array | None,
        past: 'KeysValues | None' = None,
        known: 'KeysValues | None' = None,
    ) -> 'tuple[jax.Array, KeysValues | None]':
        """Run the layer.

        Args:
            x_BTD: states, in the compute dtype.
            constants: of this layer.
            context: shared by all layers.
            seeds_B: uint32 dropout seeds of this layer; None for evaluation.
            past: keys and values of earlier positions.
            known: keys and values of the encoder's states; None: they are computed.

        Returns:
            The states, and `past` with the keys and values of these positions.
        """
        norm: Callable[..., jax.Array] = (lambda x: x) if self.skip_norm else self.attention_norm
        input_BTD = self._input(x_BTD, norm)
        weight_seeds_B = fold_in(seeds_B, _ATTENTION_WEIGHTS)
        output_BTD, past = self.attention(input_BTD, constants, context, weight_seeds_B, past)
        if self._is_both:
            output_BTD = self.attention_output_norm(output_BTD)
        attention = Sublayer('attention', x_BTD, input_BTD, output_BTD, norm)
        x_BTD = self._add(attention, fold_in(seeds_B, _ATTENTION_OUTPUT))

        if self.has_cross_attention:
            x_BTD = self._attend_to_memory(x_BTD, context, seeds_B, known)

        norm = self.feedforward_norm
        input_BTD = self._input(x_BTD, norm)
        output_BTD = self.feedforward(input_BTD, fold_in(seeds_B, _FEEDFORWARD_INNER))
        if self._is_both:
            output_BTD = self.feedforward_output_norm(output_BTD)
        feedforward = Sublayer('feedforward', x_BTD, input_BTD, output_BTD, norm)
        x_BTD = self._add(feedforward, fold_in(seeds_B, _FEEDFORWARD_OUTPUT))
        return constrain(x_BTD, ('batch', 'length', 'embed')), past

    def keys_values(self, states_BUD: jax.Array) -> 'KeysValues':
        """Keys and values of the encoder's states, which do not change while a text is written."""
        return self.cross_attention.keys_values(states_BUD)

    def _attend_to_memory(
        self,
        x_BTD: jax.Array,
        context: Context,
        seeds_B: jax.Array | None,
        known: 'KeysValues | None',
    ) -> jax.Array:
        """The states after attention to the states of the encoder."""
        norm = self.cross_attention_norm
        input_BTD = self._input(x_BTD, norm)
        weight_seeds_B = fold_in(seeds_B, _CROSS_WEIGHTS)
        output_BTD = self.cross_attention.attend_to(input_BTD, context, weight_seeds_B, known)
        if self._is_both:
            output_BTD = self.cross_attention_output_norm(output_BTD)
        sublayer = Sublayer('cross_attention', x_BTD, input_BTD, output_BTD, norm)
        return self._add(sublayer, fold_in(seeds_B, _CROSS_OUTPUT))

    @property
    def _is_pre(self) -> bool:
        return self.architecture.norms.placement != 'post'

    @property
    def _is_both(self) -> bool:
        return self.architecture.norms.placement == 'both'

    def _input(self, x_BTD: jax.Array, norm: Callable[..., jax.Array]) -> jax.Array:
        """The input of attention or feed-forward."""
        # Cast here, so that the gradients of several products are summed in the compute dtype.
        return (norm(x_BTD) if self._is_pre else x_BTD).astype(self.compute.activation_dtype)

    def _add(self, part: Sublayer, seeds_B: jax.Array | None) -> jax.Array:
        """The residual connection around attention or feed-forward; adds dropout."""
        rate = self.architecture.hidden_dropout
        if self.tuning is None and not self._is_pre:
            return part.norm(part.residual_BTD, Addition(part.output_BTD, rate, seeds_B))
        output_BTD = dropout(part.output_BTD, rate, seeds_B)
        if self.tuning is not None:
            output_BTD = self.tuning(part._replace(output_BTD=output_BTD))
        x_BTD = part.residual_BTD + output_BTD
        return x_BTD if self._is_pre else part.norm(x_BTD)


class Convolution(Module):
    """norm(x + activation(dropout(convolution(embeddings)))) with the first layer's output x.

    Padding, and positions of other segments, count as zero. The kernel is [W, D, D], neighbors from
    left to right (ConvLayer in microsoft/DeBERTa, bert.py).
    """

    @nn.compact
    def __call__(
        self,
        embedded_BTD: jax.Array,
        x_BTD: jax.Array,
        seeds_B: jax.Array | None,
        segment_ids_BT: jax.Array | None = None,
    ) -> jax.Array:
        architecture = self.architecture
        assert architecture.convolution is not None
        size, width = architecture.hidden_size, architecture.convolution.width
        embedded_BTWD = _neighbors(embedded_BTD, width)
        if segment_ids_BT is not None:
            same_BTW = _neighbors(segment_ids_BT, width) == segment_ids_BT[:, :, None]
            embedded_BTWD = jnp.where(same_BTW[..., None], embedded_BTWD, 0)
        shape, names = (width, size, size), (None, 'embed', 'features')
        dense = self.make_dense('BTWD,WDE->BTE', shape, names, name='dense')
        update_BTD = dropout(dense(embedded_BTWD), architecture.hidden_dropout, seeds_B)
        update_BTD = ACTIVATIONS[architecture.convolution.activation](update_BTD)
        output_BTD: jax.Array = self.make_norm('norm')(x_BTD + update_BTD)
        return output_BTD


def _neighbors(x_BTX: jax.Array, width: int) -> jax.Array:
    """[B, T, W, …]: the values at the `width` positions around each position, 0 outside the row."""
    length = x_BTX.shape[1]
    around = [(0, 0), (width // 2, width // 2), *[(0, 0)] * (x_BTX.ndim - 2)]
    padded_BTX = jnp.pad(x_BTX, around)
    return jnp.stack([padded_BTX[:, w : w + length] for w in range(width)], axis=2)

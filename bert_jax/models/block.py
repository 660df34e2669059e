"""One layer of the encoder."""

from collections.abc import Callable

import jax
from flax import linen as nn

from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.attention import (
    Attention,
    Context,
    LayerValues,
    LinearBiasAttention,
    RotaryAttention,
)
from bert_jax.models.disentangled import DisentangledAttention
from bert_jax.models.dropout import dropout, fold
from bert_jax.models.feedforward import FEEDFORWARDS
from bert_jax.models.normalization import make_norm
from bert_jax.models.partitioning import constrain

ATTENTIONS = {
    'plain': Attention,
    'rotary': RotaryAttention,
    'linear_bias': LinearBiasAttention,
    'disentangled': DisentangledAttention,
}
_ATTENTION_WEIGHTS, _ATTENTION_OUTPUT, _FEEDFORWARD_OUTPUT = range(3)  # dropout sites


class Block(nn.Module):
    """(x_BTD, values, context, seeds_B) → [B, T, D]: attention, then feed-forward, each added to
    its input; normalized after the sum or, with residual 'pre', before the update.

    values: what differs from layer to layer; context: what is the same for all of them.
    seeds_B: the layer's dropout seeds, uint32, or None.
    skip_norm: no norm before attention (residual 'pre').
    """

    architecture: Architecture
    compute: Compute
    skip_norm: bool = False

    @nn.compact
    def __call__(
        self, x_BTD: jax.Array, values: LayerValues, context: Context, seeds_B: jax.Array | None
    ) -> jax.Array:
        settings = (self.architecture, self.compute)
        attention = ATTENTIONS[self.architecture.attention](*settings, name='attention')
        feedforward = FEEDFORWARDS[self.architecture.feedforward](*settings, name='feedforward')
        attention_seeds_B = fold(seeds_B, _ATTENTION_WEIGHTS)
        attention_norm = _identity
        if not self.skip_norm:
            attention_norm = make_norm(*settings, name='attention_norm')
        feedforward_norm = make_norm(*settings, name='feedforward_norm')
        x_BTD = self._update(
            x_BTD,
            lambda x_BTD: attention(x_BTD, values, context, attention_seeds_B),
            attention_norm,
            fold(seeds_B, _ATTENTION_OUTPUT),
        )
        x_BTD = self._update(
            x_BTD, feedforward, feedforward_norm, fold(seeds_B, _FEEDFORWARD_OUTPUT)
        )
        return constrain(x_BTD, ('batch', 'length', 'embed'))

    def _update(self, x_BTD, function: Callable, norm: Callable, seeds_B):
        """The residual connection around attention or feed-forward."""
        rate = self.architecture.hidden_dropout
        if self.architecture.residual == 'pre':
            return x_BTD + dropout(function(norm(x_BTD)), rate, seeds_B)
        return norm(x_BTD + dropout(function(x_BTD), rate, seeds_B))


def _identity(x):
    return x

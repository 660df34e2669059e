"""One layer of the encoder."""

from flax import linen as nn

from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.attention import Attention
from bert_jax.models.dropout import dropout, fold
from bert_jax.models.feedforward import FeedForward
from bert_jax.models.normalization import LayerNorm
from bert_jax.models.partitioning import constrain

_ATTENTION_WEIGHTS, _ATTENTION_OUTPUT, _FEEDFORWARD_OUTPUT = range(3)  # dropout sites


class Block(nn.Module):
    """(x_BTD, bias_B11T, seeds_B) → [B, T, D]: attention, then feed-forward, each added to its
    input and normalised after the sum.

    seeds_B: the layer's dropout seeds, uint32, or None.
    """

    architecture: Architecture
    compute: Compute

    @nn.compact
    def __call__(self, x_BTD, bias_B11T, seeds_B):
        settings = (self.architecture, self.compute)
        rate = self.architecture.hidden_dropout
        update_BTD = Attention(*settings, name='attention')(
            x_BTD, bias_B11T, fold(seeds_B, _ATTENTION_WEIGHTS)
        )
        update_BTD = dropout(update_BTD, rate, fold(seeds_B, _ATTENTION_OUTPUT))
        x_BTD = LayerNorm(*settings, name='attention_norm')(x_BTD + update_BTD)
        update_BTD = FeedForward(*settings, name='feedforward')(x_BTD)
        update_BTD = dropout(update_BTD, rate, fold(seeds_B, _FEEDFORWARD_OUTPUT))
        x_BTD = LayerNorm(*settings, name='feedforward_norm')(x_BTD + update_BTD)
        return constrain(x_BTD, ('batch', 'length', 'embed'))

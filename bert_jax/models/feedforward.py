"""The position-wise feed-forward part of a block."""

from flax import linen as nn

from bert_jax.models.activations import ACTIVATIONS
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.linear import Dense, output_init_range
from bert_jax.models.partitioning import constrain


class FeedForward(nn.Module):
    """x_BTD → activation(x W₁ + b₁) W₂ + b₂, [B, T, D]."""

    architecture: Architecture
    compute: Compute

    @nn.compact
    def __call__(self, x_BTD):
        size, inner = self.architecture.hidden_size, self.architecture.intermediate_size
        settings = (self.architecture, self.compute)
        x_BTF = self.inner(x_BTD)
        x_BTF = constrain(x_BTF, ('batch', 'length', 'mlp'))
        return Dense(
            'BTF,FD->BTD',
            (inner, size),
            ('mlp', 'embed'),
            *settings,
            init_range=output_init_range(self.architecture),
            name='output',
        )(x_BTF)

    def inner(self, x_BTD):
        """[B, T, F]: what the second product takes."""
        architecture = self.architecture
        shape = (architecture.hidden_size, architecture.intermediate_size)
        settings = (architecture, self.compute)
        dense = Dense('BTD,DF->BTF', shape, ('embed', 'mlp'), *settings, name='input')
        return ACTIVATIONS[architecture.hidden_act](dense(x_BTD))


class GatedFeedForward(FeedForward):
    """x_BTD → (activation(x W₁) · x V) W₂ + b₂ (Shazeer 2020, arXiv 2002.05202).

    W₁ and V are one kernel [D, 2, F], in this order.
    """

    def inner(self, x_BTD):
        architecture = self.architecture
        shape = (architecture.hidden_size, 2, architecture.intermediate_size)
        names = ('embed', None, 'mlp')
        settings = (architecture, self.compute)
        dense = Dense('BTD,DGF->BTGF', shape, names, *settings, use_bias=False, name='input')
        x_BTGF = dense(x_BTD)
        return ACTIVATIONS[architecture.hidden_act](x_BTGF[:, :, 0]) * x_BTGF[:, :, 1]


FEEDFORWARDS = {'dense': FeedForward, 'gated': GatedFeedForward}

"""The position-wise feed-forward part of a block."""

from flax import linen as nn

from bert_jax.models.activations import ACTIVATIONS
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.partitioning import constrain
from bert_jax.models.products import Dense


class FeedForward(nn.Module):
    """x_BTD → activation(x W₁ + b₁) W₂ + b₂, [B, T, D]."""

    architecture: Architecture
    compute: Compute

    @nn.compact
    def __call__(self, x_BTD):
        size, inner = self.architecture.hidden_size, self.architecture.intermediate_size
        settings = (self.architecture, self.compute)
        x_BTF = Dense('BTD,DF->BTF', (size, inner), ('embed', 'mlp'), *settings, name='input')(
            x_BTD
        )
        x_BTF = ACTIVATIONS[self.architecture.hidden_act](x_BTF)
        x_BTF = constrain(x_BTF, ('batch', 'length', 'mlp'))
        return Dense('BTF,FD->BTD', (inner, size), ('mlp', 'embed'), *settings, name='output')(
            x_BTF
        )

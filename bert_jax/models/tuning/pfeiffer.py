"""An adapter after the feed-forward only (Pfeiffer et al. 2021, arXiv 2005.00247)."""

import dataclasses
from typing import ClassVar

import jax
from flax import linen as nn

from bert_jax.models.tuning.modules import BlockModule, Bottleneck
from bert_jax.models.tuning_method import ModuleMaker, Sublayer, Tuning


@dataclasses.dataclass(frozen=True)
class Pfeiffer(Tuning):
    """f + W₂ relu(W₁ y + b₁) + b₂ with y = norm(f + residual), f the output of the feed-forward.

    The feed-forward's norm is used, so it is applied twice with residual 'post'. W₁ is initialized
    with standard deviation 0.02 as in AdapterHub, W₂ with 1e-3 (AdapterHub: 0.02), so that training
    starts close to the frozen model. The default bottleneck is 1/16 of BERT-base's hidden size.
    """

    method: str = 'pfeiffer'
    bottleneck: int = 48

    published_rate: ClassVar[float | None] = 1e-4

    def block_module(self) -> ModuleMaker | None:
        return AfterFeedForward


class AfterFeedForward(BlockModule):
    """The adapter of a block."""

    @nn.compact
    def __call__(self, sublayer: Sublayer) -> jax.Array:
        output_BTD = sublayer.output_BTD
        if sublayer.name != 'feedforward':
            return output_BTD
        settings = (self.architecture, self.compute)
        inits = (nn.initializers.normal(0.02), nn.initializers.normal(1e-3))
        adapter = Bottleneck(*settings, 'relu', *inits, name='adapter')
        return output_BTD + adapter(sublayer.norm(output_BTD + sublayer.residual_BTD))

"""Adapters after attention and feed-forward (Houlsby et al. 2019, arXiv 1902.00751)."""

import dataclasses
from typing import ClassVar

import jax
from flax import linen as nn

from bert_jax.models.tuning.modules import BlockModule, Bottleneck
from bert_jax.models.tuning_method import ModuleMaker, Sublayer, Tuning


@dataclasses.dataclass(frozen=True)
class Houlsby(Tuning):
    """x + W₂ gelu(W₁ x + b₁) + b₂ after each sublayer, before the residual connection.

    Norms are trained too. In a decoder, attention to the encoder is followed by an adapter as well,
    as in jxhe/unify-parameter-efficient-tuning. W₁ and W₂ are initialized from a normal
    distribution of standard deviation 1e-3, truncated at two deviations
    (google-research/adapter-bert, modeling.py).
    """

    method: str = 'houlsby'
    bottleneck: int = 64

    published_rate: ClassVar[float | None] = 3e-4

    def block_module(self) -> ModuleMaker | None:
        return AfterEach

    def trains(self, name: str) -> bool:
        return 'norm' in name.split('/')[-2]


class AfterEach(BlockModule):
    """One adapter after each sublayer, `attention`, `cross_attention` and `feedforward`."""

    def setup(self) -> None:
        init = nn.initializers.truncated_normal(1e-3)
        settings = (self.architecture, self.compute, 'gelu', init, init)
        self.attention, self.feedforward = Bottleneck(*settings), Bottleneck(*settings)
        self.cross_attention = Bottleneck(*settings)  # has parameters only if it is called

    def __call__(self, sublayer: Sublayer) -> jax.Array:
        adapter: Bottleneck = getattr(self, sublayer.name)
        return sublayer.output_BTD + adapter(sublayer.output_BTD)

"""An adapter parallel to the feed-forward (He et al. 2022, arXiv 2110.04366, section 3.3)."""

import dataclasses
from typing import ClassVar

import jax
from flax import linen as nn

from bert_jax.models.tuning.modules import BlockModule, Bottleneck, kaiming_uniform
from bert_jax.models.tuning_method import ModuleMaker, Sublayer, Tuning


@dataclasses.dataclass(frozen=True)
class Parallel(Tuning):
    """feed-forward(x) + s (W₂ relu(W₁ x + b₁) + b₂), where W₂ starts at zero.

    Defaults are the authors' settings for GLUE (jxhe/unify-parameter-efficient-tuning). For
    summaries and translations with a decoder they use a bottleneck of 512 and a scale of 4. With
    norms before the sublayers the adapter reads the normalized states; in the authors' mBART it
    reads them before the norm.
    """

    method: str = 'parallel'
    bottleneck: int = 16
    scale: float = 2.0

    published_rate: ClassVar[float | None] = 1e-4

    def block_module(self) -> ModuleMaker | None:
        return BesideFeedForward


class BesideFeedForward(BlockModule):
    """The adapter of a block."""

    @nn.compact
    def __call__(self, sublayer: Sublayer) -> jax.Array:
        if sublayer.name != 'feedforward':
            return sublayer.output_BTD
        settings, size = (self.architecture, self.compute), self.architecture.hidden_size
        inits = (kaiming_uniform(size), nn.initializers.zeros)
        adapter = Bottleneck(*settings, 'relu', *inits, name='adapter')
        output_BTD: jax.Array = sublayer.output_BTD + self.tuning.scale * adapter(
            sublayer.input_BTD
        )
        return output_BTD

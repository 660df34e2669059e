"""Learned keys and values in the attention of each layer (Li & Liang 2021, arXiv 2101.00190)."""

import dataclasses
from typing import ClassVar

import jax
from flax import linen as nn

from bert_jax.models.tuning.modules import AddedModule
from bert_jax.models.tuning_method import ModuleMaker, Tuning


@dataclasses.dataclass(frozen=True)
class PrefixTuning(Tuning):
    """Every position attends to `length` further keys in each layer.

    These keys have no position and are visible from everywhere: windows, segments and distances do
    not apply to them, and positions of the text do not change. Keys and values are initialized with
    standard deviation 0.02. The default length is from He et al. 2022 for GLUE.

    A layer of a decoder has two prefixes, one for attention to the target and one for attention to
    the encoder's states. For summaries and translations He et al. use a length of 200, or of 30
    beside parallel adapters.
    """

    method: str = 'prefix'
    length: int = 16

    published_rate: ClassVar[float | None] = 1e-4
    needs_scores: ClassVar[bool] = True

    def attention_module(self) -> ModuleMaker | None:
        return KeysAndValues


class KeysAndValues(AddedModule):
    """The prefix of a layer."""

    @nn.compact
    def __call__(self) -> tuple[jax.Array, jax.Array]:
        """Keys and values, [L, H, K] each, in the compute dtype."""
        architecture = self.architecture
        shape = (self.tuning.length, architecture.num_heads, architecture.head_size)
        init, axes = nn.initializers.normal(0.02), (None, 'heads', 'head_dim')
        keys_LHK, values_LHK = (self.added(name, init, shape, axes) for name in ('keys', 'values'))
        dtype = self.compute.activation_dtype
        return keys_LHK.astype(dtype), values_LHK.astype(dtype)

"""Low-rank updates of projections (LoRA, Hu et al. 2021, arXiv 2106.09685)."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import numpy as np
from flax import linen as nn

from bert_jax.models.linear import product
from bert_jax.models.tuning.modules import DenseModule, kaiming_uniform
from bert_jax.models.tuning_method import Arrays, ModuleMaker, Tuning

# Name in `targets` → the last two path components of the projection. Those of attention are also
# targets in `cross_attention` of a decoder.
TARGETS = {
    'query': 'attention/query',
    'key': 'attention/key',
    'value': 'attention/value',
    'attention_output': 'attention/output',
    'feedforward_input': 'feedforward/input',
    'feedforward_output': 'feedforward/output',
}


@dataclasses.dataclass(frozen=True)
class Lora(Tuning):
    """W x + (α / r) B A x, with A [in, r] and B [r, out], which starts at zero.

    Defaults are the paper's for RoBERTa-base (appendix D): rank 8, α 16, queries and values.
    """

    method: str = 'lora'
    rank: int = 8
    alpha: float = 16.0
    targets: tuple[str, ...] = ('query', 'value')

    published_rate: ClassVar[float | None] = 5e-4
    can_merge: ClassVar[bool] = True

    def problems(self) -> list[str]:
        unknown = [target for target in self.targets if target not in TARGETS]
        if unknown or not self.targets:
            return [f'transfer.targets is {self.targets}; choose from {", ".join(TARGETS)}']
        return []

    @property
    def scale(self) -> float:
        return self.alpha / self.rank

    def dense_module(self, role: str) -> ModuleMaker | None:
        is_target = role.removeprefix('cross_') in [TARGETS[target] for target in self.targets]
        return LowRank if is_target else None

    def merge(self, role: str, weights: Arrays, added: Arrays) -> dict[str, Any]:
        update = np.tensordot(added['down'], added['up'], 1)
        return {**weights, 'kernel': weights['kernel'] + np.float32(self.scale) * update}


class LowRank(DenseModule):
    """A projection plus a low-rank update."""

    @nn.compact
    def __call__(self, project: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
        n, rank, dtype = self.num_inputs, self.tuning.rank, self.compute.activation_dtype
        inputs, outputs = math.prod(self.shape[:n]), math.prod(self.shape[n:])
        down = self.added(
            'down', kaiming_uniform(inputs), (*self.shape[:n], rank), (*self.axes[:n], None)
        )
        up = self.added(
            'up', nn.initializers.zeros, (rank, *self.shape[n:]), (None, *self.axes[n:])
        )
        y = project(x)
        x_XI = x.reshape(-1, inputs)
        x_XR = product('XI,IR->XR', x_XI, down.reshape(inputs, rank), dtype).astype(dtype)
        update_XO = product('XR,RO->XO', x_XR, up.reshape(rank, outputs), dtype)
        changed_XO: jax.Array = y + self.tuning.scale * update_XO.reshape(y.shape)
        return changed_XO

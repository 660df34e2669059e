"""Learned factors on keys, values and inner activations ((IA)³, Liu et al. 2022)."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import numpy as np
from flax import linen as nn

from bert_jax.models.tuning.modules import DenseModule
from bert_jax.models.tuning_method import Arrays, ModuleMaker, Tuning

# Projections with a scaled output; in a decoder also those of the encoder's states.
_OUTPUTS = (
    'attention/key',
    'attention/value',
    'cross_attention/key',
    'cross_attention/value',
)
_INPUT = 'feedforward/output'  # projection with a scaled input


@dataclasses.dataclass(frozen=True)
class IA3(Tuning):
    """k ⊙ l_k, v ⊙ l_v and, before the second feed-forward projection, x ⊙ l; all start at 1.

    Liu et al. 2022, arXiv 2205.05638, section 3.3.
    """

    method: str = 'ia3'

    published_rate: ClassVar[float | None] = 3e-3
    can_merge: ClassVar[bool] = True

    def dense_module(self, role: str) -> ModuleMaker | None:
        if role in _OUTPUTS:
            return ScaledOutput
        return ScaledInput if role == _INPUT else None

    def merge(self, role: str, weights: Arrays, added: Arrays) -> dict[str, Any]:
        if role == _INPUT:
            return {**weights, 'kernel': weights['kernel'] * added['scale'][:, None]}
        return {name: np.asarray(weight * added['scale']) for name, weight in weights.items()}


class ScaledOutput(DenseModule):
    """A projection with a scaled output."""

    @nn.compact
    def __call__(self, project: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
        n, ones = self.num_inputs, nn.initializers.ones
        scale = self.added('scale', ones, self.shape[n:], self.axes[n:])
        return project(x) * scale.reshape(-1)


class ScaledInput(DenseModule):
    """A projection with a scaled input."""

    @nn.compact
    def __call__(self, project: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
        n, ones = self.num_inputs, nn.initializers.ones
        scale = self.added('scale', ones, self.shape[:n], self.axes[:n])
        return project((x * scale).astype(x.dtype))

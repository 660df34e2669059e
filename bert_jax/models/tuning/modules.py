"""Modules of added parameters that several tuning methods use."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.feedforward import ACTIVATIONS
from bert_jax.models.linear import product
from bert_jax.models.module import Module
from bert_jax.models.partitioning import param
from bert_jax.models.tuning_method import Sublayer


class AddedModule(Module):
    """Base class of modules of added parameters."""

    @property
    def tuning(self) -> Any:
        """The method and its settings."""
        return self.architecture.tuning

    @nn.nowrap
    def added(
        self,
        name: str,
        init: Callable[..., jax.Array],
        shape: tuple[int, ...],
        axes: tuple[str | None, ...],
    ) -> jax.Array:
        """Declare an added fp32 parameter.

        Layers that share all other parameters have separate added parameters, stored as [uses, …].
        """
        uses = self.tuning.uses
        if uses is None:
            return param(self, name, init, shape, axes)

        def init_all(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
            return jax.vmap(lambda key: init(key, shape[1:]))(jax.random.split(key, uses))

        return param(self, name, init_all, (uses, *shape), (None, *axes))[self.tuning.use]


class DenseModule(AddedModule):
    """Base class of modules around a projection.

    Attributes:
        shape, axes: of the kernel.
        num_inputs: number of leading kernel dimensions that are inputs.
    """

    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    num_inputs: int

    def __call__(self, project: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
        """Return the new output for x; `project` is the projection function."""
        raise NotImplementedError


def kaiming_uniform(fan_in: int) -> Callable[..., jax.Array]:
    """U(−1/√fan_in, 1/√fan_in), as torch.nn.init.kaiming_uniform_ with a = √5."""
    bound = 1 / math.sqrt(fan_in)

    def init(key: jax.Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init


class Bottleneck(AddedModule):
    """activation(x W₁ + b₁) W₂ + b₂ with W₁ [D, M] and W₂ [M, D].

    Attributes:
        activation: a key of ACTIVATIONS.
        down_init, up_init: initializers of W₁ and W₂; biases start at 0.
    """

    activation: str
    down_init: Callable[..., jax.Array]
    up_init: Callable[..., jax.Array]

    @nn.compact
    def __call__(self, x_BTD: jax.Array) -> jax.Array:
        size, width = self.architecture.hidden_size, self.tuning.bottleneck
        dtype, zeros = self.compute.activation_dtype, nn.initializers.zeros
        down_DM = self.added('down', self.down_init, (size, width), ('embed', None))
        down_bias_M = self.added('down_bias', zeros, (width,), (None,))
        up_MD = self.added('up', self.up_init, (width, size), (None, 'embed'))
        up_bias_D = self.added('up_bias', zeros, (size,), ('embed',))
        x_BTM = product('BTD,DM->BTM', x_BTD, down_DM, dtype) + down_bias_M
        x_BTM = ACTIVATIONS[self.activation](x_BTM.astype(dtype))
        return (product('BTM,MD->BTD', x_BTM, up_MD, dtype) + up_bias_D).astype(dtype)


class BlockModule(AddedModule):
    """Base class of modules that follow attention and feed-forward of a block."""

    def __call__(self, sublayer: Sublayer) -> jax.Array:
        """Return the new output, which is added to the residual."""
        raise NotImplementedError

"""`Module`, the base class of encoders, their parts, and heads; norms over the features."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models import kernels
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.dropout import dropout
from bert_jax.models.linear import Dense
from bert_jax.models.partitioning import param


def layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array | int, epsilon: float) -> jax.Array:
    """Zero mean and unit (biased) variance over the last axis, in two passes and in fp32."""
    x32 = x.astype(jnp.float32)
    centered = x32 - x32.mean(-1, keepdims=True)
    variance = jnp.square(centered).mean(-1, keepdims=True)
    return (centered * jax.lax.rsqrt(variance + epsilon) * scale + bias).astype(x.dtype)


def rms_norm(x: jax.Array, scale: jax.Array, epsilon: float) -> jax.Array:
    """Unit mean square over the last axis, in fp32."""
    x32 = x.astype(jnp.float32)
    mean_square = jnp.square(x32).mean(-1, keepdims=True)
    return (x32 * jax.lax.rsqrt(mean_square + epsilon) * scale).astype(x.dtype)


class Addition(NamedTuple):
    """What a residual connection adds to the states.

    Attributes:
        update_BTD: the output of a sublayer.
        rate: of its dropout.
        seeds_B: uint32; None: no dropout.
    """

    update_BTD: jax.Array
    rate: float
    seeds_B: jax.Array | None


def _sum_norm(
    x: jax.Array,
    added: Addition | None,
    scale_D: jax.Array,
    bias_D: jax.Array | int,
    epsilon: float,
    is_centered: bool,
) -> jax.Array:
    """`layer_norm` or, if not centered, `rms_norm` of x + dropout(update)."""
    if added is not None:
        if kernels.runs_triton():
            from bert_jax.models import triton_norm  # Pallas takes 0.5 s to import

            if triton_norm.fits(x, added.update_BTD):
                return triton_norm.apply(x, *added, scale_D, bias_D, epsilon, is_centered)
        x = x + dropout(*added)
    if is_centered:
        return layer_norm(x, scale_D, bias_D, epsilon)
    return rms_norm(x, scale_D, epsilon)


class LayerNorm(nn.Module):
    """`layer_norm` (Ba et al. 2016) with a learned scale and, by default, a learned bias."""

    architecture: Architecture
    compute: Compute
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: jax.Array, added: Addition | None = None) -> jax.Array:
        scale = _scale(self, x)
        bias: jax.Array | int = 0
        if self.use_bias:
            bias = param(self, 'bias', nn.initializers.zeros, (x.shape[-1],), ('norm',))
        return _sum_norm(x, added, scale, bias, self.architecture.layer_norm_eps, True)


class RMSNorm(nn.Module):
    """`rms_norm` (Zhang & Sennrich 2019) with a learned scale."""

    architecture: Architecture
    compute: Compute

    @nn.compact
    def __call__(self, x: jax.Array, added: Addition | None = None) -> jax.Array:
        return _sum_norm(x, added, self.scale(x), 0, self.architecture.layer_norm_eps, False)

    def scale(self, x: jax.Array) -> jax.Array:
        """Return the factor of each feature."""
        return _scale(self, x)


class CenteredRMSNorm(RMSNorm):
    """`rms_norm` whose parameters are added to 1, so that decay pulls scales to 1 (Gemma)."""

    def scale(self, x: jax.Array) -> jax.Array:
        shape = (x.shape[-1],)
        return 1 + param(self, 'scale', nn.initializers.zeros, shape, ('norm',))


def _scale(module: nn.Module, x: jax.Array) -> jax.Array:
    return param(module, 'scale', nn.initializers.ones, (x.shape[-1],), ('norm',))


NORMS: dict[str, Callable[..., nn.Module]] = {
    'layer_norm': LayerNorm,
    'unbiased_layer_norm': functools.partial(LayerNorm, use_bias=False),
    'rms_norm': RMSNorm,
    'centered_rms_norm': CenteredRMSNorm,
}


class Module(nn.Module):
    """A Flax module of an architecture, with factories for its parts."""

    architecture: Architecture
    compute: Compute

    @nn.nowrap
    def make_dense(
        self, spec: str, shape: tuple[int, ...], names: tuple[str | None, ...], **options: Any
    ) -> Dense:
        """Make a `Dense` of this architecture; `options` are further fields of `Dense`."""
        return Dense(spec, shape, names, self.architecture, self.compute, **options)

    @nn.nowrap
    def make_norm(self, name: str | None = None) -> nn.Module:
        """Make the architecture's kind of norm."""
        return NORMS[self.architecture.norms.function](self.architecture, self.compute, name=name)

    @nn.nowrap
    def make_tuning(self, part: str) -> Any:
        """Make the tuning module of a 'block', 'attention' or 'embeddings', if there is one.

        Assign it to the attribute `tuning`, which names its parameters.
        """
        method = self.architecture.tuning
        module = None if method is None else getattr(method, f'{part}_module')()
        return None if module is None else module(self.architecture, self.compute)

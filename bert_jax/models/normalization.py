"""Normalization over the features of a position."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.architecture import Architecture, Compute


def layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array, epsilon: float) -> jax.Array:
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


class LayerNorm(nn.Module):
    """`layer_norm` (Ba et al. 2016) with learned scale and, if the architecture has biases, bias."""

    architecture: Architecture
    compute: Compute

    @nn.compact
    def __call__(self, x):
        scale, bias = _scale(self, x), 0
        if self.architecture.biases:
            init = nn.with_logical_partitioning(nn.initializers.zeros, ('norm',))
            bias = self.param('bias', init, (x.shape[-1],))
        return layer_norm(x, scale, bias, self.architecture.layer_norm_eps)


class RMSNorm(nn.Module):
    """`rms_norm` (Zhang & Sennrich 2019) with learned scale."""

    architecture: Architecture
    compute: Compute

    @nn.compact
    def __call__(self, x):
        return rms_norm(x, _scale(self, x), self.architecture.layer_norm_eps)


def _scale(module: nn.Module, x: jax.Array) -> jax.Array:
    init = nn.with_logical_partitioning(nn.initializers.ones, ('norm',))
    return module.param('scale', init, (x.shape[-1],))


NORMS = {'layer_norm': LayerNorm, 'rms_norm': RMSNorm}


def make_norm(architecture: Architecture, compute: Compute, name: str | None = None) -> nn.Module:
    """The norm of the architecture's choice."""
    return NORMS[architecture.norm](architecture, compute, name=name)

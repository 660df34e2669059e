"""Layer normalisation (Ba et al. 2016)."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.architecture import Architecture, Compute


def layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array, epsilon: float) -> jax.Array:
    """Zero mean and unit (biased) variance over the last axis, in two passes and in fp32."""
    x32 = x.astype(jnp.float32)
    centred = x32 - x32.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    return (centred * jax.lax.rsqrt(variance + epsilon) * scale + bias).astype(x.dtype)


class LayerNorm(nn.Module):
    """`layer_norm` with learnt scale and bias."""

    architecture: Architecture
    compute: Compute

    @nn.compact
    def __call__(self, x):
        shape = (x.shape[-1],)
        scale = self.param(
            'scale', nn.with_logical_partitioning(nn.initializers.ones, ('norm',)), shape
        )
        bias = self.param(
            'bias', nn.with_logical_partitioning(nn.initializers.zeros, ('norm',)), shape
        )
        return layer_norm(x, scale, bias, self.architecture.layer_norm_eps)

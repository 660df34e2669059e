"""Activation functions by name."""

import jax
import jax.numpy as jnp
import numpy as np


@jax.custom_vjp
def gelu(x: jax.Array) -> jax.Array:
    """Exact GELU x·Φ(x) (Hendrycks & Gimpel 2016), through erf, which is cheaper than erfc.

    For the backward pass x alone is kept; left to itself XLA would keep erf as well.
    """
    x32 = x.astype(jnp.float32)
    return (x32 * _normal_cdf(x32)).astype(x.dtype)


def _gelu_backward(x, grad):
    x32 = jax.lax.optimization_barrier(x).astype(jnp.float32)  # or XLA keeps what it computed
    density = jnp.exp(-0.5 * jnp.square(x32)) * (2 * np.pi) ** -0.5
    return (((_normal_cdf(x32) + x32 * density) * grad).astype(x.dtype),)


gelu.defvjp(lambda x: (gelu(x), x), _gelu_backward)


def _normal_cdf(x32):
    return 0.5 * (1 + jax.lax.erf(x32 * 0.5**0.5))


def gelu_tanh(x: jax.Array) -> jax.Array:
    """GELU by its tanh approximation, as google-research/bert has it."""
    return jax.nn.gelu(x.astype(jnp.float32), approximate=True).astype(x.dtype)


def silu(x: jax.Array) -> jax.Array:
    """x·σ(x) (Elfwing et al. 2018), also called swish."""
    return jax.nn.silu(x.astype(jnp.float32)).astype(x.dtype)


ACTIVATIONS = {
    'gelu': gelu,
    'gelu_tanh': gelu_tanh,
    'relu': jax.nn.relu,
    'silu': silu,
    'tanh': jnp.tanh,
}

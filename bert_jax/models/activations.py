"""Activation functions by name."""

import jax
import jax.numpy as jnp


def gelu(x: jax.Array) -> jax.Array:
    """Exact GELU x·Φ(x) (Hendrycks & Gimpel 2016), through erf, which is cheaper than erfc."""
    x32 = x.astype(jnp.float32)
    return (0.5 * x32 * (1 + jax.lax.erf(x32 * 0.5**0.5))).astype(x.dtype)


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

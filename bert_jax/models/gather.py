"""Taking chosen positions out of a batch of sequences."""

import jax
import jax.numpy as jnp


def gather_positions(hidden_BTD: jax.Array, positions_BP: jax.Array) -> jax.Array:
    """hidden_BTD[b, positions_BP[b, p]], [B, P, D], each position in [0, T)."""
    return jnp.take_along_axis(hidden_BTD, positions_BP[:, :, None], axis=1)

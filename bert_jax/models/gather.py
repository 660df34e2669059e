"""Finding and taking chosen positions in a batch of sequences."""

import jax
import jax.numpy as jnp


def gather_positions(hidden_BTD: jax.Array, positions_BP: jax.Array) -> jax.Array:
    """hidden_BTD[b, positions_BP[b, p]], [B, P, D], each position in [0, T)."""
    return jnp.take_along_axis(hidden_BTD, positions_BP[:, :, None], axis=1)


def segment_starts(segment_ids_BT: jax.Array) -> jax.Array:
    """int32 [B, T]: where the segment of each position begins, a run of one and the same id."""
    before_BT = jnp.pad(segment_ids_BT[:, :-1], ((0, 0), (1, 0)), constant_values=-1)
    t_T = jnp.arange(segment_ids_BT.shape[1])
    return jax.lax.cummax(jnp.where(segment_ids_BT != before_BT, t_T, 0), axis=1)

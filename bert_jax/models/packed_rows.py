"""Rows that pack several sequences (examples/packing.py), and chosen positions in them."""

from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.models.linear import product
from bert_jax.types import Array, Batch

_PACKED_KEYS = {'segment_ids_BT': 'segment_ids', 'first_positions_BS': 'first_positions'}


def encoder_arguments(batch: Batch) -> dict[str, Any]:
    """Return the encoder's arguments for packed rows; empty for batches that are not packed."""
    return {argument: batch[key] for argument, key in _PACKED_KEYS.items() if key in batch}


def gather_positions(hidden_BTD: Array, positions_BP: Array) -> jax.Array:
    """[B, P, D]: hidden_BTD[b, positions_BP[b, p]]; positions are in [0, T)."""
    return jnp.take_along_axis(hidden_BTD, positions_BP[:, :, None], axis=1)


def segment_starts(segment_ids_BT: Array) -> jax.Array:
    """int32 [B, T]: the first position of each position's segment, a run of one segment id."""
    before_BT = jnp.pad(segment_ids_BT[:, :-1], ((0, 0), (1, 0)), constant_values=-1)
    t_T = jnp.arange(segment_ids_BT.shape[1])
    return jax.lax.cummax(jnp.where(segment_ids_BT != before_BT, t_T, 0), axis=1)


def sequence_members(segment_ids_BT: Array, first_positions_BS: Array) -> jax.Array:
    """bool [B, S, T]: whether a position belongs to the sequence with this first position.

    No position belongs to a sequence whose first position is negative.
    """
    ids_BS = jnp.take_along_axis(segment_ids_BT, jnp.maximum(first_positions_BS, 0), axis=1)
    same_BST = segment_ids_BT[:, None, :] == ids_BS[:, :, None]
    return same_BST & (first_positions_BS >= 0)[:, :, None]


def masked_mean(hidden_BTD: jax.Array, member_BST: Array) -> jax.Array:
    """[B, S, D]: mean state of each set of positions, summed in fp32; 0 for an empty set."""
    weight_BST = member_BST.astype(jnp.float32)
    sum_BSD = product('BST,BTD->BSD', weight_BST, hidden_BTD, jnp.dtype('float32'))
    count_BS1 = jnp.maximum(member_BST.sum(2, keepdims=True), 1)
    return (sum_BSD / count_BS1).astype(hidden_BTD.dtype)

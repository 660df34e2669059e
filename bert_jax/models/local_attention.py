"""Attention within a window: blocks of queries attend to the keys around them.

With window w and blocks of C, block n holds the queries nC … nC + C − 1 and the keys
nC − w … nC + C + w − 1, so time and memory grow as T · w instead of T². Blocks become the rows of a
batch, to which any dense attention applies.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.dropout import weight_dropout
from bert_jax.models.linear import product
from bert_jax.models.visibility import Visibility, block_size


def attend(
    query_BTHK: jax.Array,
    key_BUHK: jax.Array,
    value_BUHK: jax.Array,
    visibility: Visibility,
    dropout_rate: float = 0.0,
    seeds_B: jax.Array | None = None,
) -> jax.Array:
    """Attention in blocks that materializes the scores of each block.

    Returns:
        [B, T, H, K] in the dtype of the queries; equal to attention of whole rows up to rounding,
        with the same dropout mask, at every position that attends to another.
    """
    dtype, length = query_BTHK.dtype, query_BTHK.shape[1]

    def attend_block(
        query: jax.Array, key: jax.Array, value: jax.Array, visibility: Visibility
    ) -> jax.Array:
        scores_BHTU = product('BTHK,BUHK->BHTU', query, key, dtype) * query.shape[-1] ** -0.5
        weights_BHTU = jax.nn.softmax(scores_BHTU + visibility.bias(query.shape[1], key.shape[1]))
        shape = weights_BHTU.shape
        weights = weights_BHTU.reshape(len(query_BTHK), -1, *shape[1:])
        positions = _weight_positions(weights.shape, length, visibility.first_key)
        weights_BHTU = weight_dropout(weights, dropout_rate, seeds_B, *positions).reshape(shape)
        return product('BHTU,BUHK->BTHK', weights_BHTU, value, dtype).astype(dtype)

    return attend_in_blocks(attend_block, query_BTHK, key_BUHK, value_BUHK, visibility)


def attend_in_blocks(
    attend_block: Callable[[jax.Array, jax.Array, jax.Array, Visibility], jax.Array],
    query_BTHK: jax.Array,
    key_BUHK: jax.Array,
    value_BUHK: jax.Array,
    visibility: Visibility,
) -> jax.Array:
    """Compute attention within a window by a function that attends to all keys of a block.

    Args:
        attend_block: takes queries, keys, values and their visibility; the leading axis holds the
            blocks of all rows.
        query_BTHK: queries.
        key_BUHK: keys, of the same positions.
        value_BUHK: values.
        visibility: of whole rows, with a window.

    Returns:
        [B, T, H, K].
    """
    num_rows, length = query_BTHK.shape[:2]
    window, mask_BU = visibility.window, visibility.attention_mask_BU
    assert window is not None
    mask_BU = jnp.ones((num_rows, length), jnp.int32) if mask_BU is None else mask_BU
    num_later = 0 if visibility.is_causal else window

    def queries(x_BT: jax.Array) -> jax.Array:
        return _merge_rows(_split(x_BT, block_size(window)))

    def keys(x_BU: jax.Array) -> jax.Array:
        return _merge_rows(_with_neighbors(_split(x_BU, block_size(window)), window, num_later))

    segment_ids_BT = visibility.segment_ids_BT
    causal_B = visibility.causal_B
    if causal_B is not None:
        causal_B = jnp.repeat(causal_B, -(-length // block_size(window)))
    block_visibility = dataclasses.replace(
        visibility,
        attention_mask_BU=keys(mask_BU),  # zero outside the row
        segment_ids_BT=None if segment_ids_BT is None else queries(segment_ids_BT),
        key_segment_ids_BU=None if segment_ids_BT is None else keys(segment_ids_BT),
        first_key=-window,
        causal_B=causal_B,
    )
    states = (queries(query_BTHK), keys(key_BUHK), keys(value_BUHK))
    result = attend_block(*states, block_visibility)
    return result.reshape(num_rows, -1, *result.shape[2:])[:, :length]


def _split(x_BT: jax.Array, size: int) -> jax.Array:
    """[B, T, …] → [B, N, C, …] blocks of C positions, the last one padded with zeros."""
    num_rows, length, *rest = x_BT.shape
    padding = [(0, 0), (0, -length % size), *[(0, 0)] * len(rest)]
    return jnp.pad(x_BT, padding).reshape(num_rows, -1, size, *rest)


def _with_neighbors(x_BNC: jax.Array, before: int, after: int) -> jax.Array:
    """[B, N, C, …] → [B, N, before + C + after, …]: blocks and the positions around them."""
    size, rest = x_BNC.shape[2], [(0, 0)] * (x_BNC.ndim - 2)
    earlier = jnp.pad(x_BNC[:, :-1, size - before :], [(0, 0), (1, 0), *rest])
    later = jnp.pad(x_BNC[:, 1:, :after], [(0, 0), (0, 1), *rest])
    return jnp.concatenate([earlier, x_BNC, later], axis=2)


def _merge_rows(x_BN: jax.Array) -> jax.Array:
    return x_BN.reshape(-1, *x_BN.shape[2:])


def _weight_positions(
    shape: tuple[int, ...], length: int, first_key: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the flat index of each query in an example's [H, T], and the position of each key.

    uint32 [1, N, H, C, 1] and [1, N, 1, 1, U]. Keys outside the row have arbitrary positions.
    """
    block, head, query, key = np.ix_(*(np.arange(size) for size in shape[1:]))
    first_query = block * shape[3]
    positions = head * length + first_query + query
    return _uint32(positions[None]), _uint32((first_query + key + first_key)[None])


def _uint32(x: np.ndarray) -> np.ndarray:
    return (x % 2**32).astype(np.uint32)

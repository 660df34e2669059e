"""Dropout whose masks are a hash of the example's seed, the site and the position.

A mask depends only on the example's seed and the position within the example, so it is the same on
any mesh, in any micro-batch, with or without scan and remat. The hash is a dozen integer operations
that fuse with their surroundings; threefry bits cost about a quarter of a training step on CPU.
"""

from collections.abc import Callable
from typing import overload

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.architecture import Architecture


def dropout(x: jax.Array, rate: float, seeds_B: jax.Array | None) -> jax.Array:
    """Set a share `rate` of the entries of x to zero and divide the others by 1 − rate.

    Args:
        x: [B, …].
        rate: in [0, 1).
        seeds_B: uint32, one per example, folded with the site (`fold_in`) so that no two sites
            share a mask. None returns x (evaluation).
    """
    if seeds_B is None or rate == 0:
        return x
    keep = random_bits(x.shape, seeds_B) >= np.uint32(round(rate * 2**32))
    return jnp.where(keep, x * jnp.asarray(1 / (1 - rate), x.dtype), 0)


def weight_dropout(
    weights_XTU: jax.Array,
    rate: float,
    seeds_B: jax.Array | None,
    positions_XT1: jax.Array | np.ndarray | None = None,
    key_XTU: jax.Array | np.ndarray | None = None,
) -> jax.Array:
    """`dropout` of attention weights, with half a hash per weight (`keep_pairs`).

    Args:
        weights_XTU: [B, …, T, U].
        rate: in [0, 1).
        seeds_B: as in `dropout`.
        positions_XT1: uint32, with leading axis 1: the flat index of each query in [H, T]. None:
            weights are [B, H, T, U].
        key_XTU: uint32, broadcastable: the position of each key. None: all keys in order.
    """
    if seeds_B is None or rate == 0:
        return weights_XTU
    if key_XTU is None:
        key_XTU = np.arange(weights_XTU.shape[-1], dtype=np.uint32)
    bits_XT1 = random_bits((*weights_XTU.shape[:-1], 1), seeds_B, positions_XT1)
    words_XTU = _mix(bits_XT1 + (key_XTU // 16 * 8 + key_XTU % 8))
    keep_XTU = _is_kept(jnp.where(key_XTU % 16 < 8, words_XTU << 16, words_XTU), rate)
    return jnp.where(keep_XTU, weights_XTU * jnp.asarray(1 / (1 - rate), weights_XTU.dtype), 0)


def keep_pairs(bits_1T: jax.Array, key_start: jax.Array | int, keys: int, rate: float) -> jax.Array:
    """Which weights dropout keeps, bool [keys, T], for consecutive keys.

    Each weight takes half a hash, 16 bits, which a TPU's arithmetic units compute while its matrix
    unit multiplies. Keys u and u + 8 of 16 share a hash, since 8 rows form a register on TPU.

    Args:
        bits_1T: uint32, `random_bits` of the queries.
        key_start: the first key, a multiple of 16.
        keys: number of keys, a multiple of 16.
    """
    shape = (keys // 2, bits_1T.shape[1])
    index = jax.lax.broadcasted_iota(jnp.int32, shape, 0) + jax.lax.div(key_start, 2)
    words = _mix(bits_1T + index.astype(jnp.uint32)).reshape(keys // 16, 8, -1)
    bits = jnp.stack([words << 16, words], axis=1).reshape(keys, -1)
    return _is_kept(bits, rate)


def _is_kept(bits: jax.Array, rate: float) -> jax.Array:
    """Whether the upper 16 bits fall into the share 1 − rate; signed, which is cheaper on TPU."""
    threshold = np.int32(round(rate * 2**16) * 2**16 - 2**31)
    return jax.lax.bitcast_convert_type(bits, jnp.int32) >= threshold


def head_dropout(
    architecture: Architecture, seeds_B: jax.Array | None
) -> Callable[[jax.Array, int], jax.Array]:
    """Return the dropout of a fine-tuning head: a function of x and a site number in the head."""
    rate = architecture.classifier.dropout
    rate = architecture.hidden_dropout if rate is None else rate
    head_seeds_B = fold_in(seeds_B, architecture.num_layers + 1)  # the encoder uses 0 … L
    return lambda x, site: dropout(x, rate, fold_in(head_seeds_B, site))


@overload
def fold_in(seeds_B: jax.Array, number: int | np.ndarray) -> jax.Array: ...
@overload
def fold_in(seeds_B: jax.Array | None, number: int | np.ndarray) -> jax.Array | None: ...
def fold_in(seeds_B: jax.Array | None, number: int | np.ndarray) -> jax.Array | None:
    """Derive uint32 seeds for a numbered site (such as a layer) or time; None stays None."""
    if seeds_B is None:
        return None
    site = jnp.asarray(number).astype(jnp.uint32)
    return _mix(seeds_B ^ _mix(site + np.uint32(0x9E3779B9)))


def random_bits(
    shape: tuple[int, ...], seeds_B: jax.Array, positions: jax.Array | np.ndarray | None = None
) -> jax.Array:
    """uint32 [B, …] bits, each a function of its example's seed and its position in the example."""
    first, second = (
        fold_in(seeds_B, number).reshape(-1, *[1] * (len(shape) - 1)) for number in range(2)
    )
    positions = _positions(shape) if positions is None else jnp.asarray(positions)
    return mixed_bits(positions, first, second)


def mixed_bits(positions: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
    """Hash positions with the two words of their example, all uint32."""
    # Two rounds: after one round similar seeds would give shifted copies of the same sequence.
    return _mix(_mix(positions + first) ^ second)


def _mix(bits: jax.Array) -> jax.Array:
    """A bijection of uint32 in which every output bit depends on every input bit.

    The finalizer of murmur3 (A. Appleby) with the constants "lowbias32" of C. Wellons.
    """
    bits = (bits ^ (bits >> 16)) * np.uint32(0x7FEB352D)
    bits = (bits ^ (bits >> 15)) * np.uint32(0x846CA68B)
    return bits ^ (bits >> 16)


def _positions(shape: tuple[int, ...]) -> jax.Array:
    """uint32 [1, …]: the flat index of each entry within its example."""
    shape = (1, *shape[1:])
    positions: jax.Array = jnp.uint32(0)
    stride = 1
    for axis in reversed(range(1, len(shape))):
        steps = jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
        positions = positions + steps * np.uint32(stride % 2**32)
        stride *= shape[axis]
    return positions

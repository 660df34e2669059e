"""Dropout without a random generator: bits are a hash of (example's seed, place, position).

A mask depends on the example's seed and the position inside the example alone, so that it is the
same on any mesh, in any micro-batch, with or without scan and remat. The hash is a dozen integer
operations that fuse into their surroundings; threefry bits cost about a quarter of a step on CPUs.
"""

import jax
import jax.numpy as jnp
import numpy as np


def _mix(bits: jax.Array) -> jax.Array:
    """A bijection of uint32 in which every bit depends on every other: the murmur3 finaliser
    (A. Appleby) with C. Wellons's constants "lowbias32"."""
    bits = (bits ^ (bits >> 16)) * np.uint32(0x7FEB352D)
    bits = (bits ^ (bits >> 15)) * np.uint32(0x846CA68B)
    return bits ^ (bits >> 16)


def fold(seeds_B: jax.Array | None, number) -> jax.Array | None:
    """New uint32 seeds for a numbered place (layer, site) or time; None stays None."""
    if seeds_B is None:
        return None
    number = jnp.asarray(number).astype(jnp.uint32)
    return _mix(seeds_B ^ _mix(number + np.uint32(0x9E3779B9)))


def separate(seeds_LB: jax.Array | None, layers: int) -> list[jax.Array | None]:
    """The seeds of each layer, [B]; None for each where there are none.

    They come out of a loop, so that no compiler can see which layer's they are: a layer's number
    known to it would be a constant in the layer's masks, and their kernels, otherwise the same in
    all layers and compiled once, would be compiled for each.
    """
    if seeds_LB is None:
        return [None] * layers

    def push(seeds, new_B):
        return [*seeds[1:], new_B], None

    return jax.lax.scan(push, [seeds_LB[0]] * layers, seeds_LB)[0]


def dropout(x: jax.Array, rate: float, seeds_B: jax.Array | None) -> jax.Array:
    """x [B, …] with a share `rate` of its entries zero and the others divided by 1 − rate.

    seeds_B: uint32, one per example, folded with the place so that no two places share them;
    None leaves x as it is (evaluation).
    """
    if seeds_B is None or rate == 0:
        return x
    keep = random_bits(x.shape, seeds_B) >= np.uint32(round(rate * 2**32))
    return jnp.where(keep, x * jnp.asarray(1 / (1 - rate), x.dtype), 0)


def random_bits(shape: tuple[int, ...], seeds_B: jax.Array) -> jax.Array:
    """uint32 of a shape [B, …], each a function of its example's seed and its place therein."""
    first, second = (
        fold(seeds_B, number).reshape(-1, *[1] * (len(shape) - 1)) for number in range(2)
    )
    # Two rounds: after one, near seeds would give shifted copies of one and the same sequence.
    return _mix(_mix(_positions(shape) + first) ^ second)


def _positions(shape: tuple[int, ...]) -> jax.Array:
    """uint32 [1, …]: the number of each entry within its example."""
    shape = (1, *shape[1:])
    positions, stride = jnp.uint32(0), 1
    for axis in reversed(range(1, len(shape))):
        steps = jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
        positions = positions + steps * np.uint32(stride % 2**32)
        stride *= shape[axis]
    return positions

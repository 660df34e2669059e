"""Rotary positions for TPUs as a Pallas kernel: heads stay side by side.

XLA would pad each half of a head to a whole register and copy the arrays to that layout and back.
Local letters: F = H·K; W features of a tile, which is one wide head or several narrow heads.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bert_jax.models.pallas_kernels import Tile

INTERPRET = False  # tests set it, to run without a TPU
LANES = 128  # of a vector register
_BLOCK = 512  # positions


def fits(num_heads: int, head_size: int) -> bool:
    """Whether heads fill registers without a remainder."""
    is_aligned = head_size % LANES == 0 or (head_size % 2 == 0 and LANES % head_size == 0)
    return is_aligned and num_heads * head_size % LANES == 0


def rotate(x_BTHK: jax.Array, cos_TJ: jax.Array, sin_TJ: jax.Array) -> jax.Array:
    """Rotate features k and k + K/2 of each head by an angle, in fp32. Heads must fit (`fits`)."""
    *_, num_heads, head_size = x_BTHK.shape
    half = head_size // 2
    repeats = max(LANES, head_size) // half
    sign_W = jnp.where(jnp.arange(repeats * half) % head_size < half, -1.0, 1.0)
    cos_TW, sin_TW = jnp.tile(cos_TJ, repeats), jnp.tile(sin_TJ, repeats)
    x_BTF = x_BTHK.reshape(*x_BTHK.shape[:2], num_heads * head_size)
    return _rotate(head_size, x_BTF, cos_TW, sin_TW * sign_W).reshape(x_BTHK.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _rotate(head_size: int, x_BTF: jax.Array, cos_TW: jax.Array, sin_TW: jax.Array) -> jax.Array:
    """x · cos + (the other feature of the pair) · sin."""
    (num_rows, length, size), width = x_BTF.shape, cos_TW.shape[1]
    block = min(_BLOCK, length)
    # Rows of the batch are the inner loop, so that each block of the tables is loaded once.
    states = pl.BlockSpec((1, block, size), lambda i, b: (b, i, 0))
    table = pl.BlockSpec((block, width), lambda i, b: (i, 0))
    num_bytes = 2 * x_BTF.size * x_BTF.dtype.itemsize + 8 * cos_TW.size
    cost = pl.CostEstimate(flops=4 * x_BTF.size, transcendentals=0, bytes_accessed=num_bytes)
    rotated: jax.Array = pl.pallas_call(
        functools.partial(_rotation_kernel, head_size),
        grid=(pl.cdiv(length, block), num_rows),
        in_specs=[states, table, table],
        out_specs=states,
        out_shape=jax.ShapeDtypeStruct(x_BTF.shape, x_BTF.dtype),
        compiler_params=pltpu.CompilerParams(dimension_semantics=('parallel', 'parallel')),
        cost_estimate=cost,
        interpret=INTERPRET,
        name='rotation_kernel',
    )(x_BTF, cos_TW, sin_TW)
    return rotated


def _rotate_forward(
    head_size: int, x_BTF: jax.Array, cos_TW: jax.Array, sin_TW: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _rotate(head_size, x_BTF, cos_TW, sin_TW), (cos_TW, sin_TW)


def _rotate_backward(
    head_size: int, tables: tuple[jax.Array, jax.Array], gradient_BTF: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Rotate gradients back; the tables get none."""
    cos_TW, sin_TW = tables
    zeros_TW = jnp.zeros_like(cos_TW)
    return _rotate(head_size, gradient_BTF, cos_TW, -sin_TW), zeros_TW, zeros_TW


_rotate.defvjp(_rotate_forward, _rotate_backward)


def _rotation_kernel(
    head_size: int, x_ref: Tile, cos_ref: Tile, sin_ref: Tile, out_ref: Tile
) -> None:
    width, half = cos_ref.shape[1], head_size // 2
    lane_1W = jax.lax.broadcasted_iota(jnp.int32, (1, width), 1)
    for start in range(0, x_ref.shape[2], width):
        tile = slice(start, start + width)
        x_TW = x_ref[0, :, tile].astype(jnp.float32)
        later_TW, earlier_TW = pltpu.roll(x_TW, width - half, 1), pltpu.roll(x_TW, half, 1)
        other_TW = jnp.where(lane_1W % head_size < half, later_TW, earlier_TW)
        result_TW = x_TW * cos_ref[...] + other_TW * sin_ref[...]
        out_ref[0, :, tile] = result_TW.astype(out_ref.dtype)

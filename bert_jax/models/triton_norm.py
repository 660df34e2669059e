"""norm(residual + dropout(update)) as one kernel forward and one backward, for NVIDIA GPUs.

XLA takes three kernels forward and five backward: it stores the dropout mask and the sum, passes
gradients in float32 from kernel to kernel, and reads everything once more for the gradients of
scale and bias. Here each array is read or written once. The sum is not rounded before it is
normalized, and the backward pass computes it and the dropout mask again.

Tested in interpret mode and by compiling for GPUs; it has not run on one.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from bert_jax.models import kernels
from bert_jax.models.dropout import fold_in, mixed_bits

INTERPRET = False  # run on any device, without Triton
_ROWS = 4  # rows that a program holds in registers
_MOST_ROWS = 64  # rows of a program of the backward pass, which sums their gradients of the scale
_MAX_WIDTH = 4096


class Settings(NamedTuple):
    """Static values of the kernels.

    Attributes:
        epsilon: of the norm.
        rate: of dropout; 0: none.
        is_centered: subtract the mean, as layer normalization does and RMS normalization does not.
    """

    epsilon: float
    rate: float
    is_centered: bool


def fits(residual_BTD: jax.Array, update_BTD: jax.Array) -> bool:
    """Whether the kernels take these states: of 16 bits, with a length that blocks divide."""
    if residual_BTD.ndim != 3 or residual_BTD.dtype != update_BTD.dtype:
        return False
    _, length, width = residual_BTD.shape
    return residual_BTD.dtype.itemsize == 2 and length % _ROWS == 0 and width <= _MAX_WIDTH


def apply(
    residual_BTD: jax.Array,
    update_BTD: jax.Array,
    rate: float,
    seeds_B: jax.Array | None,
    scale_D: jax.Array,
    bias_D: jax.Array | int,
    epsilon: float,
    is_centered: bool,
) -> jax.Array:
    """`norm_of_sum` on the current mesh; without seeds there is no dropout."""
    settings = Settings(epsilon, 0.0 if seeds_B is None else rate, is_centered)
    states, vector = ('batch', None, None), (None,)
    axes = (states, states, vector, vector, ('batch',))
    if seeds_B is None:
        seeds_B = jnp.zeros(len(residual_BTD), jnp.uint32)
    run = kernels.over_mesh(functools.partial(norm_of_sum, settings), axes)
    return run(residual_BTD, update_BTD, scale_D, jnp.zeros_like(scale_D) + bias_D, seeds_B)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def norm_of_sum(
    settings: Settings,
    residual_BTD: jax.Array,
    update_BTD: jax.Array,
    scale_D: jax.Array,
    bias_D: jax.Array,
    seeds_B: jax.Array,
) -> jax.Array:
    """Return norm(residual + dropout(update)) · scale + bias, [B, T, D] in the dtype of residual.

    Args:
        settings: see there.
        residual_BTD, update_BTD: in one dtype; `fits` must hold.
        scale_D, bias_D: fp32.
        seeds_B: uint32, as in `dropout.dropout`, whose mask this is.
    """
    return _forward(settings, residual_BTD, update_BTD, scale_D, bias_D, seeds_B)[0]


def _forward(settings: Settings, *inputs: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    residual_BTD, _, scale_D, bias_D, seeds_B = inputs
    rows = _Rows.of(residual_BTD, _ROWS)
    output_BTD = pl.pallas_call(
        functools.partial(_forward_kernel, settings=settings, rows=rows),
        grid=(rows.programs,),
        in_specs=[rows.states, rows.states, rows.vector, rows.vector, rows.words],
        out_specs=rows.states,
        out_shape=jax.ShapeDtypeStruct(residual_BTD.shape, residual_BTD.dtype),
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=1),
        interpret=INTERPRET,
        name='norm_of_sum',
    )(*inputs[:2], scale_D, bias_D, _words(seeds_B))
    return output_BTD, inputs


def _backward(
    settings: Settings, inputs: tuple[jax.Array, ...], grad_BTD: jax.Array
) -> tuple[jax.Array | None, ...]:
    residual_BTD, update_BTD, scale_D, _, seeds_B = inputs
    rows = _Rows.of(residual_BTD, _MOST_ROWS)
    like = jax.ShapeDtypeStruct(residual_BTD.shape, residual_BTD.dtype)
    sums = jax.ShapeDtypeStruct((rows.programs, rows.width), jnp.float32)
    residual_grad_BTD, update_grad_BTD, scale_grad_PD, bias_grad_PD = pl.pallas_call(
        functools.partial(_backward_kernel, settings=settings, rows=rows),
        grid=(rows.programs,),
        in_specs=[rows.states, rows.states, rows.vector, rows.states, rows.words],
        out_specs=(rows.states, rows.states, rows.sums, rows.sums),
        out_shape=(like, like, sums, sums),
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=1),
        interpret=INTERPRET,
        name='norm_of_sum_backward',
    )(residual_BTD, update_BTD, scale_D, grad_BTD, _words(seeds_B))
    return residual_grad_BTD, update_grad_BTD, scale_grad_PD.sum(0), bias_grad_PD.sum(0), None


norm_of_sum.defvjp(_forward, _backward)


class _Rows(NamedTuple):
    """How programs share the rows: each takes `number` consecutive rows of one example."""

    length: int
    width: int
    number: int
    programs: int

    @classmethod
    def of(cls, x_BTD: jax.Array, most: int) -> '_Rows':
        """Give a program the largest power of 2 up to `most` that divides the length."""
        batch, length, width = x_BTD.shape
        number = min(most, length & -length)
        return cls(length, width, number, batch * length // number)

    @property
    def columns(self) -> int:
        """Columns of a block: Triton's are powers of 2."""
        return 1 << (self.width - 1).bit_length()

    @property
    def states(self) -> pl.BlockSpec:
        """The rows of a program in [B, T, D]."""
        per_example = self.length // self.number
        return pl.BlockSpec(
            (None, self.number, self.columns), lambda n: (n // per_example, n % per_example, 0)
        )

    @property
    def vector(self) -> pl.BlockSpec:
        """All of [D]."""
        return pl.BlockSpec((self.columns,), lambda n: (0,))

    @property
    def words(self) -> pl.BlockSpec:
        """The two words of a program's example in [B, 2]."""
        per_example = self.length // self.number
        return pl.BlockSpec((None, 2), lambda n: (n // per_example, 0))

    @property
    def sums(self) -> pl.BlockSpec:
        """A program's row in [programs, D]."""
        return pl.BlockSpec((None, self.columns), lambda n: (n, 0))

    def is_column(self) -> jax.Array:
        """Which columns of a block exist, bool [columns]."""
        return jnp.arange(self.columns) < self.width


def _words(seeds_B: jax.Array) -> jax.Array:
    """[B, 2]: the two words of each example that `dropout.random_bits` hashes positions with."""
    return jnp.stack([fold_in(seeds_B, 0), fold_in(seeds_B, 1)], axis=1)


def _load(ref: Any, start: jax.Array | int, rows: _Rows) -> jax.Array:
    """Load `_ROWS` rows of a block in fp32, zero in columns that do not exist."""
    mask_1D = rows.is_column()[None, :]
    block_RD: jax.Array = triton.load(ref.at[pl.ds(start, _ROWS), :], mask=mask_1D, other=0.0)
    return block_RD.astype(jnp.float32)


def _store(ref: Any, start: jax.Array | int, x_RD: jax.Array, rows: _Rows) -> None:
    part = ref.at[pl.ds(start, _ROWS), :]
    triton.store(part, x_RD.astype(ref.dtype), mask=rows.is_column()[None, :])


def _vector(ref: Any, rows: _Rows) -> jax.Array:
    vector_D: jax.Array = triton.load(ref.at[:], mask=rows.is_column(), other=0.0)
    return vector_D


def _dropout(
    x_RD: jax.Array, words_ref: Any, row: jax.Array, rows: _Rows, rate: float
) -> jax.Array:
    """Dropout of the rows of an example from number `row` on, as `dropout.dropout`."""
    if not rate:
        return x_RD
    row_R1 = row + jax.lax.broadcasted_iota(jnp.int32, x_RD.shape, 0)
    column_1D = jax.lax.broadcasted_iota(jnp.int32, x_RD.shape, 1)
    positions_RD = (row_R1 * rows.width + column_1D).astype(jnp.uint32)
    keep_RD = mixed_bits(positions_RD, words_ref[0], words_ref[1]) >= np.uint32(round(rate * 2**32))
    return jnp.where(keep_RD, x_RD * np.float32(1 / (1 - rate)), 0.0)


def _normalize(sum_RD: jax.Array, rows: _Rows, settings: Settings) -> tuple[jax.Array, jax.Array]:
    """Return the normalized rows and the factor of each row, 1 / standard deviation."""
    if settings.is_centered:
        mean_R1 = sum_RD.sum(1, keepdims=True) / rows.width
        sum_RD = jnp.where(rows.is_column()[None, :], sum_RD - mean_R1, 0.0)
    variance_R1 = (sum_RD * sum_RD).sum(1, keepdims=True) / rows.width
    factor_R1 = jax.lax.rsqrt(variance_R1 + np.float32(settings.epsilon))
    return sum_RD * factor_R1, factor_R1


def _forward_kernel(
    residual_ref: Any,
    update_ref: Any,
    scale_ref: Any,
    bias_ref: Any,
    words_ref: Any,
    output_ref: Any,
    *,
    settings: Settings,
    rows: _Rows,
) -> None:
    row = pl.program_id(0) % (rows.length // rows.number) * rows.number
    update_RD = _dropout(_load(update_ref, 0, rows), words_ref, row, rows, settings.rate)
    normal_RD, _ = _normalize(_load(residual_ref, 0, rows) + update_RD, rows, settings)
    output_RD = normal_RD * _vector(scale_ref, rows) + _vector(bias_ref, rows)
    _store(output_ref, 0, output_RD, rows)


def _backward_kernel(
    residual_ref: Any,
    update_ref: Any,
    scale_ref: Any,
    grad_ref: Any,
    words_ref: Any,
    residual_grad_ref: Any,
    update_grad_ref: Any,
    scale_grad_ref: Any,
    bias_grad_ref: Any,
    *,
    settings: Settings,
    rows: _Rows,
) -> None:
    """The gradient of a normalized row x̂ = s · f is f · (g − mean(g) − x̂ · mean(g · x̂))."""
    first_row = pl.program_id(0) % (rows.length // rows.number) * rows.number
    scale_D = _vector(scale_ref, rows)

    def add_rows(number: jax.Array, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        start = number * _ROWS
        dropped = (words_ref, first_row + start, rows, settings.rate)
        sum_RD = _load(residual_ref, start, rows) + _dropout(
            _load(update_ref, start, rows), *dropped
        )
        normal_RD, factor_R1 = _normalize(sum_RD, rows, settings)
        grad_RD = _load(grad_ref, start, rows)
        scaled_RD = grad_RD * scale_D
        sum_grad_RD = scaled_RD - normal_RD * (
            (scaled_RD * normal_RD).sum(1, keepdims=True) / rows.width
        )
        if settings.is_centered:
            sum_grad_RD -= scaled_RD.sum(1, keepdims=True) / rows.width
        sum_grad_RD *= factor_R1
        _store(residual_grad_ref, start, sum_grad_RD, rows)
        _store(update_grad_ref, start, _dropout(sum_grad_RD, *dropped), rows)
        return sums[0] + (grad_RD * normal_RD).sum(0), sums[1] + grad_RD.sum(0)

    zeros_D = jnp.zeros(rows.columns, jnp.float32)
    sums = jax.lax.fori_loop(0, rows.number // _ROWS, add_rows, (zeros_D, zeros_D))
    for ref, sum_D in zip((scale_grad_ref, bias_grad_ref), sums, strict=True):
        triton.store(ref.at[:], sum_D, mask=rows.is_column())

"""Long short-term memory (Hochreiter & Schmidhuber 1997) over rows that may pack several sequences.

With the gates i, f, o = σ(…) and g = tanh(…) of x W + h R + b, in the order i, f, g, o of PyTorch:

    c ← f c + i g    h ← o tanh(c), or with a projection P: (o tanh(c)) P

The state is zero before the first token of each sequence, in both directions, so neither padding
nor other sequences of a row have an influence. The projection and the clipping of c and h are those
of ELMo (Peters et al. 2018, arXiv 1802.05365, section 3.4; allenai/bilm-tf, training.py).
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.linear import precision_of, product
from bert_jax.models.module import Module
from bert_jax.models.partitioning import param
from bert_jax.models.rows import Rows

_UNROLL = 4  # steps of a loop iteration; more gains nothing on two CPU cores
_FORGET_BIAS = 1.0  # Jozefowicz et al. 2015, "An Empirical Exploration of Recurrent Network …"


class _Loop(NamedTuple):
    """How the loop runs: `clip` of cells and projected states (0: none), direction, precision."""

    clip: float
    reverse: bool
    dtype: jnp.dtype


class Layer(Module):
    """One direction of a layer.

    Parameters: input [D, 4U], recurrent [R, 4U], bias [4U] and, with a projection, projection
    [U, R]; without, R = U.

    Attributes:
        size: U.
        reverse: whether positions are read from right to left.
        projection: R; None: h is not projected.
        clip: bound of |c| and of the projected |h|; 0: none.
    """

    size: int
    reverse: bool = False
    projection: int | None = None
    clip: float = 0.0

    @nn.compact
    def __call__(self, x_BTD: jax.Array, rows: Rows) -> jax.Array:
        """Return the states [B, T, R], zero at padding, in the compute dtype."""
        size, outputs = self.size, self.projection or self.size
        init = nn.initializers.variance_scaling(4 / 3, 'fan_out', 'uniform')  # ±1/√U, as torch
        dtype = self.compute.activation_dtype
        shape = (x_BTD.shape[-1], 4 * size)
        input_DF = param(self, 'input', init, shape, ('embed', None))
        recurrent_RF = param(self, 'recurrent', init, (outputs, 4 * size), (None, None))
        bias_F = param(self, 'bias', _initial_bias, (4 * size,), (None,))
        projection_UR = None
        if self.projection is not None:
            init = nn.initializers.lecun_normal()
            projection_UR = param(self, 'projection', init, (size, outputs), (None, None))
        x_TBF = product('TBD,DF->TBF', x_BTD.swapaxes(0, 1), input_DF, dtype) + bias_F
        is_token_BT = rows.is_token_BT
        keep_TB = continues(rows, self.reverse).T.astype(jnp.float32)
        loop = _Loop(self.clip, self.reverse, dtype)
        h_TBR = _run(loop, x_TBF, recurrent_RF, projection_UR, keep_TB)
        return jnp.where(is_token_BT[:, :, None], h_TBR.swapaxes(0, 1), 0).astype(dtype)


class Bidirectional(Module):
    """Layers of two directions, [h forward; h backward], each of which reads both of the one below.

    As torch.nn.LSTM(bidirectional=True) on packed sequences. Parameters: forward_0, backward_0,
    forward_1, …

    Attributes:
        layers: number of layers.
        size: U of each direction, so states have 2U values.
    """

    layers: int
    size: int

    @nn.compact
    def __call__(self, x_BTD: jax.Array, rows: Rows) -> jax.Array:
        """Return the states of the last layer [B, T, 2U], zero at padding."""
        settings = (self.architecture, self.compute, self.size)
        for number in range(self.layers):
            directions = [
                Layer(*settings, reverse=name == 'backward', name=f'{name}_{number}')
                for name in ('forward', 'backward')
            ]
            x_BTD = jnp.concatenate([layer(x_BTD, rows) for layer in directions], axis=-1)
        return x_BTD

    @nn.nowrap
    def flops(self, inputs: int, sequence_length: int) -> int:
        """Return the forward operations per sequence for states of `inputs` values."""
        widths = [inputs, *[2 * self.size] * (self.layers - 1)]
        return sequence_length * sum(2 * layer_flops(width, self.size) for width in widths)


def layer_flops(inputs: int, size: int, projection: int | None = None) -> int:
    """Return the operations of the matrix products of one direction per position."""
    outputs = projection or size
    return 8 * size * (inputs + outputs) + (2 * size * projection if projection else 0)


def continues(rows: Rows, reverse: bool) -> jax.Array:
    """bool [B, T]: whether the position read before belongs to the same sequence."""
    is_token_BT = rows.is_token_BT
    same_BT = is_token_BT[:, 1:] & is_token_BT[:, :-1]
    if rows.segment_ids_BT is not None:
        segment_ids_BT = jnp.asarray(rows.segment_ids_BT)
        same_BT &= segment_ids_BT[:, 1:] == segment_ids_BT[:, :-1]
    return jnp.pad(same_BT, [(0, 0), (0, 1) if reverse else (1, 0)])


def _initial_bias(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """0, and _FORGET_BIAS for the forget gate, so that the cell is kept at first."""
    return jnp.zeros((4, shape[0] // 4)).at[1].set(_FORGET_BIAS).reshape(shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(
    loop: _Loop,
    x_TBF: jax.Array,
    recurrent_RF: jax.Array,
    projection_UR: jax.Array | None,
    keep_TB: jax.Array,
) -> jax.Array:
    """Run a layer in one direction: fp32 states [T, B, R].

    Automatic differentiation would add up the gradients of the weights step by step; here they are
    one product over all steps.

    Args:
        loop: settings.
        x_TBF: fp32, the inputs' part of the gates.
        recurrent_RF: weights from the states to the gates.
        projection_UR: weights of the projection, or None.
        keep_TB: fp32, 0 where the state is dropped before the step, else 1.
    """
    return _run_forward(loop, x_TBF, recurrent_RF, projection_UR, keep_TB)[0]


class _Saved(NamedTuple):
    """What the backward pass reads, of all steps."""

    gates_TBF: jax.Array
    c_TBU: jax.Array
    h_TBR: jax.Array
    recurrent_RF: jax.Array
    projection_UR: jax.Array | None
    keep_TB: jax.Array


def _run_forward(
    loop: _Loop,
    x_TBF: jax.Array,
    recurrent_RF: jax.Array,
    projection_UR: jax.Array | None,
    keep_TB: jax.Array,
) -> tuple[jax.Array, _Saved]:
    batch, size = x_TBF.shape[1], x_TBF.shape[2] // 4
    outputs = recurrent_RF.shape[0]
    recurrent = recurrent_RF.astype(loop.dtype)
    projection = None if projection_UR is None else projection_UR.astype(loop.dtype)

    def step(
        state: tuple[jax.Array, jax.Array], inputs: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, ...]]:
        (h_BR, c_BU), (x_BF, keep_B) = state, inputs
        z_BF = x_BF + _matmul(h_BR * keep_B[:, None], recurrent)
        gates_BF = _activate(z_BF)
        i_BU, f_BU, g_BU, o_BU = jnp.split(gates_BF, 4, axis=-1)
        c_BU = _clip(f_BU * (c_BU * keep_B[:, None]) + i_BU * g_BU, loop.clip)
        h_BR = o_BU * jnp.tanh(c_BU)
        if projection is not None:
            h_BR = _clip(_matmul(h_BR, projection), loop.clip)
        return (h_BR, c_BU), (gates_BF, c_BU, h_BR)

    initial = (jnp.zeros((batch, outputs)), jnp.zeros((batch, size)))
    _, (gates_TBF, c_TBU, h_TBR) = jax.lax.scan(
        step, initial, (x_TBF, keep_TB), reverse=loop.reverse, unroll=_UNROLL
    )
    return h_TBR, _Saved(gates_TBF, c_TBU, h_TBR, recurrent_RF, projection_UR, keep_TB)


def _run_backward(
    loop: _Loop, saved: _Saved, grad_TBR: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array | None, None]:
    gates_TBF, c_TBU, h_TBR, recurrent_RF, projection_UR, keep_TB = saved
    recurrent_FR = recurrent_RF.T.astype(loop.dtype)
    projection_RU = None if projection_UR is None else projection_UR.T.astype(loop.dtype)
    before_TBU, before_TBR = (
        _shift(array, loop.reverse) * keep_TB[:, :, None] for array in (c_TBU, h_TBR)
    )

    def step(
        state: tuple[jax.Array, jax.Array], inputs: tuple[jax.Array, ...]
    ) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
        (dh_BR, dc_BU), (grad_BR, gates_BF, c_BU, h_BR, before_BU, keep_B) = state, inputs
        dh_BR = dh_BR + grad_BR
        dm_BU = dh_BR
        if projection_RU is not None:
            dh_BR = _inside(dh_BR, h_BR, loop.clip)
            dm_BU = _matmul(dh_BR, projection_RU)
        i_BU, f_BU, g_BU, o_BU = jnp.split(gates_BF, 4, axis=-1)
        tanh_BU = jnp.tanh(c_BU)
        dc_BU = _inside(dc_BU + dm_BU * o_BU * (1 - tanh_BU**2), c_BU, loop.clip)
        dz_BF = jnp.concatenate(
            [
                dc_BU * g_BU * i_BU * (1 - i_BU),
                dc_BU * before_BU * f_BU * (1 - f_BU),
                dc_BU * i_BU * (1 - g_BU**2),
                dm_BU * tanh_BU * o_BU * (1 - o_BU),
            ],
            axis=-1,
        )
        keep_B1 = keep_B[:, None]
        before = (_matmul(dz_BF, recurrent_FR) * keep_B1, dc_BU * f_BU * keep_B1)
        return before, (dz_BF, dh_BR)

    initial = (jnp.zeros_like(h_TBR[0]), jnp.zeros_like(c_TBU[0]))
    inputs = (grad_TBR, gates_TBF, c_TBU, h_TBR, before_TBU, keep_TB)
    _, (dz_TBF, dh_TBR) = jax.lax.scan(
        step, initial, inputs, reverse=not loop.reverse, unroll=_UNROLL
    )
    grad_recurrent = product('TBR,TBF->RF', before_TBR, dz_TBF, loop.dtype)
    grad_projection = None
    if projection_UR is not None:
        m_TBU = gates_TBF[..., -c_TBU.shape[-1] :] * jnp.tanh(c_TBU)
        grad_projection = product('TBU,TBR->UR', m_TBU, dh_TBR, loop.dtype)
    return dz_TBF, grad_recurrent, grad_projection, None


_run.defvjp(_run_forward, _run_backward)


def _matmul(x_BE: jax.Array, weight: jax.Array) -> jax.Array:
    options = {'precision': precision_of(weight.dtype), 'preferred_element_type': jnp.float32}
    return jnp.matmul(x_BE.astype(weight.dtype), weight, **options)


def _activate(z_BF: jax.Array) -> jax.Array:
    """The gates i, f, g, o. σ(z) = ½ + ½ tanh(z / 2), so one vectorized tanh computes all four."""
    size = z_BF.shape[-1] // 4
    is_cell_F = (jnp.arange(4 * size) // size) == 2
    half_F = jnp.where(is_cell_F, 1.0, 0.5)
    return jnp.tanh(z_BF * half_F) * half_F + jnp.where(is_cell_F, 0.0, 0.5)


def _clip(x: jax.Array, bound: float) -> jax.Array:
    return jnp.clip(x, -bound, bound) if bound else x


def _inside(grad: jax.Array, clipped: jax.Array, bound: float) -> jax.Array:
    """The gradient of `_clip`: 0 at values that were clipped."""
    return jnp.where(jnp.abs(clipped) < bound, grad, 0) if bound else grad


def _shift(array_TX: jax.Array, reverse: bool) -> jax.Array:
    """The values of the step before, 0 at the first step."""
    zero = jnp.zeros_like(array_TX[:1])
    parts = [array_TX[1:], zero] if reverse else [zero, array_TX[:-1]]
    return jnp.concatenate(parts)

"""Attention for TPUs as two Pallas kernels: scores exist only in on-chip memory.

FlashAttention (Dao et al. 2022, arXiv 2205.14135, algorithms 1 and 4) and FlashAttention-2 (Dao
2023, arXiv 2307.08691): the forward pass keeps a running maximum and sum per query and stores their
logsumexp; the backward pass recomputes the probabilities from it. Beyond these papers:

- Heads stay side by side, [B, T, H·K], as the projections produce them, so that nothing is
  transposed in memory and no lane of a tile is padding. A product over one head sets the lanes of
  its neighbors in the tile to zero, which costs nothing: the matrix unit is 128 wide anyway.
- Scores are computed as [keys, queries]: statistics per query are then rows, stored unpadded.
- One backward kernel computes all three gradients from one recomputation; the gradient of the
  queries of a row accumulates in on-chip memory.
- Blocks of keys that no query of a block attends to (window, causal) are neither loaded nor
  computed.
- Dropout of weights uses the bits of dropout.py, computed in place.

Local letters: F = H·K; N heads of a block, side by side in W = N·K features.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bert_jax.models.dropout import keep_pairs
from bert_jax.models.visibility import MASKED

INTERPRET = False  # tests set it, to run without a TPU
LANES = 128  # of a vector register, and the width of the matrix unit
MAX_BLOCK = 512  # positions of a block of queries or keys
NARROW_BLOCK = 128  # positions of an inner block if there is a window
VMEM_BYTES = 64 * 2**20
LOG2_E = math.log2(math.e)
_Arrays: TypeAlias = dict[str, jax.Array]
_Index: TypeAlias = Callable[[Any, Any], Any]
_Refs: TypeAlias = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class _Plan:
    """The static parameters of a call.

    Attributes:
        length: T, a multiple of the blocks.
        width: K; divides 128 or is a multiple of it.
        num_blocks: blocks of heads.
        heads: N.
        scale: factor of the scores, in units of log 2.
        before, after: largest distances to an earlier and to a later attended position.
        rate: of dropout.
        outer, inner: positions of a block of the outer and of the inner loop. Outer blocks are
            queries in the forward pass and keys in the backward pass.
    """

    length: int
    width: int
    num_blocks: int
    heads: int
    scale: float
    before: int
    after: int
    rate: float
    outer: int
    inner: int

    @property
    def tile(self) -> int:
        """Features that one product covers: a wide head, or several narrow ones."""
        return max(self.width, LANES)

    def inner_range(self, i: Any, is_backward: bool) -> tuple[Any, Any]:
        """First and last inner block that interact with outer block i."""
        before, after = (self.after, self.before) if is_backward else (self.before, self.after)
        xp, divide = (np, np.floor_divide) if isinstance(i, np.ndarray) else (jnp, jax.lax.div)
        first = xp.maximum(i * self.outer - before, 0)
        last = xp.minimum((i + 1) * self.outer + after, self.length) - 1
        return divide(first, self.inner), divide(last, self.inner)

    def num_inner(self, is_backward: bool) -> np.ndarray:
        """Number of inner blocks of each outer block."""
        first, last = self.inner_range(np.arange(self.length // self.outer), is_backward)
        return last - first + 1


def attend(
    query_BTHK: jax.Array,
    key_BUHK: jax.Array,
    value_BUHK: jax.Array,
    *,
    segment_ids_BT: jax.Array | None = None,
    window: int | None = None,
    slopes_H: jax.Array | np.ndarray | None = None,
    is_causal: bool = False,
    dropout_rate: float = 0.0,
    dropout_bits_BHT: jax.Array | None = None,
) -> jax.Array:
    """softmax(query · key / √K + bias) · value (Vaswani et al. 2017, equation 1).

    Args:
        segment_ids_BT: int32; positions attend only to positions with the same id. Padding has an
            id of its own. None: all positions attend to all.
        window: the largest attended distance. None: unlimited.
        slopes_H: fp32, subtracted from scores per unit of distance (ALiBi).
        is_causal: positions do not attend to later ones.
        dropout_rate: of attention weights.
        dropout_bits_BHT: uint32, `dropout.row_bits`. None: no dropout.

    Returns:
        [B, T, H, K] in the dtype of the values.
    """
    _, length, num_heads, head_size = query_BTHK.shape
    rate = 0.0 if dropout_bits_BHT is None else dropout_rate
    plan = make_plan(length, num_heads, head_size, window, is_causal, rate)
    pad_T, pad_H = plan.length - length, plan.num_blocks * plan.heads - num_heads
    pad = ((0, 0), (0, pad_T), (0, pad_H), (0, plan.width - head_size))
    states = (jnp.pad(x_BTHK, pad) for x_BTHK in (query_BTHK, key_BUHK, value_BUHK))
    states_BTF = tuple(x_BTHK.reshape(*x_BTHK.shape[:2], -1) for x_BTHK in states)
    extras = {}
    if pad_T and segment_ids_BT is None:
        segment_ids_BT = jnp.zeros(query_BTHK.shape[:2], jnp.int32)
    if segment_ids_BT is not None:
        padding = np.iinfo(np.int32).min
        ids_BT = jnp.pad(segment_ids_BT, ((0, 0), (0, pad_T)), constant_values=padding)
        extras['segments'] = ids_BT[:, None]
    if slopes_H is not None:
        extras['slopes'] = jnp.pad(jnp.asarray(slopes_H, jnp.float32), (0, pad_H))
    if plan.rate and dropout_bits_BHT is not None:
        bits_BHT = jnp.pad(dropout_bits_BHT, ((0, 0), (0, pad_H), (0, pad_T)))
        extras['bits'] = bits_BHT.reshape(-1, plan.num_blocks, plan.heads, plan.length)
    result_BTF = _attend(plan, *states_BTF, extras)
    result_BTHK = result_BTF.reshape(*result_BTF.shape[:2], -1, plan.width)
    return result_BTHK[:, :length, :num_heads, :head_size]


def make_plan(
    length: int, num_heads: int, head_size: int, window: int | None, is_causal: bool, rate: float
) -> _Plan:
    width = next((width for width in (8, 16, 32, 64) if width >= head_size), None)
    width = width or -(-head_size // LANES) * LANES
    outer = min(-(-length // LANES) * LANES, MAX_BLOCK)
    length = -(-length // outer) * outer
    reach = length if window is None else min(window, length)
    inner = min(outer, NARROW_BLOCK) if reach <= outer // 2 else outer
    per_tile = max(1, LANES // width)
    tiles = -(-num_heads // per_tile)
    # Short rows: several tiles in a step of the grid, so that it has enough to do.
    fits = [n for n in range(1, tiles + 1) if tiles % n == 0]
    fits = [n for n in fits if n * outer * inner <= MAX_BLOCK**2] or [1]
    return _Plan(
        length=length,
        width=width,
        num_blocks=tiles // fits[-1],
        heads=fits[-1] * per_tile,
        scale=head_size**-0.5 * LOG2_E,
        before=reach,
        after=0 if is_causal else reach,
        rate=rate,
        outer=outer,
        inner=inner,
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(
    plan: _Plan, query_BTF: jax.Array, key_BUF: jax.Array, value_BUF: jax.Array, extras: _Arrays
) -> jax.Array:
    return _forward(plan, query_BTF, key_BUF, value_BUF, extras)[0]


def _forward(
    plan: _Plan, query_BTF: jax.Array, key_BUF: jax.Array, value_BUF: jax.Array, extras: _Arrays
) -> tuple[jax.Array, tuple[Any, ...]]:
    states = {'query': query_BTF, 'key': key_BUF, 'value': value_BUF}
    shape = (query_BTF.shape[0], plan.num_blocks, plan.heads, plan.length)
    out_shapes = {'result': value_BUF, 'logsumexp': jax.ShapeDtypeStruct(shape, jnp.float32)}
    scratch = {
        'maximum': pltpu.VMEM((plan.heads, plan.outer), jnp.float32),
        'sum': pltpu.VMEM((plan.heads, plan.outer), jnp.float32),
        'result': pltpu.VMEM((plan.heads * plan.width, plan.outer), jnp.float32),
    }
    run = _call(_forward_kernel, plan, False, states | extras, out_shapes, scratch)
    result = run['result']
    return result, (query_BTF, key_BUF, value_BUF, extras, result, run['logsumexp'])


def _backward(plan: _Plan, residuals: tuple[Any, ...], gradient_BTF: jax.Array) -> tuple[Any, ...]:
    query_BTF, key_BUF, value_BUF, extras, result_BTF, logsumexp = residuals
    products = gradient_BTF.astype(jnp.float32) * result_BTF.astype(jnp.float32)
    shape = (*products.shape[:2], plan.num_blocks, plan.heads, plan.width)
    # Row sums of probabilities times their gradients (FlashAttention-2, algorithm 2, line 4).
    delta = products.reshape(shape).sum(-1).transpose(0, 2, 3, 1) * (1 - plan.rate)
    states = {'query': query_BTF, 'key': key_BUF, 'value': value_BUF, 'gradient': gradient_BTF}
    states |= {'logsumexp': logsumexp, 'delta': delta}
    width = plan.heads * plan.width
    scratch = {
        'd_query': pltpu.VMEM((width, plan.length), jnp.float32),
        'd_key': pltpu.VMEM((plan.outer, width), jnp.float32),
        'd_value': pltpu.VMEM((plan.outer, width), jnp.float32),
    }
    out_shapes = {'d_query': query_BTF, 'd_key': key_BUF, 'd_value': value_BUF}
    run = _call(_backward_kernel, plan, True, states | extras, out_shapes, scratch)
    zeros = {name: _zero(x) for name, x in extras.items()}
    return run['d_query'], run['d_key'], run['d_value'], zeros


def _zero(x: jax.Array) -> Any:
    return np.zeros(x.shape, jax.dtypes.float0) if x.dtype != jnp.float32 else jnp.zeros_like(x)


_attend.defvjp(_forward, _backward)


def _call(
    kernel: Callable[..., None],
    plan: _Plan,
    is_backward: bool,
    inputs: _Arrays,
    outputs: dict[str, Any],
    scratch: dict[str, Any],
) -> _Arrays:
    """Run a kernel over (examples, blocks of heads, outer blocks, inner blocks)."""
    num_inner = plan.num_inner(is_backward)
    width = plan.heads * plan.width
    batch = inputs['query'].shape[0]
    grid = (batch, plan.num_blocks, len(num_inner), int(num_inner.max()))

    def outer_index(i: Any, j: Any) -> Any:
        return i

    def inner_index(i: Any, j: Any) -> Any:
        first, last = plan.inner_range(i, is_backward)
        return jnp.minimum(first + j, last)

    on_queries, on_keys = (plan.outer, outer_index), (plan.inner, inner_index)
    if is_backward:
        on_queries, on_keys = (plan.inner, inner_index), (plan.outer, outer_index)

    def features(size: int, index: _Index) -> pl.BlockSpec:
        return pl.BlockSpec((1, size, width), lambda b, g, i, j: (b, index(i, j), g))

    def statistics(size: int, index: _Index) -> pl.BlockSpec:
        return pl.BlockSpec((1, 1, plan.heads, size), lambda b, g, i, j: (b, g, 0, index(i, j)))

    def ids(size: int, index: _Index) -> pl.BlockSpec:
        return pl.BlockSpec((1, 1, size), lambda b, g, i, j: (b, 0, index(i, j)))

    specs = {
        **{name: features(*on_queries) for name in ('query', 'gradient', 'result')},
        **{name: features(*on_keys) for name in ('key', 'value', 'd_key', 'd_value')},
        **{name: statistics(*on_queries) for name in ('logsumexp', 'delta', 'bits')},
        'd_query': features(plan.length, lambda i, j: 0),
        'query_ids': ids(*on_queries),
        'key_ids': ids(*on_keys),
        'slopes': pl.BlockSpec(memory_space=pltpu.SMEM),
    }
    if 'segments' in inputs:
        segments = inputs.pop('segments')
        inputs |= {'query_ids': segments, 'key_ids': segments}
    out_shape = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in outputs.items()}
    return pl.pallas_call(
        functools.partial(kernel, plan),
        grid=grid,
        in_specs=[{name: specs[name] for name in inputs}],
        out_specs={name: specs[name] for name in outputs},
        out_shape=out_shape,
        scratch_shapes=[scratch],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=('parallel', 'parallel', 'arbitrary', 'arbitrary'),
            vmem_limit_bytes=VMEM_BYTES,
        ),
        cost_estimate=_cost(plan, is_backward, batch, int(num_inner.sum()), inputs, outputs),
        interpret=INTERPRET,
        name=kernel.__name__.strip('_'),
    )(inputs)


def _cost(
    plan: _Plan,
    is_backward: bool,
    batch: int,
    visits: int,
    inputs: _Arrays,
    outputs: dict[str, Any],
) -> pl.CostEstimate:
    """What the kernel does: products as wide as the matrix unit, visible blocks only."""
    pairs = batch * plan.num_blocks * plan.heads * int(visits) * plan.outer * plan.inner
    num_products = 5 if is_backward else 2
    num_bytes = 0
    repeats = {True: ('query', 'gradient', 'logsumexp', 'delta', 'bits'), False: ('key', 'value')}
    for name, x in [*inputs.items(), *outputs.items()]:
        again = int(visits) * plan.inner / plan.length if name in repeats[is_backward] else 1
        num_bytes += int(again * x.size * x.dtype.itemsize)
    return pl.CostEstimate(
        flops=2 * num_products * pairs * plan.tile, transcendentals=pairs, bytes_accessed=num_bytes
    )


def _forward_kernel(plan: _Plan, refs: _Refs, outputs: _Refs, scratch: _Refs) -> None:
    g, i, j = (pl.program_id(axis) for axis in (1, 2, 3))
    first, last = plan.inner_range(i, is_backward=False)

    @pl.when(j == 0)
    def _() -> None:
        scratch['maximum'][...] = jnp.full_like(scratch['maximum'], -jnp.inf)
        scratch['sum'][...] = jnp.zeros_like(scratch['sum'])
        scratch['result'][...] = jnp.zeros_like(scratch['result'])

    @pl.when(first + j <= last)
    def _() -> None:
        for head, scores_UT, keep_UT in _heads(plan, refs, g, i, first + j):
            old_T = scratch['maximum'][head.row]
            maximum_T = jnp.maximum(old_T, scores_UT.max(0, keepdims=True))
            weights_UT = jnp.exp2(scores_UT - maximum_T)
            shrink_T = jnp.exp2(old_T - maximum_T)
            scratch['maximum'][head.row] = maximum_T
            scratch['sum'][head.row] *= shrink_T
            scratch['sum'][head.row] += weights_UT.sum(0, keepdims=True)
            if keep_UT is not None:
                weights_UT = jnp.where(keep_UT, weights_UT, 0)
            value_UW = refs['value'][0, :, head.tile]
            value_WU = value_UW.T[head.lanes]
            result_WT = _dot(value_WU, weights_UT.astype(value_WU.dtype), 1, 0)
            scratch['result'][head.features] *= shrink_T
            scratch['result'][head.features] += result_WT

    @pl.when(first + j == last)
    def _() -> None:
        for head in _each_head(plan):
            sum_T = scratch['sum'][head.row]
            scratch['result'][head.features] *= 1 / (sum_T * (1 - plan.rate))
            outputs['logsumexp'][0, 0, head.row] = scratch['maximum'][head.row] + jnp.log2(sum_T)
        outputs['result'][0] = scratch['result'][...].T.astype(outputs['result'].dtype)


def _backward_kernel(plan: _Plan, refs: _Refs, outputs: _Refs, scratch: _Refs) -> None:
    g, j, i = (pl.program_id(axis) for axis in (1, 2, 3))
    first, last = plan.inner_range(j, is_backward=True)

    @pl.when((j == 0) & (i == 0))
    def _() -> None:
        scratch['d_query'][...] = jnp.zeros_like(scratch['d_query'])

    @pl.when(i == 0)
    def _() -> None:
        scratch['d_key'][...] = jnp.zeros_like(scratch['d_key'])
        scratch['d_value'][...] = jnp.zeros_like(scratch['d_value'])

    @pl.when(first + i <= last)
    def _() -> None:
        queries = pl.ds(pl.multiple_of((first + i) * plan.inner, plan.inner), plan.inner)
        for head, scores_UT, keep_UT in _heads(plan, refs, g, first + i, j):
            weights_UT = jnp.exp2(scores_UT - refs['logsumexp'][0, 0, head.row])
            gradient_TW = head.only(refs['gradient'][0, :, head.tile])
            d_weights_UT = _dot(refs['value'][0, :, head.tile], gradient_TW, 1, 1)
            kept_UT = weights_UT
            if keep_UT is not None:
                kept_UT = jnp.where(keep_UT, weights_UT, 0)
                d_weights_UT = jnp.where(keep_UT, d_weights_UT, 0)
            dtype = gradient_TW.dtype
            scratch['d_value'][:, head.tile] += _dot(kept_UT.astype(dtype), gradient_TW, 1, 0)
            d_scores_UT = weights_UT * (d_weights_UT - refs['delta'][0, 0, head.row])
            d_scores_UT = d_scores_UT.astype(dtype)
            query_TW = head.only(refs['query'][0, :, head.tile])
            scratch['d_key'][:, head.tile] += _dot(d_scores_UT, query_TW, 1, 0)
            key_WU = refs['key'][0, :, head.tile].T[head.lanes]
            scratch['d_query'][head.features, queries] += _dot(key_WU, d_scores_UT, 1, 0)

    kept = 1 - plan.rate
    scale = plan.scale / LOG2_E / kept

    @pl.when(first + i == last)
    def _() -> None:
        dtype = outputs['d_key'].dtype
        outputs['d_key'][0] = (scratch['d_key'][...] * scale).astype(dtype)
        outputs['d_value'][0] = (scratch['d_value'][...] * (1 / kept)).astype(dtype)

    @pl.when((j == plan.length // plan.outer - 1) & (first + i == last))
    def _() -> None:
        for start in range(0, plan.length, plan.inner):
            d_query_WT = scratch['d_query'][:, start : start + plan.inner] * scale
            rows = slice(start, start + plan.inner)
            outputs['d_query'][0, rows] = d_query_WT.T.astype(outputs['d_query'].dtype)


@dataclasses.dataclass(frozen=True)
class _Head:
    """Where head `number` of a block lies."""

    number: int
    width: int
    tile_width: int

    @property
    def row(self) -> slice:
        """In statistics [N, T]."""
        return slice(self.number, self.number + 1)

    @property
    def features(self) -> slice:
        """Its own features among W."""
        return slice(self.number * self.width, (self.number + 1) * self.width)

    @property
    def tile(self) -> slice:
        """The tile it shares with its neighbors, among W."""
        start = self.features.start // self.tile_width * self.tile_width
        return slice(start, start + self.tile_width)

    @property
    def lanes(self) -> slice:
        """Its own features within the tile."""
        return slice(self.features.start - self.tile.start, self.features.stop - self.tile.start)

    def only(self, x_TW: jax.Array) -> jax.Array:
        """A tile with the features of the other heads set to zero."""
        if self.width == self.tile_width:
            return x_TW
        lane = jax.lax.broadcasted_iota(jnp.int32, (1, self.tile_width), 1)
        is_own = (lane >= self.lanes.start) & (lane < self.lanes.stop)
        return jnp.where(is_own, x_TW, jnp.zeros_like(x_TW))


def _each_head(plan: _Plan) -> list[_Head]:
    return [_Head(number, plan.width, plan.tile) for number in range(plan.heads)]


def _heads(
    plan: _Plan, refs: _Refs, head_block: Any, query_block: Any, key_block: Any
) -> Iterator[tuple[_Head, jax.Array, jax.Array | None]]:
    """Yield each head with its scores, in units of log 2, and which weights dropout keeps."""
    queries, keys = refs['query'].shape[1], refs['key'].shape[1]
    query_start, key_start = query_block * queries, key_block * keys
    bias_UT, distance_UT = _bias(plan, refs, query_start, key_start, (keys, queries))
    for head in _each_head(plan):
        query_TW = head.only(refs['query'][0, :, head.tile])
        scores_UT = _dot(refs['key'][0, :, head.tile], query_TW, 1, 1) * plan.scale
        if bias_UT is not None:
            scores_UT += bias_UT
        if 'slopes' in refs:
            slope = refs['slopes'][head_block * plan.heads + head.number] * LOG2_E
            scores_UT -= slope * distance_UT
        keep_UT = None
        if plan.rate:
            keep_UT = keep_pairs(refs['bits'][0, 0, head.row], key_start, keys, plan.rate)
        yield head, scores_UT, keep_UT


def _bias(
    plan: _Plan, refs: _Refs, query_start: Any, key_start: Any, shape: tuple[int, int]
) -> tuple[jax.Array | None, jax.Array | None]:
    """fp32 [U, T]: 0 where a query attends to a key, else MASKED; and distances, if needed."""
    is_visible, distance_UT = None, None
    if 'query_ids' in refs:
        key_ids_TU = jnp.broadcast_to(refs['key_ids'][0], (LANES, shape[0]))
        key_ids_U1 = key_ids_TU.T[:, :1]
        is_visible = key_ids_U1 == refs['query_ids'][0]
    if min(plan.before, plan.after) < plan.length or 'slopes' in refs:
        key_UT = jax.lax.broadcasted_iota(jnp.int32, shape, 0) + key_start
        query_UT = jax.lax.broadcasted_iota(jnp.int32, shape, 1) + query_start
        ahead_UT = key_UT - query_UT
        distance_UT = jnp.abs(ahead_UT).astype(jnp.float32)
        for limit, ahead in ((plan.before, -ahead_UT), (plan.after, ahead_UT)):
            if limit < plan.length:
                within = ahead <= limit
                is_visible = within if is_visible is None else is_visible & within
    bias_UT = None if is_visible is None else jnp.where(is_visible, 0.0, MASKED)
    return bias_UT, distance_UT


def _dot(x: jax.Array, y: jax.Array, x_axis: int, y_axis: int) -> jax.Array:
    """fp32 product, contracted over an axis of each."""
    precision = jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
    dimensions = (((x_axis,), (y_axis,)), ((), ()))
    return jax.lax.dot_general(
        x, y, dimensions, precision=precision, preferred_element_type=jnp.float32
    )

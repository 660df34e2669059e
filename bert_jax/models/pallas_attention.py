"""Attention for TPUs as two Pallas kernels: scores exist only in on-chip memory.

FlashAttention (Dao et al. 2022, arXiv 2205.14135, algorithms 1 and 4) and FlashAttention-2 (Dao
2023, arXiv 2307.08691): the forward pass keeps a running maximum and sum per query and stores their
logsumexp, from which the backward pass recomputes the probabilities. Beyond these papers:

- Heads stay side by side, [B, T, H·K], as the projections produce them, so nothing is transposed
  in memory and no lane of a tile is padding. A product over one head sets the lanes of its
  neighbors in the tile to zero, which costs nothing: the matrix unit is 128 wide anyway.
- Scores are computed as [keys, queries]: statistics per query are then rows, stored unpadded.
- One backward kernel computes all three gradients from one recomputation; the gradient of the
  queries of a row accumulates in on-chip memory.
- Blocks of keys that no query of a block attends to (window, causal) are neither loaded nor
  computed.
- Dropout masks equal those of dropout.py and are computed in the kernel.
- Scores may have terms for the distance of query and key (DeBERTa): products with the vectors of
  all distances of a block, each row shifted by one more than the previous row.

Local letters: F = H·K; N heads of a block, side by side in W = N·K features.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bert_jax.models.pallas_kernels import (
    LANES,
    LOG2_E,
    Index,
    KernelPlan,
    backward_kernel,
    forward_kernel,
)
from bert_jax.models.visibility import MAX_ROW, Distances, Visibility
from bert_jax.types import Array, Tree

INTERPRET = False  # tests set it, to run without a TPU
MAX_BLOCK = 512  # positions of a block of queries or keys
NARROW_BLOCK = 128  # positions of a block if there is a narrow window
CHUNK = 128  # keys that the backward pass processes at a time
VMEM_BYTES = 64 * 2**20
_TABLES = ('position_key', 'position_query')
_Arrays: TypeAlias = dict[str, jax.Array]
_BlockIndex: TypeAlias = Callable[[Index, Index], Index]


def attend(
    query_BTHK: jax.Array,
    key_BUHK: jax.Array,
    value_BUHK: jax.Array,
    visibility: Visibility,
    distances: Distances | None,
    dropout_bits_BHT: jax.Array | None = None,
    dropout_rate: float = 0.0,
) -> jax.Array:
    """Compute `kernels.attend` on one device.

    Args:
        query_BTHK: queries.
        key_BUHK: keys. The shorter of queries and keys is padded to the length of the other.
        value_BUHK: values.
        visibility: which keys a query attends to.
        distances: further terms of the scores, and their scale.
        dropout_bits_BHT: uint32, `dropout.random_bits` of the queries. None: no dropout.
        dropout_rate: of attention weights.

    Returns:
        [B, T, H, K] in the dtype of the values.
    """
    num_rows, num_queries, num_heads, head_size = query_BTHK.shape
    num_keys, slopes_H = key_BUHK.shape[1], visibility.slopes_H
    rate = 0.0 if dropout_bits_BHT is None else dropout_rate
    sizes = (max(num_queries, num_keys), num_heads, head_size)
    plan = make_plan(*sizes, visibility.window, visibility.is_causal, rate)
    pad_T, pad_H = plan.length - num_queries, plan.num_blocks * plan.heads - num_heads

    def to_features(x_BTHK: jax.Array, before: int, after: int) -> jax.Array:
        pad = ((0, 0), (before, after), (0, pad_H), (0, plan.width - head_size))
        return jnp.pad(x_BTHK, pad).reshape(num_rows, before + x_BTHK.shape[1] + after, -1)

    states = {'query': query_BTHK, 'key': key_BUHK, 'value': value_BUHK}
    states = {name: to_features(x, 0, plan.length - x.shape[1]) for name, x in states.items()}
    if distances is not None:
        # One chunk per block: a product covers the distances to all queries anyway.
        plan = dataclasses.replace(plan, scale=distances.scale * LOG2_E, chunk=plan.block)
        tables = {'position_key': distances.key_BRHK, 'position_query': distances.query_BRHK}
        states |= {
            name: to_features(x, pad_T, pad_T) for name, x in tables.items() if x is not None
        }
    extras = _ids(visibility, num_rows, (num_queries, num_keys), plan.length)
    if slopes_H is not None:
        extras['slopes'] = jnp.pad(jnp.asarray(slopes_H, jnp.float32), (0, pad_H))
    if plan.rate and dropout_bits_BHT is not None:
        bits_BHT = jnp.pad(dropout_bits_BHT, ((0, 0), (0, pad_H), (0, pad_T)))
        extras['bits'] = bits_BHT.reshape(-1, plan.num_blocks, plan.heads, plan.length)
    result_BTF = _attend(plan, states, extras)
    result_BTHK = result_BTF.reshape(*result_BTF.shape[:2], -1, plan.width)
    return result_BTHK[:, :num_queries, :num_heads, :head_size]


def _ids(
    visibility: Visibility, num_rows: int, lengths: tuple[int, int], padded_length: int
) -> _Arrays:
    """Return ids of queries and keys, int32 [B, 1, L]: equal ids see each other.

    Added keys have an id that no other query has. No ids: all queries see all keys.

    Args:
        visibility: which keys a query attends to.
        num_rows: B.
        lengths: numbers of queries and keys.
        padded_length: L.
    """
    num_queries, num_keys = lengths
    ids = visibility.segments(num_queries)
    if ids is None and num_keys < padded_length:
        query_BT, key_BU = (jnp.zeros((num_rows, length), jnp.int32) for length in lengths)
        ids = query_BT, key_BU
    if ids is None:
        return {}

    def pad(ids_BX: jax.Array) -> jax.Array:
        added = ((0, 0), (0, padded_length - ids_BX.shape[1]))
        return jnp.pad(ids_BX, added, constant_values=np.iinfo(np.int32).min)[:, None]

    return {'query_ids': pad(ids[0]), 'key_ids': pad(ids[1])}


def make_plan(
    length: int, num_heads: int, head_size: int, window: int | None, is_causal: bool, rate: float
) -> KernelPlan:
    """Choose blocks and padding for a call of `attend`."""
    width = next((width for width in (8, 16, 32, 64) if width >= head_size), None)
    width = width or -(-head_size // LANES) * LANES
    num_blocks = -(-length // MAX_BLOCK)
    block = -(-length // (num_blocks * LANES)) * LANES
    length = num_blocks * block
    reach = length if window is None else min(window, length)
    if reach <= block // 2:
        block = min(block, NARROW_BLOCK)
    per_tile = min(max(1, LANES // width), num_heads)
    tiles = -(-num_heads // per_tile)
    # If blocks are small, a step of the grid covers several tiles, so that it has enough work.
    max_tiles = max(min((MAX_BLOCK // block) ** 2, MAX_ROW // length), 1)
    tiles_per_step = max(n for n in range(1, tiles + 1) if tiles % n == 0 and n <= max_tiles)
    return KernelPlan(
        length=length,
        width=width,
        tile=per_tile * width,
        num_blocks=tiles // tiles_per_step,
        heads=tiles_per_step * per_tile,
        scale=head_size**-0.5 * LOG2_E,
        before=reach,
        after=0 if is_causal else reach,
        rate=rate,
        block=block,
        chunk=min(CHUNK, block),
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(plan: KernelPlan, states: _Arrays, extras: _Arrays) -> jax.Array:
    return _forward(plan, states, extras)[0]


def _forward(
    plan: KernelPlan, states: _Arrays, extras: _Arrays
) -> tuple[jax.Array, tuple[_Arrays, _Arrays, _Arrays]]:
    shape = (len(states['query']), plan.num_blocks, plan.heads, plan.length)
    logsumexp = jax.ShapeDtypeStruct(shape, jnp.float32)
    out_shapes = {'result': states['value'], 'logsumexp': logsumexp}
    scratch = {
        'maximum': pltpu.VMEM((plan.heads, plan.block), jnp.float32),
        'sum': pltpu.VMEM((plan.heads, plan.block), jnp.float32),
        'result': pltpu.VMEM((plan.heads * plan.width, plan.block), jnp.float32),
    }
    outputs = _call(forward_kernel, plan, False, states | extras, out_shapes, scratch)
    return outputs['result'], (states, extras, outputs)


def _backward(
    plan: KernelPlan, residuals: tuple[_Arrays, _Arrays, _Arrays], gradient_BTF: jax.Array
) -> tuple[_Arrays, dict[str, Tree]]:
    states, extras, outputs = residuals
    width = plan.heads * plan.width
    scratch = {
        'd_query': pltpu.VMEM((width, plan.length), jnp.float32),
        'd_key': pltpu.VMEM((plan.block, width), jnp.float32),
        'd_value': pltpu.VMEM((plan.block, width), jnp.float32),
    }
    for name in states.keys() & set(_TABLES):
        scratch[f'd_{name}'] = pltpu.VMEM((2 * plan.length, width), jnp.float32)
    inputs = states | extras | outputs | {'gradient': gradient_BTF}
    out_shapes = {f'd_{name}': x for name, x in states.items()}
    gradients = _call(backward_kernel, plan, True, inputs, out_shapes, scratch)
    zeros = {name: _zero_gradient(x) for name, x in extras.items()}
    return {name: gradients[f'd_{name}'] for name in states}, zeros


def _zero_gradient(x: jax.Array) -> Array:
    return np.zeros(x.shape, jax.dtypes.float0) if x.dtype != jnp.float32 else jnp.zeros_like(x)


_attend.defvjp(_forward, _backward)


def _call(
    kernel: Callable[..., None],
    plan: KernelPlan,
    is_backward: bool,
    inputs: _Arrays,
    outputs: dict[str, Tree],
    scratch: dict[str, Tree],
) -> _Arrays:
    """Run a kernel over (examples, blocks of heads, outer blocks, inner blocks)."""
    num_inner = plan.num_inner(is_backward)
    width = plan.heads * plan.width
    batch = inputs['query'].shape[0]
    grid = (batch, plan.num_blocks, len(num_inner), int(num_inner.max()))

    def outer_index(i: Index, j: Index) -> Index:
        return i

    def inner_index(i: Index, j: Index) -> Index:
        first, last = plan.inner_range(i, is_backward)
        return jnp.minimum(first + j, last)

    query, key = outer_index, inner_index
    if is_backward:
        query, key = inner_index, outer_index

    def features(index: _BlockIndex, size: int = plan.block) -> pl.BlockSpec:
        return pl.BlockSpec((1, size, width), lambda b, g, i, j: (b, index(i, j), g))

    def statistics(index: _BlockIndex) -> pl.BlockSpec:
        shape = (1, 1, plan.heads, plan.block)
        return pl.BlockSpec(shape, lambda b, g, i, j: (b, g, 0, index(i, j)))

    def ids(index: _BlockIndex) -> pl.BlockSpec:
        return pl.BlockSpec((1, 1, plan.block), lambda b, g, i, j: (b, 0, index(i, j)))

    def whole(i: Index, j: Index) -> Index:
        return 0

    specs = {
        **{name: features(query) for name in ('query', 'gradient', 'result')},
        **{name: features(key) for name in ('key', 'value', 'd_key', 'd_value')},
        **{name: statistics(query) for name in ('logsumexp', 'bits')},
        'd_query': features(whole, plan.length),
        **{name: features(whole, 2 * plan.length) for name in _TABLES},
        **{f'd_{name}': features(whole, 2 * plan.length) for name in _TABLES},
        'query_ids': ids(query),
        'key_ids': ids(key),
        'slopes': pl.BlockSpec(memory_space=pltpu.SMEM),
    }
    out_shape = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in outputs.items()}
    arrays: _Arrays = pl.pallas_call(
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
    return arrays


def _cost(
    plan: KernelPlan,
    is_backward: bool,
    batch: int,
    visits: int,
    inputs: _Arrays,
    outputs: dict[str, Tree],
) -> pl.CostEstimate:
    """Estimate the cost of a kernel: products as wide as the matrix unit, visible blocks only."""
    pairs = batch * plan.num_blocks * plan.heads * visits * plan.block * plan.block
    num_products = 5.0 if is_backward else 2.0
    keys = plan.chunk if is_backward else plan.block
    for name, size in zip(_TABLES, (keys, plan.block), strict=True):
        if name in inputs:  # products with the distances of a chunk instead of its pairs
            num_products += (3 if is_backward else 1) * (keys + plan.block) / size
    num_bytes = 0
    query_arrays = ('query', 'gradient', 'result', 'logsumexp', 'bits')
    repeated = query_arrays if is_backward else ('key', 'value')
    for name, x in [*inputs.items(), *outputs.items()]:
        num_loads = visits * plan.block / plan.length if name in repeated else 1
        num_bytes += int(num_loads * x.size * x.dtype.itemsize)
    return pl.CostEstimate(
        flops=int(2 * num_products * pairs * plan.tile),
        transcendentals=pairs,
        bytes_accessed=num_bytes,
    )

"""The bodies of the TPU attention kernels: one block of queries times one block of keys.

Local letters: N heads of a block, side by side in W features.
"""

import dataclasses
import functools
import math
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bert_jax.models.dropout import keep_pairs
from bert_jax.models.visibility import MASKED

LANES = 128  # lanes of a vector register, and width of the matrix unit
LOG2_E = math.log2(math.e)
Index: TypeAlias = Any  # an int or a traced int32, on which the same arithmetic works
Tile: TypeAlias = Any  # a Ref of Pallas, or the array that is read from it; it has no public type
_Refs: TypeAlias = dict[str, Tile]


@dataclasses.dataclass(frozen=True)
class KernelPlan:
    """The static parameters of a call.

    Attributes:
        length: T, a multiple of `block`.
        width: K; divides `tile`.
        tile: features that one product covers: one wide head or several narrow heads.
        num_blocks: blocks of heads.
        heads: N, heads of a block.
        scale: factor of the scores, in units of log 2.
        before, after: largest distances to an earlier and to a later attended position.
        rate: dropout rate.
        block: positions of a block. Blocks of the outer loop are queries in the forward pass and
            keys in the backward pass.
        chunk: keys of a block that the backward pass processes at a time: with small chunks, more
            intermediate results stay in registers.
    """

    length: int
    width: int
    tile: int
    num_blocks: int
    heads: int
    scale: float
    before: int
    after: int
    rate: float
    block: int
    chunk: int

    @property
    def all_heads(self) -> 'list[HeadLocation]':
        """The heads of a block."""
        return [HeadLocation(number, self.width, self.tile) for number in range(self.heads)]

    @property
    def chunks(self) -> list[slice]:
        """The chunks of a block of keys in the backward pass."""
        starts = range(0, self.block, self.chunk)
        return [slice(start, start + self.chunk) for start in starts]

    def inner_range(self, i: Index, is_backward: bool) -> tuple[Index, Index]:
        """Return the first and the last inner block that interact with outer block i."""
        before, after = (self.after, self.before) if is_backward else (self.before, self.after)
        xp, divide = (np, np.floor_divide) if isinstance(i, np.ndarray) else (jnp, jax.lax.div)
        first = xp.maximum(i * self.block - before, 0)
        last = xp.minimum((i + 1) * self.block + after, self.length) - 1
        return divide(first, self.block), divide(last, self.block)

    def num_inner(self, is_backward: bool) -> np.ndarray:
        """Return the number of inner blocks of each outer block."""
        first, last = self.inner_range(np.arange(self.length // self.block), is_backward)
        return np.asarray(last - first + 1)


@dataclasses.dataclass(frozen=True)
class HeadLocation:
    """The location of head `number` in the arrays of a block of heads."""

    number: int
    width: int
    tile_width: int

    @property
    def row(self) -> slice:
        """The head's row of statistics [N, T]."""
        return slice(self.number, self.number + 1)

    @property
    def features(self) -> slice:
        """The head's features among W."""
        return slice(self.number * self.width, (self.number + 1) * self.width)

    @property
    def tile(self) -> slice:
        """The features among W of the tile that the head shares with its neighbors."""
        start = self.features.start // self.tile_width * self.tile_width
        return slice(start, start + self.tile_width)

    @property
    def lanes(self) -> slice:
        """The head's features within the tile."""
        return slice(self.features.start - self.tile.start, self.features.stop - self.tile.start)

    def only(self, x_TW: jax.Array) -> jax.Array:
        """Set the features of the other heads in a tile to zero."""
        if self.width == self.tile_width:
            return x_TW
        lane = jax.lax.broadcasted_iota(jnp.int32, (1, self.tile_width), 1)
        is_in_head = (lane >= self.lanes.start) & (lane < self.lanes.stop)
        return jnp.where(is_in_head, x_TW, jnp.zeros_like(x_TW))


@dataclasses.dataclass(frozen=True)
class _Chunk:
    """Queries and keys whose scores are computed at a time.

    Attributes:
        plan: the plan of the call.
        refs: inputs of the kernel.
        head_block: index of the block of heads.
        query_start, key_start: positions of the first query and key of the blocks.
        queries, keys: the chunk within the blocks.
    """

    plan: KernelPlan
    refs: _Refs
    head_block: Index
    query_start: Index
    key_start: Index
    queries: slice
    keys: slice

    @property
    def shape(self) -> tuple[int, int]:
        return self.keys.stop - self.keys.start, self.queries.stop - self.queries.start

    @functools.cached_property
    def ahead_UT(self) -> jax.Array:
        """int32: the position of the key minus the position of the query."""
        key_UT = jax.lax.broadcasted_iota(jnp.int32, self.shape, 0)
        query_UT = jax.lax.broadcasted_iota(jnp.int32, self.shape, 1)
        start = self.key_start - self.query_start + self.keys.start - self.queries.start
        distance_UT: jax.Array = key_UT - query_UT + start
        return distance_UT

    @functools.cached_property
    def bias_UT(self) -> jax.Array | None:
        """fp32: 0 where a query attends to a key, else MASKED. None: no masking."""
        conditions = []
        if 'query_ids' in self.refs:
            key_ids_1U = self.refs['key_ids'][0, :, self.keys]
            key_ids_UT = jnp.broadcast_to(key_ids_1U, (LANES, self.shape[0])).T
            conditions.append(key_ids_UT[:, :1] == self.refs['query_ids'][0, :, self.queries])
        if self.plan.before < self.plan.length:
            conditions.append(self.ahead_UT >= -self.plan.before)
        if self.plan.after < self.plan.length:
            conditions.append(self.ahead_UT <= self.plan.after)
        if not conditions:
            return None
        return jnp.where(functools.reduce(jnp.logical_and, conditions), 0.0, MASKED)

    @property
    def num_distances(self) -> int:
        """Distances between queries and keys plus one, which makes a multiple of the lanes."""
        return sum(self.shape)

    def distance_rows(self, name: str) -> Tile:
        """Return the rows of a distance table that the distances of the chunk select.

        The first row is the distance from the query after the last to the first key or, with
        'position_query', from the key after the last to the first query.
        """
        ahead = self.key_start + self.keys.start - self.query_start - self.queries.start
        num_keys, num_queries = self.shape
        first = ahead - num_queries if name == 'position_key' else -ahead - num_keys
        return pl.ds(pl.multiple_of(self.plan.length + first, num_keys), self.num_distances)

    def distance_products(self, head: HeadLocation, query_TW: jax.Array, key_UW: jax.Array) -> Tile:
        """fp32 [U, T]: queries times distance keys, plus distance queries times keys.

        0 without distance tables. Queries and keys must be zero outside the head. Products with all
        distances are computed, then each row is shifted by one more than the previous row.
        """
        num_keys, num_queries = self.shape
        total_UT: Tile = 0
        if 'position_key' in self.refs:
            vectors_RW = self.refs['position_key'][0, self.distance_rows('position_key'), head.tile]
            products_TR = _dot(query_TW, vectors_RW, 1, 1)
            shifted_TR = pltpu.roll(products_TR, num_keys, 1, stride=1, stride_axis=0)
            total_UT += shifted_TR[:, :num_keys].T
        if 'position_query' in self.refs:
            rows = self.distance_rows('position_query')
            products_UR = _dot(key_UW, self.refs['position_query'][0, rows, head.tile], 1, 1)
            shifted_UR = pltpu.roll(products_UR, num_queries, 1, stride=1, stride_axis=0)
            total_UT += shifted_UR[:, :num_queries]
        return total_UT

    def by_distance(self, scores_XY: jax.Array) -> jax.Array:
        """[X, R]: move the scores of pairs to their distances; inverts the shift by rows."""
        padding = self.num_distances - scores_XY.shape[1]
        scores_XR = jnp.pad(scores_XY, ((0, 0), (0, padding)))
        return _shift_back(pltpu.roll(scores_XR, padding, 1))

    def scores(self, head: HeadLocation, products_UT: jax.Array) -> jax.Array:
        """Return scores in units of log 2 from products of keys and queries."""
        scores_UT = products_UT * self.plan.scale
        if self.bias_UT is not None:
            scores_UT += self.bias_UT
        if 'slopes' in self.refs:
            slope = self.refs['slopes'][self.head_block * self.plan.heads + head.number]
            scores_UT -= slope * LOG2_E * jnp.abs(self.ahead_UT).astype(jnp.float32)
        return scores_UT

    def drop(self, head: HeadLocation, *weights_UT: jax.Array) -> tuple[jax.Array, ...]:
        """Set the weights that dropout removes to zero, without scaling the others."""
        if not self.plan.rate:
            return weights_UT
        bits_1T = self.refs['bits'][0, 0, head.row, self.queries]
        start = self.key_start + self.keys.start
        keep_UT = keep_pairs(bits_1T, start, self.shape[0], self.plan.rate)
        return tuple(jnp.where(keep_UT, x_UT, 0) for x_UT in weights_UT)


def forward_kernel(plan: KernelPlan, refs: _Refs, outputs: _Refs, scratch: _Refs) -> None:
    """The forward pass: FlashAttention-2, algorithm 1."""
    g, i, j = (pl.program_id(axis) for axis in (1, 2, 3))
    first, last = plan.inner_range(i, is_backward=False)

    @pl.when(j == 0)
    def _() -> None:
        scratch['maximum'][...] = jnp.full_like(scratch['maximum'], -jnp.inf)
        scratch['sum'][...] = jnp.zeros_like(scratch['sum'])
        scratch['result'][...] = jnp.zeros_like(scratch['result'])

    @pl.when(first + j <= last)
    def _() -> None:
        queries, keys = slice(0, plan.block), slice(0, plan.block)
        chunk = _Chunk(plan, refs, g, i * plan.block, (first + j) * plan.block, queries, keys)
        values_WU = refs['value'][0].T
        for head in plan.all_heads:
            query_TW = head.only(refs['query'][0, :, head.tile])
            key_UW = refs['key'][0, :, head.tile]
            products_UT = _dot(key_UW, query_TW, 1, 1)
            products_UT += chunk.distance_products(head, query_TW, head.only(key_UW))
            scores_UT = chunk.scores(head, products_UT)
            old_T = scratch['maximum'][head.row]
            maximum_T = jnp.maximum(old_T, scores_UT.max(0, keepdims=True))
            weights_UT = jnp.exp2(scores_UT - maximum_T)
            shrink_T = jnp.exp2(old_T - maximum_T)
            sum_T = scratch['sum'][head.row] * shrink_T
            scratch['maximum'][head.row] = maximum_T
            scratch['sum'][head.row] = sum_T + weights_UT.sum(0, keepdims=True)
            (kept_UT,) = chunk.drop(head, weights_UT)
            value_WU = values_WU[head.features]
            result_WT = _dot(value_WU, kept_UT.astype(value_WU.dtype), 1, 0)
            scratch['result'][head.features] *= shrink_T
            scratch['result'][head.features] += result_WT

    @pl.when(first + j == last)
    def _() -> None:
        for head in plan.all_heads:
            sum_T = scratch['sum'][head.row]
            scratch['result'][head.features] *= 1 / (sum_T * (1 - plan.rate))
            outputs['logsumexp'][0, 0, head.row] = scratch['maximum'][head.row] + jnp.log2(sum_T)
        outputs['result'][0] = scratch['result'][...].T.astype(outputs['result'].dtype)


def backward_kernel(plan: KernelPlan, refs: _Refs, outputs: _Refs, scratch: _Refs) -> None:
    """The backward pass: FlashAttention-2, algorithm 2."""
    g, j, i = (pl.program_id(axis) for axis in (1, 2, 3))
    first, last = plan.inner_range(j, is_backward=True)

    @pl.when((j == 0) & (i == 0))
    def _() -> None:
        for name in sorted(scratch.keys() - {'d_key', 'd_value'}):
            scratch[name][...] = jnp.zeros_like(scratch[name])

    @pl.when(i == 0)
    def _() -> None:
        scratch['d_key'][...] = jnp.zeros_like(scratch['d_key'])
        scratch['d_value'][...] = jnp.zeros_like(scratch['d_value'])

    @pl.when(first + i <= last)
    def _() -> None:
        start = pl.multiple_of((first + i) * plan.block, plan.block)
        keys_WU = refs['key'][0].T
        # Row sums of probabilities times their gradients (FlashAttention-2, algorithm 2, line 4).
        result_TW, gradient_TW = (
            refs[name][0].astype(jnp.float32) for name in ('result', 'gradient')
        )
        products_WT = (result_TW * gradient_TW).T * (1 - plan.rate)
        delta_T = [products_WT[head.features].sum(0, keepdims=True) for head in plan.all_heads]
        for keys in plan.chunks:
            chunk = _Chunk(plan, refs, g, start, j * plan.block, slice(0, plan.block), keys)
            for head in plan.all_heads:
                query_TW = refs['query'][0, :, head.tile]
                gradient_TW = refs['gradient'][0, :, head.tile]
                key_UW = refs['key'][0, keys, head.tile]
                value_UW = head.only(refs['value'][0, keys, head.tile])
                products_UT = _dot(head.only(key_UW), query_TW, 1, 1)
                head_states = (head.only(query_TW), head.only(key_UW))
                products_UT += chunk.distance_products(head, *head_states)
                scores_UT = chunk.scores(head, products_UT)
                weights_UT = jnp.exp2(scores_UT - refs['logsumexp'][0, 0, head.row])
                d_weights_UT = _dot(value_UW, gradient_TW, 1, 1)
                kept_UT, d_weights_UT = chunk.drop(head, weights_UT, d_weights_UT)
                d_value_UW = _dot(kept_UT.astype(key_UW.dtype), gradient_TW, 1, 0)
                d_scores_UT = weights_UT * (d_weights_UT - delta_T[head.number])
                d_query_WT, d_key_UW = _distance_gradients(
                    chunk, head, query_TW, key_UW, d_scores_UT, scratch
                )
                d_scores_UT = d_scores_UT.astype(key_UW.dtype)
                d_key_UW += _dot(d_scores_UT, query_TW, 1, 0)
                d_query_WT += _dot(keys_WU[head.features, keys], d_scores_UT, 1, 0)
                scratch['d_value'][keys, head.tile] += head.only(d_value_UW)
                scratch['d_key'][keys, head.tile] += head.only(d_key_UW)
                scratch['d_query'][head.features, pl.ds(start, plan.block)] += d_query_WT

    keep_rate = 1 - plan.rate
    scale = plan.scale / LOG2_E / keep_rate
    is_last_block = j == plan.length // plan.block - 1

    @pl.when(first + i == last)
    def _() -> None:
        dtype = outputs['d_key'].dtype
        outputs['d_key'][0] = (scratch['d_key'][...] * scale).astype(dtype)
        outputs['d_value'][0] = (scratch['d_value'][...] * (1 / keep_rate)).astype(dtype)

    @pl.when(is_last_block & (first + i == last))
    def _() -> None:
        for name in sorted(scratch.keys() - {'d_query', 'd_key', 'd_value'}):
            outputs[name][0] = (scratch[name][...] * scale).astype(outputs[name].dtype)
        for start in range(0, plan.length, plan.block):
            d_query_WT = scratch['d_query'][:, start : start + plan.block] * scale
            rows = slice(start, start + plan.block)
            outputs['d_query'][0, rows] = d_query_WT.T.astype(outputs['d_query'].dtype)


def _shift_back(x_XR: jax.Array) -> jax.Array:
    """Roll row i by −i; `pltpu.roll` supports positive strides only."""
    num_rows, size = x_XR.shape
    row_X1 = jax.lax.broadcasted_iota(jnp.int32, (num_rows, 1), 0)
    for bit in (1, 2, 4):
        x_XR = jnp.where(row_X1 & bit, pltpu.roll(x_XR, size - bit, 1), x_XR)
    registers = [x_XR[i : i + 8] for i in range(0, num_rows, 8)]  # 8 rows each
    return jnp.concatenate([pltpu.roll(x, -8 * i % size, 1) for i, x in enumerate(registers)])


def _distance_gradients(
    chunk: _Chunk,
    head: HeadLocation,
    query_TW: jax.Array,
    key_UW: jax.Array,
    d_scores_UT: jax.Array,
    scratch: _Refs,
) -> tuple[Tile, Tile]:
    """Return gradients of queries [K, T] and keys [U, W] from products with distance vectors.

    Adds the gradients of the distance vectors to `scratch`.
    """
    d_query_WT: Tile = 0
    d_key_UW: Tile = 0
    if 'position_key' in chunk.refs:
        rows = chunk.distance_rows('position_key')
        vectors_RW = chunk.refs['position_key'][0, rows, head.tile]
        d_scores_TR = chunk.by_distance(d_scores_UT.T).astype(query_TW.dtype)
        d_query_WT += _dot(vectors_RW.T[head.lanes], d_scores_TR, 1, 1)
        scratch['d_position_key'][rows, head.tile] += head.only(_dot(d_scores_TR, query_TW, 0, 0))
    if 'position_query' in chunk.refs:
        rows = chunk.distance_rows('position_query')
        vectors_RW = chunk.refs['position_query'][0, rows, head.tile]
        d_scores_UR = chunk.by_distance(d_scores_UT).astype(key_UW.dtype)
        d_key_UW += _dot(d_scores_UR, vectors_RW, 1, 0)
        scratch['d_position_query'][rows, head.tile] += head.only(_dot(d_scores_UR, key_UW, 0, 0))
    return d_query_WT, d_key_UW


def _dot(x: jax.Array, y: jax.Array, x_axis: int, y_axis: int) -> jax.Array:
    """fp32 product, contracted over one axis of each array."""
    precision = jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
    dimensions = (((x_axis,), (y_axis,)), ((), ()))
    return jax.lax.dot_general(
        x, y, dimensions, precision=precision, preferred_element_type=jnp.float32
    )

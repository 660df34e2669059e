"""Disentangled attention over content and relative positions (DeBERTa, arXiv 2006.03654)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.export import is_symbolic_dim

from bert_jax.models import partitioning
from bert_jax.models.architecture import Architecture
from bert_jax.models.architecture_parts import Disentangled
from bert_jax.models.attention import Attention, Context, RelativeModule
from bert_jax.models.dropout import dropout, fold_in
from bert_jax.models.linear import product, weight_init
from bert_jax.models.partitioning import param
from bert_jax.models.visibility import Distances

_TABLE = 1  # dropout site of the distance vectors
_BLOCK = 128  # rows that a product selects at a time


class RelativePositions(RelativeModule):
    """The learned vectors of relative distances, shared by all layers.

    The table has 2 · span rows for the distances (or distance buckets) −span … span − 1.
    """

    def __call__(self, context: Context, num_queries: int, num_keys: int) -> Context:
        vectors_RD, rows_TU = self._vectors(num_queries)
        return context._replace(relative_RD=vectors_RD, rows_TU=jnp.asarray(rows_TU))

    @nn.compact
    def _vectors(self, length: int) -> tuple[jax.Array, np.ndarray | jax.Array]:
        """Return the vectors that a sequence of this length uses, and each pair's vector.

        Returns:
            vectors_RD in the compute dtype, R ≤ 2 · length − 1; for a symbolic length, the vectors
                of the longest sequence.
            rows_TU: int32, the row of vectors_RD for each query and key.
        """
        architecture, options = self.architecture, _options(self.architecture)
        shape = (2 * options.span(architecture.max_position_embeddings), architecture.hidden_size)
        init, names = weight_init(architecture), ('positions', 'embed')
        table_RD = param(self, 'embedding', init, shape, names)
        is_symbolic = is_symbolic_dim(length)
        longest = architecture.max_length if is_symbolic else length
        rows_R = distance_rows(architecture, np.arange(1 - longest, longest))
        first, last = rows_R[0], rows_R[-1]
        vectors_RD = table_RD[first : last + 1]
        if options.norm:
            vectors_RD = self.make_norm('norm')(vectors_RD)
        xp = jnp if is_symbolic else np
        position_T = xp.arange(length)
        distance_TU = position_T[:, None] - position_T
        rows_TU = xp.asarray(rows_R)[distance_TU + longest - 1] - first
        return vectors_RD.astype(self.compute.activation_dtype), rows_TU


class DisentangledAttention(Attention):
    """Scores (q·k + q·k' + q'·k) / √((1 + n) K) with the n position terms of the architecture.

    q·k' is content to position: query times distance key. q'·k is position to content: distance
    query times key. k' and q' project distance vectors shared by all layers, either with the
    layer's key and query projections or with separate projections. Training first applies dropout
    to the distance vectors, differently for each example.
    """

    relative_positions = RelativePositions
    has_cache = False

    def setup(self) -> None:
        super().setup()
        options = _options(self.architecture)
        if not options.shared_projections:
            if 'content_to_position' in options.terms:
                self.position_key = self.key_projection()
            if 'position_to_content' in options.terms:
                self.position_query = self.projection()

    def scores(
        self,
        query_BTHK: jax.Array,
        key_BUHK: jax.Array,
        context: Context,
        seeds_B: jax.Array | None,
    ) -> jax.Array:
        dtype = self.compute.activation_dtype
        key_XRHK, query_XRHK = self._position_states(context, seeds_B)
        scores_BHTU = product('BTHK,BUHK->BHTU', query_BTHK, key_BUHK, dtype)
        rows_TU = context.rows_TU
        assert rows_TU is not None
        if key_XRHK is not None:
            scores_BHTU += distance_scores(query_BTHK, key_XRHK, rows_TU, False, dtype)
        if query_XRHK is not None:
            scores_BHTU += distance_scores(key_BUHK, query_XRHK, rows_TU, True, dtype)
        return scores_BHTU * self.score_scale

    def distances(
        self, query_BTHK: jax.Array, context: Context, seeds_B: jax.Array | None
    ) -> Distances:
        key_XRHK, query_XRHK = self._position_states(context, seeds_B)
        num_rows, length = query_BTHK.shape[:2]
        distance_R = np.clip(np.arange(-length, length), 1 - length, length - 1)

        def select(x_XRHK: jax.Array | None, distance_R: np.ndarray) -> jax.Array | None:
            if x_XRHK is None:
                return None
            rows_R = distance_rows(self.architecture, distance_R)
            selected_XRHK = _select_rows(x_XRHK, rows_R - rows_R.min())
            return jnp.broadcast_to(selected_XRHK, (num_rows, *selected_XRHK.shape[1:]))

        key_BRHK, query_BRHK = select(key_XRHK, -distance_R), select(query_XRHK, distance_R)
        return Distances(key_BRHK, query_BRHK, self.score_scale)

    def _position_states(
        self, context: Context, seeds_B: jax.Array | None
    ) -> tuple[jax.Array | None, jax.Array | None]:
        """Return the keys and queries of distances; None for a term that is not used."""
        architecture, vectors_RD = self.architecture, context.relative_RD
        options = _options(architecture)
        is_shared, terms = options.shared_projections, options.terms
        assert vectors_RD is not None
        # One table for all examples, [1, R, D], unless dropout makes them differ.
        vectors_XRD = vectors_RD[None]
        if seeds_B is not None and architecture.hidden_dropout:
            vectors_XRD = jnp.broadcast_to(vectors_XRD, (len(seeds_B), *vectors_XRD.shape[1:]))
            table_seeds_B = fold_in(seeds_B, _TABLE)
            vectors_XRD = dropout(vectors_XRD, architecture.hidden_dropout, table_seeds_B)
        key_XRHK = query_XRHK = None
        if 'content_to_position' in terms:
            key_XRHK = (self.key if is_shared else self.position_key)(vectors_XRD)
        if 'position_to_content' in terms:
            query_XRHK = (self.query if is_shared else self.position_query)(vectors_XRD)
        return key_XRHK, query_XRHK

    @property
    def score_scale(self) -> float:
        terms = _options(self.architecture).terms
        return float(((1 + len(terms)) * self.architecture.head_size) ** -0.5)


def _select_rows(x_XRHK: jax.Array, rows: np.ndarray) -> jax.Array:
    """x[:, rows] without gathers, which are slow on TPUs; neighbors in `rows` should be close."""
    merged_XRF = x_XRHK.reshape(*x_XRHK.shape[:2], -1)
    parts = []
    for block in np.array_split(rows, -(-len(rows) // _BLOCK)):
        first, last = block.min(), block.max()
        part_XRF = merged_XRF[:, first : last + 1]
        if not np.array_equal(block, np.arange(first, last + 1)):
            one_hot = jnp.asarray(block[:, None] == np.arange(first, last + 1), x_XRHK.dtype)
            part_XRF = product('XRF,CR->XCF', part_XRF, one_hot, x_XRHK.dtype)
        parts.append(part_XRF.astype(x_XRHK.dtype))
    return jnp.concatenate(parts, axis=1).reshape(len(x_XRHK), -1, *x_XRHK.shape[2:])


def distance_scores(
    states_BTHK: jax.Array,
    vectors_XRHK: jax.Array,
    rows_TU: jax.Array,
    are_keys: bool,
    dtype: jnp.dtype,
) -> jax.Array:
    """[B, H, T, U]: for each pair of positions, a state times the vector of their distance.

    The states are queries, or keys if `are_keys`.
    """
    if partitioning.platform() == 'cpu':
        spec, axis = ('BRHK,BUHK->BHRU', -2) if are_keys else ('BTHK,BRHK->BHTR', -1)
        operands = (vectors_XRHK, states_BTHK) if are_keys else (states_BTHK, vectors_XRHK)
        scores = _product(spec, *operands, dtype)
        return jnp.take_along_axis(scores, rows_TU[None, None], axis, mode='promise_in_bounds')
    scores_BHTR = _product('BTHK,BRHK->BHTR', states_BTHK, vectors_XRHK, dtype)
    out = 'BHUT' if are_keys else 'BHTU'
    return _multiply_one_hot(scores_BHTR, rows_TU.T if are_keys else rows_TU, out, dtype)


def _product(spec: str, a: jax.Array, b: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """`product`, in which an operand over distances (R) may be shared by all examples."""
    first, second, out = spec.replace('->', ',').split(',')
    if 'R' in first and len(a) == 1:
        first, a = first[1:], a[0]
    if 'R' in second and len(b) == 1:
        second, b = second[1:], b[0]
    return product(f'{first},{second}->{out}', a, b, dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _multiply_one_hot(
    scores_BHTR: jax.Array, rows_TU: jax.Array, out: str, dtype: jnp.dtype
) -> jax.Array:
    """Select the score of each pair's distance by a product, on devices where products are fast.

    Gathering that many scalars, and scattering their gradients, would take nearly the whole
    training step on TPU. Each sum has one term, so `dtype` is as exact as fp32 here.
    """
    one_hot_TRU = _one_hot(rows_TU, scores_BHTR.shape[-1], dtype)
    return product(f'BHTR,TRU->{out}', scores_BHTR, one_hot_TRU, dtype).astype(dtype)


def _multiply_one_hot_forward(
    scores_BHTR: jax.Array, rows_TU: jax.Array, out: str, dtype: jnp.dtype
) -> tuple[jax.Array, tuple[jax.Array, int]]:
    # Unlike `product`, keeps no one-hot rows for the backward pass.
    residuals = (rows_TU, scores_BHTR.shape[-1])
    return _multiply_one_hot(scores_BHTR, rows_TU, out, dtype), residuals


def _multiply_one_hot_backward(
    out: str, dtype: jnp.dtype, residuals: tuple[jax.Array, int], grad: jax.Array
) -> tuple[jax.Array, None]:
    return product(f'{out},TRU->BHTR', grad, _one_hot(*residuals, dtype), dtype), None


_multiply_one_hot.defvjp(_multiply_one_hot_forward, _multiply_one_hot_backward)


def _one_hot(rows_TU: jax.Array, number: int, dtype: jnp.dtype) -> jax.Array:
    """[T, R, U]: 1 at the row of each pair of positions."""
    return (rows_TU[:, None] == jnp.arange(number)[:, None]).astype(dtype)


def distance_rows(architecture: Architecture, distances: np.ndarray) -> np.ndarray:
    """Return the row of the distance table for each signed distance (query − key), int32."""
    options = _options(architecture)
    if options.buckets is not None:
        largest = options.largest_distance(architecture.max_position_embeddings)
        distances = log_buckets(distances, options.buckets, largest)
    span = options.span(architecture.max_position_embeddings)
    return np.asarray(np.clip(distances + span, 0, 2 * span - 1).astype(np.int32))


def _options(architecture: Architecture) -> Disentangled:
    assert architecture.attention.kind == 'disentangled'
    return architecture.attention


def log_buckets(distances: np.ndarray, num_buckets: int, max_distance: int) -> np.ndarray:
    """Return the signed buckets of signed distances, int32.

    A distance d of at most m = num_buckets // 2 is its own bucket; a larger distance has the bucket
    sign(d) · (m + ⌈(m − 1) log(|d| / m) / log((max_distance − 1) / m)⌉), so max_distance − 1 has
    the last bucket, 2m − 1. In float64, as in microsoft/DeBERTa, da_utils.py.
    """
    middle = num_buckets // 2
    if np.abs(distances).max(initial=0) <= middle:
        return distances.astype(np.int32)
    far = np.maximum(np.abs(distances), middle) / middle
    steps = np.log(far) / np.log((max_distance - 1) / middle) * (middle - 1)
    buckets = np.sign(distances) * (middle + np.ceil(steps))
    return np.where(np.abs(distances) <= middle, distances, buckets).astype(np.int32)

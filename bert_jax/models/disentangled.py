"""Attention that scores content and relative position apart (He et al. 2021, arXiv 2006.03654)."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.attention import Attention, Context, LayerValues
from bert_jax.models.dropout import dropout, fold
from bert_jax.models.linear import product, weight_init
from bert_jax.models.normalization import make_norm

_TABLE = 1  # dropout site, beside the attention weights


class RelativePositions(nn.Module):
    """length → (vectors_RD, rows_TS): the vectors of the distances in a sequence of that length, in
    the compute dtype, and which of them belongs to query t and key s, int32 [length, length].

    The table has 2 · relative_span rows, for distances (or buckets of them) −span … span − 1; only
    those that occur are taken, so that R ≤ 2 · length − 1.
    """

    architecture: Architecture
    compute: Compute

    @nn.compact
    def __call__(self, length: int) -> tuple[jax.Array, np.ndarray]:
        architecture = self.architecture
        table_RD = self.param(
            'embedding',
            nn.with_logical_partitioning(weight_init(architecture), ('positions', 'embed')),
            (2 * architecture.relative_span, architecture.hidden_size),
        )
        position_T = np.arange(length)
        rows_TS = distance_rows(architecture, position_T[:, None] - position_T)
        first, last = rows_TS.min(), rows_TS.max()
        vectors_RD = table_RD[first : last + 1]
        if architecture.relative_norm:
            vectors_RD = make_norm(architecture, self.compute, name='norm')(vectors_RD)
        return vectors_RD.astype(self.compute.activation_dtype), rows_TS - first


class DisentangledAttention(Attention):
    """A score is (q·k + q·k' + q'·k) / √((1 + n) K): beside the product of contents one of the
    query with the key of their distance (content to position), one of the query of their distance
    with the key (position to content), n of them as in the architecture's position_terms.

    k' and q' are maps of the same vectors in all layers, by the layer's maps for states or by maps
    of their own. Training drops out the vectors before them, for each example its own.
    """

    def setup(self):
        super().setup()
        architecture, terms = self.architecture, self.architecture.position_terms
        if not architecture.share_position_projections:
            if 'content_to_position' in terms:
                self.position_key = self.projection(architecture.biases and architecture.key_bias)
            if 'position_to_content' in terms:
                self.position_query = self.projection()

    def scores(self, query_BTHK, key_BTHK, values: LayerValues, context: Context, seeds_B):
        architecture, dtype = self.architecture, self.compute.activation_dtype
        shared, terms = architecture.share_position_projections, architecture.position_terms
        # One table for all examples, [1, R, D], unless dropout makes them differ.
        vectors_XRD = context.relative_RD[None]
        if seeds_B is not None and architecture.hidden_dropout:
            vectors_XRD = jnp.broadcast_to(vectors_XRD, (len(seeds_B), *vectors_XRD.shape[1:]))
            vectors_XRD = dropout(vectors_XRD, architecture.hidden_dropout, fold(seeds_B, _TABLE))
        scores_BHTS = product('BTHK,BSHK->BHTS', query_BTHK, key_BTHK, dtype)
        if 'content_to_position' in terms:
            key_XRHK = (self.key if shared else self.position_key)(vectors_XRD)
            scores_BHTR = _product('BTHK,BRHK->BHTR', query_BTHK, key_XRHK, dtype)
            scores_BHTS += _pick(scores_BHTR, context.rows_TS, axis=-1)
        if 'position_to_content' in terms:
            query_XRHK = (self.query if shared else self.position_query)(vectors_XRD)
            scores_BHRS = _product('BRHK,BSHK->BHRS', query_XRHK, key_BTHK, dtype)
            scores_BHTS += _pick(scores_BHRS, context.rows_TS, axis=-2)
        return scores_BHTS * ((1 + len(terms)) * architecture.head_size) ** -0.5


def _product(spec, a, b, dtype):
    """A product of which one operand, with vectors of distances (R), may be for all examples."""
    first, second, out = spec.replace('->', ',').split(',')
    if 'R' in first and len(a) == 1:
        first, a = first[1:], a[0]
    if 'R' in second and len(b) == 1:
        second, b = second[1:], b[0]
    return product(f'{first},{second}->{out}', a, b, dtype)


def _pick(scores, rows_TS, axis: int):
    """Scores with every distance on an axis, [B, H, T, R] or [B, H, R, S], at each pair's own."""
    return jnp.take_along_axis(scores, rows_TS[None, None], axis, mode='promise_in_bounds')


def distance_rows(architecture: Architecture, distances: np.ndarray) -> np.ndarray:
    """The row of the table for each signed distance (query − key), int32."""
    if architecture.position_buckets is not None:
        distances = log_buckets(distances, architecture.position_buckets, architecture.max_distance)
    span = architecture.relative_span
    return np.clip(distances + span, 0, 2 * span - 1).astype(np.int32)


def log_buckets(distances: np.ndarray, num_buckets: int, max_distance: int) -> np.ndarray:
    """Signed distances by bucket: up to m = num_buckets // 2 the distance d itself, beyond it
    sign(d) · (m + ⌈(m − 1) log(|d| / m) / log((max_distance − 1) / m)⌉), int32.

    As in da_utils.py of microsoft/DeBERTa, in float64; the bucket of max_distance − 1 is the last,
    2m − 1.
    """
    middle = num_buckets // 2
    if np.abs(distances).max(initial=0) <= middle:
        return distances.astype(np.int32)
    far = np.maximum(np.abs(distances), middle) / middle
    steps = np.log(far) / np.log((max_distance - 1) / middle) * (middle - 1)
    buckets = np.sign(distances) * (middle + np.ceil(steps))
    return np.where(np.abs(distances) <= middle, distances, buckets).astype(np.int32)

"""Attention with a learned bias of the relative distance (T5, Raffel et al. 2020, section 2.1)."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.export import is_symbolic_dim

from bert_jax.models.architecture_parts import RelativeBias
from bert_jax.models.attention import Attention, Context, RelativeModule
from bert_jax.models.linear import weight_init
from bert_jax.models.partitioning import param


class RelativeBiasTable(RelativeModule):
    """The bias of each bucket of distances and head, shared by all layers of a stack."""

    @nn.compact
    def __call__(self, context: Context, num_queries: int, num_keys: int) -> Context:
        architecture, visibility = self.architecture, context.visibility
        options = architecture.attention
        assert options.kind == 'relative_bias'
        shape, names = (options.buckets, architecture.num_heads), ('positions', 'heads')
        stddev = float(architecture.hidden_size**-0.5) if architecture.fan_in_init else None
        table_RH = param(self, 'table', weight_init(architecture, stddev), shape, names)
        buckets_R = distance_buckets(options, visibility.is_causal)
        positions_XT = visibility.query_positions_BT
        if positions_XT is None and not is_symbolic_dim(num_queries):
            bias_1HTU = _bias_of_distances(table_RH, buckets_R, num_queries, num_keys)
            return context._replace(bias_XHTU=bias_1HTU)
        if positions_XT is None:
            positions_XT = jnp.arange(num_queries)[None]
        last = options.max_distance
        distance_XTU = jnp.clip(positions_XT[..., None] - jnp.arange(num_keys), -last, last)
        bias_XTUH = jnp.asarray(table_RH)[jnp.asarray(buckets_R)[distance_XTU + last]]
        return context._replace(bias_XHTU=bias_XTUH.transpose(0, 3, 1, 2))


class RelativeBiasAttention(Attention):
    """softmax(Q Kᵀ + bias of the distance) V; the products are scaled only if the part says so."""

    relative_positions = RelativeBiasTable

    def scores(
        self,
        query_BTHK: jax.Array,
        key_BUHK: jax.Array,
        context: Context,
        seeds_B: jax.Array | None,
    ) -> jax.Array:
        assert context.bias_XHTU is not None
        return super().scores(query_BTHK, key_BUHK, context, seeds_B) + context.bias_XHTU

    @property
    def score_scale(self) -> float:
        options = self.architecture.attention
        assert options.kind == 'relative_bias'
        return super().score_scale if options.scaled else 1.0


def distance_buckets(options: RelativeBias, is_causal: bool) -> np.ndarray:
    """Return the bucket of each distance (query − key) from −max_distance to max_distance, int32.

    From max_distance on, the bucket does not change. In an encoder, keys after the query have the
    second half of the buckets; for causal attention they have bucket 0. In fp32, as in T5
    (`_relative_position_bucket` in google-research/text-to-text-transfer-transformer and in
    transformers), because truncation turns a rounding error into another bucket.
    """
    distance_R = np.arange(-options.max_distance, options.max_distance + 1)
    num_buckets = options.buckets if is_causal else options.buckets // 2
    ahead_R = np.zeros_like(distance_R) if is_causal else (distance_R < 0) * num_buckets
    far_R = np.maximum(distance_R, 0) if is_causal else np.abs(distance_R)
    exact = num_buckets // 2
    ratio_R = np.maximum(far_R, exact).astype(np.float32) / np.float32(exact)
    span = np.float32(np.log(options.max_distance / exact))
    steps_R = np.log(ratio_R) / span * np.float32(num_buckets - exact)
    log_R = np.minimum(exact + steps_R.astype(np.int32), num_buckets - 1)
    return (ahead_R + np.where(far_R < exact, far_R, log_R)).astype(np.int32)


def _bias_of_distances(
    table_RH: jax.Array, buckets_R: np.ndarray, num_queries: int, num_keys: int
) -> jax.Array:
    """[1, H, T, U]: entry (t, u) is the bias of the distance t − u.

    Written without gathers and scatters of T · U entries, which are slow on TPU: each row of the
    matrix is the row before, shifted by one.
    """
    last = len(buckets_R) // 2
    distance_N = np.arange(num_queries - 1, -num_keys, -1)
    bias_NH = jnp.asarray(table_RH)[buckets_R[np.clip(distance_N, -last, last) + last]]
    # A sequence of period N + 1 in rows of N: each row starts one entry earlier in the period (the
    # skewing of Huang et al. 2019, Music Transformer, arXiv 1809.04281, section 3.4).
    period_HX = jnp.roll(jnp.pad(bias_NH.T, [(0, 0), (0, 1)]), 1 - num_queries, axis=1)
    size = len(distance_N)
    repeated_HX = jnp.tile(period_HX, (1, num_queries))[:, : num_queries * size]
    return repeated_HX.reshape(-1, num_queries, size)[None, :, :, :num_keys]

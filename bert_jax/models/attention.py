"""Multi-head self-attention (Vaswani et al. 2017, section 3.2) and how it sees positions."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.models import kernels
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.dropout import dropout
from bert_jax.models.linear import Dense, output_init_range, product
from bert_jax.models.partitioning import constrain

# Finite, so that a row without any real position gives equal weights and not NaN; so large that
# any other score vanishes beside it in fp32.
MASKED = -1e9


class Context(NamedTuple):
    """What all layers are given.

    bias_B11T: fp32, to add to scores; [B, 1, T, T] where they hang on the query too.
    group_BT: int32, positions see those of their own number; None where that is not all.
    relative_RD, rows_TS: with disentangled attention, vectors of distances, and which of them is
        that of query t and key s.
    source_BTD: states that keys and values are made of; None: the same as queries.
    segment_ids_BT, positions_BT: int32, of several sequences in a row, which one a position belongs
        to and its place therein; None: one sequence a row.
    """

    bias_B11T: jax.Array
    group_BT: jax.Array | None = None
    relative_RD: jax.Array | None = None
    rows_TS: jax.Array | None = None
    source_BTD: jax.Array | None = None
    segment_ids_BT: jax.Array | None = None
    positions_BT: jax.Array | None = None


class LayerValues(NamedTuple):
    """What differs from layer to layer and is not learned; with a leading axis L: of all layers.

    window: the largest distance attended to, or None for any.
    frequencies_K: fp32 [K / 2], of rotary attention.
    """

    window: jax.Array | np.ndarray | None = None
    frequencies_K: jax.Array | np.ndarray | None = None


def mask_bias(
    attention_mask_BT: jax.Array, causal: bool = False, segment_ids_BT: jax.Array | None = None
) -> jax.Array:
    """fp32 [B, 1, 1, T] to add to scores: 0 where the mask is 1, MASKED where it is 0.

    causal: [B, 1, T, T], MASKED too for keys to the right of the query.
    segment_ids_BT: [B, 1, T, T], MASKED too for keys of another segment than the query's.
    """
    bias_B11T = jnp.where(attention_mask_BT[:, None, None, :] > 0, 0.0, MASKED)
    if segment_ids_BT is not None:
        same_B1TT = segment_ids_BT[:, None, :, None] == segment_ids_BT[:, None, None, :]
        bias_B11T = jnp.where(same_B1TT, bias_B11T, MASKED)
    if not causal:
        return bias_B11T
    position_T = jnp.arange(attention_mask_BT.shape[1])
    return jnp.where(position_T <= position_T[:, None], bias_B11T, MASKED)


def visible_groups(attention_mask_BT: jax.Array, segment_ids_BT: jax.Array | None) -> jax.Array:
    """int32 [B, T]: what `mask_bias` says without `causal`, as the number of each position's group;
    padding is a group of its own."""
    real_BT = attention_mask_BT > 0
    if segment_ids_BT is None:
        return real_BT.astype(jnp.int32)
    return jnp.where(real_BT, segment_ids_BT, jnp.iinfo(jnp.int32).max)


def layer_values(architecture: Architecture) -> LayerValues:
    """The values of all layers, leading axis L."""
    window_L = frequencies_LK = None
    if architecture.attention_windows is not None:
        any_distance = architecture.max_length
        window_L = np.array(
            [any_distance if w is None else w for w in architecture.attention_windows], np.int32
        )
    if architecture.rope_thetas is not None:
        exponents_K = np.arange(0, architecture.head_size, 2) / architecture.head_size
        frequencies_LK = 1 / np.array(architecture.rope_thetas)[:, None] ** exponents_K
        frequencies_LK = frequencies_LK.astype(np.float32)
    return LayerValues(window_L, frequencies_LK)


class Attention(nn.Module):
    """(x_BTD, values, context, seeds_B) → [B, T, D]: each position takes from all unmasked ones
    within the layer's window."""

    architecture: Architecture
    compute: Compute

    def setup(self):
        architecture = self.architecture
        self.query, self.value = self.projection(), self.projection()
        self.key = self.projection(architecture.biases and architecture.key_bias)
        self.output = Dense(
            'BTHK,HKD->BTD',
            (architecture.num_heads, architecture.head_size, architecture.hidden_size),
            ('heads', 'head_dim', 'embed'),
            architecture,
            self.compute,
            init_range=output_init_range(architecture),
        )

    def projection(self, use_bias: bool | None = None) -> Dense:
        """A learned map from states to what the heads compare or pass on."""
        architecture = self.architecture
        return Dense(
            'BTD,DHK->BTHK',
            (architecture.hidden_size, architecture.num_heads, architecture.head_size),
            ('embed', 'heads', 'head_dim'),
            architecture,
            self.compute,
            use_bias=use_bias,
        )

    def __call__(self, x_BTD, values: LayerValues, context: Context, seeds_B):
        dtype = self.compute.activation_dtype
        source_BTD = x_BTD if context.source_BTD is None else context.source_BTD
        pairs = (self.query, x_BTD), (self.key, source_BTD), (self.value, source_BTD)
        query_BTHK, key_BTHK, value_BTHK = (
            constrain(project(states_BTD), ('batch', 'length', 'heads', 'head_dim'))
            for project, states_BTD in pairs
        )
        if self.compute.attention_kernel != 'xla':
            kernels.check_dropout(self.architecture, self.compute, seeds_B)
            return self.output(self._by_kernel(query_BTHK, key_BTHK, value_BTHK, values, context))
        scores_BHTS = self.scores(query_BTHK, key_BTHK, values, context, seeds_B)
        weights_BHTS = jax.nn.softmax(scores_BHTS + _windowed(context.bias_B11T, values.window))
        weights_BHTS = dropout(weights_BHTS, self.architecture.attention_dropout, seeds_B)
        x_BTHK = product('BHTS,BSHK->BTHK', weights_BHTS, value_BTHK, dtype).astype(dtype)
        return self.output(x_BTHK)

    def scores(self, query_BTHK, key_BTHK, values: LayerValues, context: Context, seeds_B):
        """fp32 [B, H, T, S]: query · key / √K, and what is added for the positions."""
        dtype = self.compute.activation_dtype
        query_BTHK, key_BTHK = self.placed(query_BTHK, key_BTHK, values)
        scores_BHTS = product('BTHK,BSHK->BHTS', query_BTHK, key_BTHK, dtype)
        scores_BHTS = scores_BHTS * self.architecture.head_size**-0.5
        bias_HTS = self.position_bias(query_BTHK.shape[1])
        return scores_BHTS if bias_HTS is None else scores_BHTS + bias_HTS

    def placed(self, query_BTHK, key_BTHK, values: LayerValues):
        """Queries and keys that know their positions."""
        return query_BTHK, key_BTHK

    def position_bias(self, length: int) -> jax.Array | None:
        """fp32 [H, T, S] to add to scores, or nothing."""
        return None

    def _by_kernel(self, query_BTHK, key_BTHK, value_BTHK, values: LayerValues, context: Context):
        bias_BHTS, group_BT = _windowed(context.bias_B11T, values.window), context.group_BT
        bias_HTS = self.position_bias(query_BTHK.shape[1])
        if bias_HTS is not None:
            bias_BHTS = bias_BHTS + bias_HTS
        if bias_HTS is not None or values.window is not None:
            group_BT = None
        return kernels.attend(
            self.compute.attention_kernel,
            *self.placed(query_BTHK, key_BTHK, values),
            value_BTHK,
            bias_BHTS,
            group_BT,
        )


class RotaryAttention(Attention):
    """Queries and keys are turned by angles proportional to their positions (RoFormer, Su et al.
    2021, arXiv 2104.09864); features k and k + K/2 make a pair."""

    def placed(self, query_BTHK, key_BTHK, values: LayerValues):
        return tuple(_turn(x_BTHK, values.frequencies_K) for x_BTHK in (query_BTHK, key_BTHK))


class LinearBiasAttention(Attention):
    """Scores fall linearly with the distance, to both sides alike, at a rate fixed per head
    (ALiBi, Press et al. 2022, arXiv 2108.12409)."""

    def position_bias(self, length: int):
        slopes_H = np.array(linear_bias_slopes(self.architecture.num_heads), np.float32)
        return -slopes_H[:, None, None] * _distance(length)


def linear_bias_slopes(num_heads: int) -> list[float]:
    """2^(−8 h / H) for h = 1 … H where H is a power of two; else those of the next smaller power
    and every second one of the next larger (the ALiBi authors' get_slopes)."""
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2 ** (-4 * h / power) for h in range(1, 2 * power + 1, 2)]
    return slopes + between[: num_heads - power]


def _windowed(bias_B11T, window):
    """The bias with positions further away than the window masked too, [B, 1, T or 1, T]."""
    if window is None:
        return bias_B11T
    return jnp.where(_distance(bias_B11T.shape[-1]) <= window, bias_B11T, MASKED)


def _distance(length: int) -> jax.Array:
    """int32 [T, T]: |i − j|."""
    positions_T = jnp.arange(length)
    return abs(positions_T[:, None] - positions_T)


def _turn(x_BTHK, frequencies_K):
    """Each pair of features turned by position · frequency, in fp32."""
    angles_TK = jnp.arange(x_BTHK.shape[1])[:, None] * frequencies_K
    cos_T1K, sin_T1K = jnp.cos(angles_TK)[:, None], jnp.sin(angles_TK)[:, None]
    first, second = jnp.split(x_BTHK.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate(
        [first * cos_T1K - second * sin_T1K, second * cos_T1K + first * sin_T1K], axis=-1
    )
    return turned.astype(x_BTHK.dtype)

"""Multi-head self-attention (Vaswani et al. 2017, section 3.2) and how it sees positions."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.dropout import dropout
from bert_jax.models.partitioning import constrain
from bert_jax.models.products import Dense, output_init_range, product

# Finite, so that a row without any real position gives equal weights and not NaN; so large that
# any other score vanishes beside it in fp32.
MASKED = -1e9


class Context(NamedTuple):
    """What all layers are given: bias_B11T, fp32, to add to scores."""

    bias_B11T: jax.Array


class LayerValues(NamedTuple):
    """What differs from layer to layer and is not learnt; with a leading axis L: of all layers.

    number: the layer's number.
    window: the largest distance attended to, or None for any.
    frequencies_K: fp32 [K / 2], of rotary attention.
    """

    number: jax.Array | np.ndarray
    window: jax.Array | np.ndarray | None = None
    frequencies_K: jax.Array | np.ndarray | None = None


def mask_bias(attention_mask_BT: jax.Array) -> jax.Array:
    """fp32 [B, 1, 1, T] to add to scores: 0 where the mask is 1, MASKED where it is 0."""
    return jnp.where(attention_mask_BT[:, None, None, :] > 0, 0.0, MASKED)


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
    return LayerValues(np.arange(architecture.num_layers), window_L, frequencies_LK)


class Attention(nn.Module):
    """(x_BTD, values, context, seeds_B) → [B, T, D]: each position takes from all unmasked ones
    within the layer's window."""

    architecture: Architecture
    compute: Compute

    @nn.compact
    def __call__(self, x_BTD, values: LayerValues, context: Context, seeds_B):
        architecture, dtype = self.architecture, self.compute.activation_dtype
        size, heads = architecture.hidden_size, architecture.num_heads
        head_size = architecture.head_size
        query_BTHK, key_BTHK, value_BTHK = (
            constrain(
                Dense(
                    'BTD,DHK->BTHK',
                    (size, heads, head_size),
                    ('embed', 'heads', 'head_dim'),
                    architecture,
                    self.compute,
                    name=name,
                )(x_BTD),
                ('batch', 'length', 'heads', 'head_dim'),
            )
            for name in ('query', 'key', 'value')
        )
        scores_BHTS = self.scores(query_BTHK, key_BTHK, values)
        weights_BHTS = jax.nn.softmax(scores_BHTS + _windowed(context.bias_B11T, values.window))
        weights_BHTS = dropout(weights_BHTS, architecture.attention_dropout, seeds_B)
        x_BTHK = product('BHTS,BSHK->BTHK', weights_BHTS, value_BTHK, dtype).astype(dtype)
        return Dense(
            'BTHK,HKD->BTD',
            (heads, head_size, size),
            ('heads', 'head_dim', 'embed'),
            architecture,
            self.compute,
            init_range=output_init_range(architecture),
            name='output',
        )(x_BTHK)

    def scores(self, query_BTHK, key_BTHK, values: LayerValues):
        """fp32 [B, H, T, S]: query · key / √K."""
        dtype = self.compute.activation_dtype
        scores_BHTS = product('BTHK,BSHK->BHTS', query_BTHK, key_BTHK, dtype)
        return scores_BHTS * self.architecture.head_size**-0.5


class RotaryAttention(Attention):
    """Queries and keys are turned by angles proportional to their positions (RoFormer, Su et al.
    2021, arXiv 2104.09864); features k and k + K/2 make a pair."""

    def scores(self, query_BTHK, key_BTHK, values: LayerValues):
        query_BTHK, key_BTHK = (
            _turn(x_BTHK, values.frequencies_K) for x_BTHK in (query_BTHK, key_BTHK)
        )
        return super().scores(query_BTHK, key_BTHK, values)


class LinearBiasAttention(Attention):
    """Scores fall linearly with the distance, to both sides alike, at a rate fixed per head
    (ALiBi, Press et al. 2022, arXiv 2108.12409)."""

    def scores(self, query_BTHK, key_BTHK, values: LayerValues):
        slopes_H = np.array(linear_bias_slopes(self.architecture.num_heads), np.float32)
        distance_TS = _distance(query_BTHK.shape[1])
        bias_HTS = -slopes_H[:, None, None] * distance_TS
        return super().scores(query_BTHK, key_BTHK, values) + bias_HTS


ATTENTIONS = {
    'plain': Attention,
    'rotary': RotaryAttention,
    'linear_bias': LinearBiasAttention,
}


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

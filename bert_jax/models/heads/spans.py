"""Span classification: scores every span of up to L words, including overlapping spans."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.dropout import head_dropout
from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.feedforward import ACTIVATIONS
from bert_jax.models.heads import Head
from bert_jax.models.linear import TRUNCATED_STDDEV, add_bias, product
from bert_jax.models.partitioning import constrain, param
from bert_jax.models.rows import Rows, gather_positions
from bert_jax.types import Array

SUMMARIES = ('mean', 'attention', 'self_attention')
BOUNDARIES = ('state', 'ffn')
_MAX_LOGIT = 4.0  # attention weights are within e^±4, so differences of their sums stay exact
_MAX_SCORE = 40.0  # scores of self-attention, so that exp(score) and its inverse stay finite


class SpanClassificationHead(Head):
    """Classes of spans, from [start_i; end_j; summary_ij] through a hidden layer.

    Jurafsky & Martin, Speech and Language Processing, 3rd ed., section 11.5 "Fine-Tuning for
    Span-Based Applications", equations 11.18 to 11.20; Lee et al. 2017, arXiv 1707.07045, section
    4. The first projection applies to the three parts separately, before spans are formed, so no
    array has the size of all pairs of positions times D.

    Attributes:
        width: size of the hidden layer.
        summary: 'mean' of the states from i to j; 'attention', the mean weighted by
            exp(4 tanh(w · h_t)); or 'self_attention', the mean of the outputs of self-attention
            among these states, with one head of size `width`.
        boundary: start and end are the states themselves ('state') or the outputs of two separate
            layers ('ffn').
    """

    num_labels: int
    width: int = 150
    summary: str = 'mean'
    boundary: str = 'ffn'
    reads_head_states = True

    @nn.compact
    def __call__(
        self, states: EncoderOutput, rows: Rows, dropout_seeds_B: jax.Array | None = None
    ) -> jax.Array:
        """Return fp32 logits [B, T, L, C].

        `rows.labels['span_sizes']`, int32 [B, T, L], is the number of positions of each span that
        starts at a position; 0 for no span, whose logits are finite and meaningless.
        """
        span_sizes_BTL = rows.labels['span_sizes']
        drop = head_dropout(self.architecture, dropout_seeds_B)
        hidden_BTD = drop(constrain(states.hidden_BTD, ('batch', 'length', 'embed')), 0)
        start_BTE, end_BTE = (self._boundary(hidden_BTD, side) for side in ('start', 'end'))
        last_BTL = jnp.maximum(span_sizes_BTL - 1, 0)
        if self.summary == 'self_attention':
            end_BTLE = _gather_ahead(end_BTE, last_BTL)
            summary_BTLE = self._attended(hidden_BTD, last_BTL + 1)
        else:
            end_BTLE, summary_BTLE = self._averaged(hidden_BTD, end_BTE, rows, last_BTL)
        bias_E = param(self, 'bias', nn.initializers.zeros, (self.width,), (None,))
        x_BTLE = add_bias(start_BTE[:, :, None] + end_BTLE + summary_BTLE, bias_E)
        activation = ACTIVATIONS[self.architecture.hidden_act]
        x_BTLE = drop(activation(x_BTLE.astype(self.compute.activation_dtype)), 1)
        shape, names = (self.width, self.num_labels), (None, 'labels')
        options = dict(use_bias=True, init_range=_init_range(self.width), name='output')
        output = self.make_dense('BTLE,EC->BTLC', shape, names, **options)
        return output(x_BTLE).astype(jnp.float32)

    def _boundary(self, hidden_BTD: jax.Array, side: str) -> jax.Array:
        """fp32 [B, T, E]: a position's contribution to spans that start, or end, with it."""
        if self.boundary == 'ffn':
            hidden_BTD = self._project(hidden_BTD, self.width, f'{side}_ffn', use_bias=True)
            hidden_BTD = ACTIVATIONS[self.architecture.hidden_act](hidden_BTD)
        return self._project(hidden_BTD, self.width, side).astype(jnp.float32)

    def _averaged(
        self, hidden_BTD: jax.Array, end_BTE: jax.Array, rows: Rows, last_BTL: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Gather the ends of spans, and average the states inside, both fp32 [B, T, L, E]."""
        # The sum over a span is the running sum at its end minus the sum before its start.
        weighted_BTF = self._weighted_states(hidden_BTD)
        sum_BTF = _running_sum(weighted_BTF, rows.segment_ids_BT)
        ends_BTF = jnp.concatenate([end_BTE, sum_BTF], axis=-1)
        last_BTLF = _gather_ahead(ends_BTF, last_BTL)
        end_BTLE, sum_BTLF = jnp.split(last_BTLF, [self.width], axis=-1)
        sum_BTLF = sum_BTLF - (sum_BTF - weighted_BTF)[:, :, None]
        return end_BTLE, sum_BTLF[..., :-1] / sum_BTLF[..., -1:]

    def _attended(self, hidden_BTD: jax.Array, size_BTL: jax.Array) -> jax.Array:
        """Average the outputs of self-attention inside each span of ≥ 1 tokens, fp32 [B, T, L, E].

        The mean over the queries k of Σ_m softmax_m(q_k · k_m / √E) v_m is Σ_m c_m v_m, where c_m
        is the mean attention that m gets. So a span costs a number for each position, not a vector.
        """
        float32, (batch, length, number) = jnp.dtype('float32'), size_BTL.shape
        query_BTE = self._project(hidden_BTD, self.width, 'query').astype(float32)
        key_BTE = self._project(hidden_BTD, self.width, 'key').astype(float32)
        value_BTE = self._project(hidden_BTD, self.width, 'inside').astype(float32)
        score_BQK = product('BQE,BKE->BQK', query_BTE, key_BTE, float32) * self.width**-0.5
        weight_BQK = jnp.exp(jnp.clip(score_BQK, -_MAX_SCORE, _MAX_SCORE))
        first_T1, place_T = jnp.arange(length)[:, None, None], jnp.arange(length)
        is_inside_BTLK = (place_T >= first_T1) & (place_T < first_T1 + size_BTL[..., None])
        inside_BSK = is_inside_BTLK.reshape(batch, -1, length).astype(float32)  # S = T · L spans
        total_BSQ = product('BSK,BQK->BSQ', inside_BSK, weight_BQK, float32)
        share_BSQ = inside_BSK / total_BSQ / size_BTL.reshape(batch, -1, 1)
        got_BSK = inside_BSK * product('BSQ,BQK->BSK', share_BSQ, weight_BQK, float32)
        mean_BSE = product('BSK,BKE->BSE', got_BSK, value_BTE, float32)
        return mean_BSE.reshape(batch, length, number, -1)

    def _weighted_states(self, hidden_BTD: jax.Array) -> jax.Array:
        """fp32 [B, T, E + 1]: each position's weighted state for summaries, and its weight."""
        inside_BTE = self._project(hidden_BTD, self.width, 'inside').astype(jnp.float32)
        weight_BT1 = jnp.ones_like(inside_BTE[..., :1])
        if self.summary == 'attention':
            score_BT1 = self._project(hidden_BTD, 1, 'attention').astype(jnp.float32)
            weight_BT1 = jnp.exp(_MAX_LOGIT * jnp.tanh(score_BT1))
        return jnp.concatenate([weight_BT1 * inside_BTE, weight_BT1], axis=-1)

    def _project(self, x_BTD: jax.Array, size: int, name: str, use_bias: bool = False) -> jax.Array:
        shape, names = (x_BTD.shape[-1], size), ('embed', None)
        options = dict(use_bias=use_bias, init_range=_init_range(shape[0]), name=name)
        return self.make_dense('BTD,DE->BTE', shape, names, **options)(x_BTD)


def _init_range(inputs: int) -> float:
    """Return the init_range of kernels with this many inputs, as in LeCun et al. 1998.

    With the encoder's initializer_range, three layers of this width would pass on almost no signal,
    and the head would at first learn only the frequencies of classes.
    """
    return float(inputs**-0.5 / TRUNCATED_STDDEV)


def _running_sum(x_BTF: jax.Array, segment_ids_BT: Array | None) -> jax.Array:
    """[B, T, F]: sum from the first position of the sequence to each position.

    Computed as a product: values of other sequences contribute exactly 0, forward and backward.
    """
    t_T = jnp.arange(x_BTF.shape[1])
    earlier_BTU = (t_T <= t_T[:, None])[None]
    if segment_ids_BT is not None:
        earlier_BTU &= segment_ids_BT[:, :, None] == segment_ids_BT[:, None, :]
    earlier_BTU = jnp.broadcast_to(earlier_BTU, (x_BTF.shape[0], *earlier_BTU.shape[1:]))
    float32 = jnp.dtype('float32')
    return product('BTU,BUF->BTF', earlier_BTU.astype(float32), x_BTF, float32)


def _gather_ahead(x_BTF: jax.Array, distance_BTL: Array) -> jax.Array:
    """[B, T, L, F]: x_BTF[b, t + distance_BTL[b, t, l]]."""
    batch, length, number = distance_BTL.shape
    place_BTL = jnp.minimum(jnp.arange(length)[:, None] + distance_BTL, length - 1)
    return gather_positions(x_BTF, place_BTL.reshape(batch, -1)).reshape(batch, length, number, -1)

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

SUMMARIES = ('mean', 'attention')
BOUNDARIES = ('state', 'ffn')
_MAX_LOGIT = 4.0  # attention weights are within e^±4, so differences of their sums stay exact


class SpanClassificationHead(Head):
    """Classes of spans, from [start_i; end_j; summary_ij] through a hidden layer.

    Jurafsky & Martin, Speech and Language Processing, 3rd ed., section 11.5 "Fine-Tuning for
    Span-Based Applications"; Lee et al. 2017, arXiv 1707.07045, section 4. The first projection
    applies to the three parts separately, before spans are formed, so no array has the size of all
    pairs of positions times D.

    Attributes:
        width: size of the hidden layer.
        summary: 'mean' of the states from i to j, or 'attention', the mean weighted by
            exp(4 tanh(w · h_t)).
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
        # The sum over a span is the running sum at its end minus the sum before its start.
        weighted_BTF = self._weighted_states(hidden_BTD)
        sum_BTF = _running_sum(weighted_BTF, rows.segment_ids_BT)
        ends_BTF = jnp.concatenate([end_BTE, sum_BTF], axis=-1)
        last_BTLF = _gather_ahead(ends_BTF, jnp.maximum(span_sizes_BTL - 1, 0))
        end_BTLE, sum_BTLF = jnp.split(last_BTLF, [self.width], axis=-1)
        sum_BTLF = sum_BTLF - (sum_BTF - weighted_BTF)[:, :, None]
        summary_BTLE = sum_BTLF[..., :-1] / sum_BTLF[..., -1:]
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

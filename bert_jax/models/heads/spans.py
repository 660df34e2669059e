"""Classes of spans: every span of up to L words is scored at once, nested and overlapping ones."""

import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.activations import ACTIVATIONS
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.dropout import dropout, fold
from bert_jax.models.encoder import EncoderOutput
from bert_jax.models.linear import CUT, Dense, add_bias, product
from bert_jax.models.packed_rows import gather_positions
from bert_jax.models.partitioning import constrain

SUMMARIES = ('mean', 'attention')
BOUNDARIES = ('state', 'ffn')
_LARGEST = 4.0  # attention weights are within e^±4, so that differences of their sums are exact


class SpanClassificationHead(nn.Module):
    """(EncoderOutput, span_sizes_BTL, dropout_seeds_B, …) → logits_BTLC, fp32.

    A span from i to j is represented by [start_i; end_j; summary_ij], on which there is a hidden
    layer of `width` and a product (Jurafsky & Martin, Speech and Language Processing, 3rd ed.,
    section 11.5 "Fine-Tuning for Span-Based Applications"; Lee et al. 2017, arXiv 1707.07045,
    section 4). The first product is that of its three parts, taken before the spans are formed, so
    that nothing has the size of all pairs of positions times D.

    boundary: of start and end: 'state', the states themselves; 'ffn', a layer of its own for each.
    summary: 'mean' of the states from i to j, or their 'attention', a mean weighted by
        exp(4 tanh(w · h_t)).

    span_sizes_BTL: int32, of how many positions the spans are that begin at each position; 0 where
        there is none, and the logits are finite and mean nothing.
    dropout_seeds_B: those given to the encoder, uint32; None for evaluation.
    segment_ids_BT: those given to the encoder, of rows of several sequences.
    """

    architecture: Architecture
    compute: Compute
    num_labels: int
    width: int = 150
    summary: str = 'mean'
    boundary: str = 'ffn'

    @nn.compact
    def __call__(
        self, encoded: EncoderOutput, span_sizes_BTL, dropout_seeds_B=None, *, segment_ids_BT=None
    ):
        architecture, settings = self.architecture, (self.architecture, self.compute)
        rate = architecture.classifier_dropout
        rate = architecture.hidden_dropout if rate is None else rate
        seeds_B = fold(dropout_seeds_B, architecture.num_layers + 1)  # fewer are the encoder's
        hidden_BTD = constrain(encoded.hidden_BTD, ('batch', 'length', 'embed'))
        hidden_BTD = dropout(hidden_BTD, rate, fold(seeds_B, 0))
        start_BTE, end_BTE = (self._boundary(hidden_BTD, side) for side in ('start', 'end'))
        summed_BTF = self._weighted(hidden_BTD)
        sum_BTF = _running_sum(summed_BTF, segment_ids_BT)
        last_BTLF = _ahead(
            jnp.concatenate([end_BTE, sum_BTF], axis=-1), jnp.maximum(span_sizes_BTL - 1, 0)
        )
        end_BTLE, sum_BTLF = jnp.split(last_BTLF, [self.width], axis=-1)
        sum_BTLF = sum_BTLF - (sum_BTF - summed_BTF)[:, :, None]  # less what is before the span
        summary_BTLE = sum_BTLF[..., :-1] / sum_BTLF[..., -1:]
        bias_E = self.param(
            'bias', nn.with_logical_partitioning(nn.initializers.zeros, (None,)), (self.width,)
        )
        x_BTLE = add_bias(start_BTE[:, :, None] + end_BTLE + summary_BTLE, bias_E)
        x_BTLE = ACTIVATIONS[architecture.hidden_act](x_BTLE.astype(self.compute.activation_dtype))
        x_BTLE = dropout(x_BTLE, rate, fold(seeds_B, 1))
        shape, names = (self.width, self.num_labels), (None, 'labels')
        options = dict(use_bias=True, init_range=_deviation(shape), name='output')
        output = Dense('BTLE,EC->BTLC', shape, names, *settings, **options)
        return output(x_BTLE).astype(jnp.float32)

    def _boundary(self, hidden_BTD, side: str):
        """[B, T, E] fp32: what a position gives to the spans that begin, or end, with it."""
        if self.boundary == 'ffn':
            hidden_BTD = self._map(hidden_BTD, self.width, f'{side}_ffn', use_bias=True)
            hidden_BTD = ACTIVATIONS[self.architecture.hidden_act](hidden_BTD)
        return self._map(hidden_BTD, self.width, side).astype(jnp.float32)

    def _weighted(self, hidden_BTD):
        """[B, T, E + 1] fp32: what a position gives to the summaries of the spans it is in, times
        its weight, and the weight."""
        inside_BTE = self._map(hidden_BTD, self.width, 'inside').astype(jnp.float32)
        weight_BT1 = jnp.ones_like(inside_BTE[..., :1])
        if self.summary == 'attention':
            score_BT1 = self._map(hidden_BTD, 1, 'attention').astype(jnp.float32)
            weight_BT1 = jnp.exp(_LARGEST * jnp.tanh(score_BT1))
        return jnp.concatenate([weight_BT1 * inside_BTE, weight_BT1], axis=-1)

    def _map(self, x_BTX, size: int, name: str, use_bias: bool = False):
        shape, names = (x_BTX.shape[-1], size), ('embed', None)
        settings = (self.architecture, self.compute)
        options = dict(use_bias=use_bias, init_range=_deviation(shape), name=name)
        return Dense('BTD,DE->BTE', shape, names, *settings, **options)(x_BTX)


def _deviation(shape: tuple[int, int]) -> float:
    """Of an initial kernel: that of LeCun et al. 1998. With an encoder's, three layers of this
    width hand on next to nothing, and the head at first learns frequencies alone."""
    return shape[0] ** -0.5 / CUT


def _running_sum(x_BTF, segment_ids_BT):
    """Of each position the sum from the first one of its sequence. A product, in which what other
    sequences hold counts exactly 0 times, forward and backward."""
    t_T = jnp.arange(x_BTF.shape[1])
    earlier_BTU = (t_T <= t_T[:, None])[None]
    if segment_ids_BT is not None:
        earlier_BTU &= segment_ids_BT[:, :, None] == segment_ids_BT[:, None, :]
    earlier_BTU = jnp.broadcast_to(earlier_BTU, (len(x_BTF), *earlier_BTU.shape[1:]))
    return product('BTU,BUF->BTF', earlier_BTU.astype(jnp.float32), x_BTF, jnp.float32)


def _ahead(x_BTF, distance_BTL):
    """x_BTF[b, t + distance_BTL[b, t, l]], [B, T, L, F]."""
    batch, length, number = distance_BTL.shape
    place_BTL = jnp.minimum(jnp.arange(length)[:, None] + distance_BTL, length - 1)
    return gather_positions(x_BTF, place_BTL.reshape(batch, -1)).reshape(batch, length, number, -1)

"""Span-boundary objective: predicts each token of a masked span from the states at its ends."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.feedforward import ACTIVATIONS
from bert_jax.models.heads import Head
from bert_jax.models.heads.prediction import MaskedLanguageModelHead
from bert_jax.models.linear import weight_init
from bert_jax.models.partitioning import constrain, param
from bert_jax.models.rows import Rows, chosen_tokens, gather_positions, outer_neighbors


class SpanBoundaries(NamedTuple):
    """The tokens around the span of each target of masked rows.

    Attributes:
        left_BP: int32 in [0, T), the position before the span.
        right_BP: int32 in [0, T), the position after the span.
        weights_BP: fp32, 1 for a prediction, 0 for a skipped target.
    """

    left_BP: jax.Array
    right_BP: jax.Array
    weights_BP: jax.Array


class SpanBoundaryHead(Head):
    """norm(gelu(W₂ norm(gelu(W₁ [left; right; p_place] + b₁)) + b₂)), then a decoder.

    Joshi et al. 2020, arXiv 1907.10529, equations 1–2; BertPairTargetPredictionHead in
    facebookresearch/SpanBERT. The second layer and the decoder, a product with the token embeddings
    and a bias, are a masked-language-model head.

    Attributes:
        position_size: size of the learned vector of a token's place in its span.
        max_targets: number of places, the tokens of a span that are predicted.
    """

    position_size: int
    max_targets: int

    @nn.compact
    def __call__(
        self, states: EncoderOutput, rows: Rows, dropout_seeds_B: jax.Array | None = None
    ) -> jax.Array:
        """Return fp32 logits of the targets of the rows, [B, P, padded_vocab_size]."""
        architecture, places = self.architecture, self.max_targets
        left_BP, right_BP, _ = span_boundaries(rows, places)
        place_BP = jnp.clip(rows.chosen.positions_BP - left_BP - 1, 0, places - 1)
        place_shape = (places, self.position_size)
        place_init = weight_init(architecture)
        place_XE = param(self, 'place', place_init, place_shape, ('positions', None))
        place_BPE = place_XE[place_BP].astype(self.compute.activation_dtype)
        left_BPD = gather_positions(states.hidden_BTD, left_BP)
        right_BPD = gather_positions(states.hidden_BTD, right_BP)
        x_BPF = jnp.concatenate([left_BPD, right_BPD, place_BPE], axis=-1)
        shape = (x_BPF.shape[-1], architecture.hidden_size)
        first = self.make_dense('BPF,FD->BPD', shape, ('features', 'embed'), name='first')
        x_BPD = first(constrain(x_BPF, ('batch', None, None)))
        activation = ACTIVATIONS[architecture.prediction_act]
        x_BPD = self.make_norm('first_norm')(activation(x_BPD))
        second = MaskedLanguageModelHead(architecture, self.compute, name='second')
        return second.predict(x_BPD, states.embedding_VE)

    @nn.nowrap
    def vocabulary_products(self, sequence_length: int, num_predictions: int) -> int:
        """Every masked position is predicted once more."""
        return num_predictions

    @nn.nowrap
    def flops(self, sequence_length: int, num_predictions: int) -> int:
        """The first layer reads two states and the place of the token."""
        size = self.architecture.hidden_size
        return 2 * num_predictions * (2 * size + self.position_size) * size


def span_boundaries(rows: Rows, max_targets: int) -> SpanBoundaries:
    """Find the tokens around the span of each target.

    Args:
        rows: masked rows.
        max_targets: maximum number of predicted tokens per span.
    """
    length = rows.input_ids_BT.shape[1]

    def find(
        positions_P: jax.Array, weights_P: jax.Array, segment_ids_T: jax.Array
    ) -> SpanBoundaries:
        around_T = jnp.pad(segment_ids_T, 1)
        is_edge_T = (segment_ids_T != around_T[:-2]) | (segment_ids_T != around_T[2:])
        left_T, right_T = outer_neighbors(chosen_tokens(positions_P, weights_P, length))
        left_P, right_P = left_T[positions_P], right_T[positions_P]
        left_P, right_P = jnp.maximum(left_P, 0), jnp.minimum(right_P, length - 1)
        inside_P = ~is_edge_T[left_P] & ~is_edge_T[right_P]
        is_target_P = inside_P & (positions_P - left_P <= max_targets)
        return SpanBoundaries(left_P, right_P, weights_P * is_target_P)

    segment_ids_BT = rows.attention_mask_BT if rows.segment_ids_BT is None else rows.segment_ids_BT
    arrays: Any = (rows.chosen.positions_BP, rows.chosen.weights_BP, segment_ids_BT)
    return jax.vmap(find)(*arrays)

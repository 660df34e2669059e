"""Span boundary objective: predict a hidden span's tokens from the two tokens around it.

Source: Joshi et al. 2020 (SpanBERT, arXiv 1907.10529), section 3.2.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.averages import Terms
from bert_jax.models.architecture import Architecture
from bert_jax.models.heads.span_boundary import SpanBoundaryHead
from bert_jax.models.rows import Rows, gather_positions
from bert_jax.objectives.base import EncodedBatch, Objective
from bert_jax.objectives.masking import MaskedText, chosen_tokens, outer_neighbors
from bert_jax.objectives.mlm import empty_rows, prediction_terms


@dataclass(frozen=True)
class SpanBoundaryOptions:
    """Options of the span boundary objective; `config.sbo`.

    Attributes:
        position_size: Width of the embedding of a token's position in its span.
        max_targets: Maximum number of tokens predicted per span.
    """

    position_size: int
    max_targets: int


class SpanBoundaryObjective(Objective):
    """Cross-entropy of hidden tokens, given the states beside their span and their place in it.

    A span is a maximal run of hidden tokens, so both neighbors are visible. Spans next to the first
    or the last token of a sequence are skipped, and so are the tokens of a span after the first
    `max_targets`.
    """

    corruptions = (MaskedText,)
    options_type = SpanBoundaryOptions
    masking_schemes = ('spans', 'anchored_spans')

    def setup(self) -> None:
        sizes = (self.options.max_targets, self.options.position_size)
        self.head = SpanBoundaryHead(self.architecture, self.compute, *sizes)

    def __call__(self, encoded: EncodedBatch) -> Terms:
        """Return the terms `sbo_loss` (nats per token), `sbo_accuracy` and `sbo_empty`."""
        rows, max_targets = encoded.rows, self.options.max_targets
        left_BP, right_BP, weights_BP = span_boundaries(rows, max_targets)
        place_BP = jnp.clip(rows.chosen.positions_BP - left_BP - 1, 0, max_targets - 1)
        left_BPD = gather_positions(encoded.hidden, left_BP)
        right_BPD = gather_positions(encoded.hidden, right_BP)
        logits_BPV = self.head(left_BPD, right_BPD, place_BP, encoded.embedding_table)
        terms = prediction_terms('sbo', logits_BPV, rows.chosen.ids_BP, weights_BP)
        return terms | empty_rows('sbo', weights_BP, rows)

    @staticmethod
    def vocabulary_products(options: Any, sequence_length: int, num_predictions: int) -> int:
        """Every masked position is predicted once more."""
        return num_predictions

    @staticmethod
    def head_flops(
        architecture: Architecture, options: Any, sequence_length: int, num_predictions: int
    ) -> int:
        """The first layer reads two states and the place of the token."""
        size = architecture.hidden_size
        return int(2 * num_predictions * (2 * size + options.position_size) * size)


def span_boundaries(rows: Rows, max_targets: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Find the tokens around the span of each predicted token.

    Args:
        rows: The masked rows.
        max_targets: Maximum number of predicted tokens per span.

    Returns:
        The positions before and after the span, int32 [B, P] in [0, T), and weights, float32
        [B, P], 0 for skipped tokens.
    """
    length = rows.input_ids_BT.shape[1]

    def find(
        positions_P: jax.Array, weights_P: jax.Array, segment_ids_T: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        around_T = jnp.pad(segment_ids_T, 1)
        is_edge_T = (segment_ids_T != around_T[:-2]) | (segment_ids_T != around_T[2:])
        left_T, right_T = outer_neighbors(chosen_tokens(positions_P, weights_P, length))
        left_P, right_P = left_T[positions_P], right_T[positions_P]
        left_P, right_P = jnp.maximum(left_P, 0), jnp.minimum(right_P, length - 1)
        inside_P = ~is_edge_T[left_P] & ~is_edge_T[right_P]
        is_target_P = inside_P & (positions_P - left_P <= max_targets)
        return left_P, right_P, weights_P * is_target_P

    segment_ids_BT = rows.attention_mask_BT if rows.segment_ids_BT is None else rows.segment_ids_BT
    arrays: Any = (rows.chosen.positions_BP, rows.chosen.weights_BP, segment_ids_BT)
    return jax.vmap(find)(*arrays)

"""Span boundary objective (SpanBERT, Joshi et al. 2020, arXiv 1907.10529, section 3.2): say which
tokens a span hides from the two tokens around it alone."""

from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.averages import Terms
from bert_jax.errors import UserError
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.heads.span_boundary import SpanBoundaryHead
from bert_jax.models.packed_rows import gather_positions
from bert_jax.objectives.base import Encoded
from bert_jax.objectives.masking import Masked, chosen, outer_neighbors
from bert_jax.objectives.mlm import prediction_terms


@dataclass(frozen=True)
class Boundary:
    """position_size: features of the embedding of a token's place in its span. max_targets: tokens
    of a span asked for."""

    position_size: int
    max_targets: int

    def __post_init__(self):
        for name in ('position_size', 'max_targets'):
            if getattr(self, name) < 1:
                raise UserError(f'sbo.{name} is {getattr(self, name)}; it must be at least 1')


class SpanBoundaryObjective(nn.Module):
    """Cross-entropy of the hidden tokens, each from the states beside its span and its place in it.

    A span is a whole run of hidden tokens, so that both states are of tokens that were not chosen.
    Skipped are spans beside the first or the last token of a sequence, and of longer spans the
    tokens after the first max_targets.

    """

    architecture: Architecture
    compute: Compute
    boundary: Boundary

    needs = ('input_ids',)
    forms = ('masked',)
    schemes = ('spans',)

    def setup(self):
        sizes = (self.boundary.max_targets, self.boundary.position_size)
        self.head = SpanBoundaryHead(self.architecture, self.compute, *sizes)

    def __call__(self, encoded: Encoded) -> Terms:
        """Terms `sbo_loss` (nats a token) and `sbo_accuracy`."""
        masked, batch = encoded.corrupted, encoded.batch
        segments_BT = batch.get('segment_ids', batch['attention_mask'])
        most = self.boundary.max_targets
        left_BP, right_BP, weights_BP = boundaries(masked, segments_BT, most)
        place_BP = jnp.clip(masked.positions - left_BP - 1, 0, most - 1)
        left_BPD, right_BPD = (
            gather_positions(encoded.hidden, at_BP) for at_BP in (left_BP, right_BP)
        )
        logits_BPV = self.head(left_BPD, right_BPD, place_BP, encoded.embedding_table)
        return prediction_terms('sbo', logits_BPV, masked.labels, weights_BP)


def boundaries(masked: Masked, segment_ids_BT, max_targets: int):
    """segment_ids_BT: 1 … for the sequences of a row, 0 for padding; or the attention mask.

    Returns (positions of the tokens before and after each predicted one's span, int32 [B, P] in
    [0, T); weights float32 [B, P], 0 for what is skipped)."""
    length = segment_ids_BT.shape[1]

    def one(positions_P, weights_P, segment_ids_T):
        around_T = jnp.pad(segment_ids_T, 1)
        is_edge_T = (segment_ids_T != around_T[:-2]) | (segment_ids_T != around_T[2:])
        left_T, right_T = outer_neighbors(chosen(positions_P, weights_P, length))
        left_P, right_P = left_T[positions_P], right_T[positions_P]
        left_P, right_P = jnp.maximum(left_P, 0), jnp.minimum(right_P, length - 1)
        inside_P = ~is_edge_T[left_P] & ~is_edge_T[right_P]
        asked_P = inside_P & (positions_P - left_P <= max_targets)
        return left_P, right_P, weights_P * asked_P

    return jax.vmap(one)(masked.positions, masked.weights, segment_ids_BT)

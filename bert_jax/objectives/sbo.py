"""Span boundary objective: predict a hidden span's tokens from the two tokens around it.

Source: Joshi et al. 2020 (SpanBERT, arXiv 1907.10529), section 3.2.
"""

import dataclasses
from collections.abc import Mapping

from bert_jax.averages import Terms
from bert_jax.models.heads.span_boundary import span_boundaries
from bert_jax.models.model import HeadOptions, ModelOutput
from bert_jax.models.rows import Rows
from bert_jax.objectives import Objective
from bert_jax.objectives.mlm import empty_rows, prediction_terms


@dataclasses.dataclass(frozen=True)
class SpanBoundaryObjective(Objective):
    """Cross-entropy of hidden tokens, given the states next to their span and their place in it.

    A span is a maximal run of hidden tokens, so both neighbors are visible. Spans next to the first
    or the last token of a sequence are skipped, and so are the tokens of a span after the first
    `max_targets`.

    Attributes:
        position_size: Width of the embedding of a token's position in its span.
        max_targets: Maximum number of tokens predicted per span.
    """

    position_size: int
    max_targets: int

    corruptions = ('masked',)
    predicts_tokens = True
    has_z_loss = False  # the logits are of some of the chosen tokens
    masking_schemes = ('spans', 'anchored_spans')

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'sbo': dataclasses.asdict(self)}

    def terms(self, output: ModelOutput, clean: Rows) -> Terms:
        """Return the terms `sbo_loss` (nats per token), `sbo_accuracy` and `sbo_empty`."""
        rows = output.rows
        weights_BP = span_boundaries(rows, self.max_targets).weights_BP
        terms = prediction_terms('sbo', output.heads['sbo'], rows.chosen.ids_BP, weights_BP)
        return terms | empty_rows('sbo', weights_BP, rows)

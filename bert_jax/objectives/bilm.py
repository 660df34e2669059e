"""Bidirectional language modeling: predict each token from its left, and from its right context.

Peters et al. 2018, "Deep contextualized word representations", arXiv 1802.05365, section 3.1.
"""

from collections.abc import Mapping

import jax.numpy as jnp

from bert_jax.averages import Terms, add
from bert_jax.models.heads.bidirectional import DirectionLogits
from bert_jax.models.model import HeadOptions, ModelOutput
from bert_jax.models.rows import Rows, Targets
from bert_jax.objectives import Objective
from bert_jax.objectives.corruption import Corruption
from bert_jax.objectives.mlm import empty_rows, prediction_terms
from bert_jax.types import Key


class CleanText(Corruption):
    """The clean text, with the tokens 1 … T − 2 of each row as targets.

    The weight is 0 for special tokens and padding. Other tokens have a neighbor on both sides,
    because a sequence starts and ends with special tokens.
    """

    def __call__(self, keys_B: Key, rows: Rows) -> Rows:
        """Return the clean rows with their targets; nothing is random."""
        ids_BP = jnp.asarray(rows.input_ids_BT)[:, 1:-1]
        positions_BP = jnp.broadcast_to(jnp.arange(1, 1 + ids_BP.shape[1]), ids_BP.shape)
        counts_BP = rows.is_token_BT[:, 1:-1] & ~self.vocabulary.is_special(ids_BP)
        targets = Targets(positions_BP, ids_BP, counts_BP.astype(jnp.float32))
        return rows.replace(targets=targets)


class BidirectionalLanguageModel(Objective):
    """½ (forward + backward) cross-entropy of every token that is not special."""

    corruptions = ('clean',)
    predicts_tokens = True
    has_z_loss = False  # two heads, one for each direction

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'bilm': {}}

    def terms(self, output: ModelOutput, clean: Rows) -> Terms:
        """Return the loss and metrics.

        Terms: `bilm_loss` (nats per token), the mean of `bilm_forward` and `bilm_backward`;
        `bilm_accuracy`, and `bilm_empty` of `empty_rows`.
        """
        _, ids_BP, weights_BP = output.rows.chosen
        logits: DirectionLogits = output.heads['bilm']
        forward = prediction_terms('bilm', logits.forward_BPV, ids_BP, weights_BP)
        backward = prediction_terms('bilm', logits.backward_BPV, ids_BP, weights_BP)
        directions = {'bilm_forward': forward, 'bilm_backward': backward}
        return {
            **add(forward, backward),
            **{name: terms['bilm_loss'] for name, terms in directions.items()},
            **empty_rows('bilm', weights_BP, output.rows),
        }

"""Causal language modeling: predict each token from the tokens to its left.

The row "LTR & No NSP" of BERT's ablation (Devlin et al. 2019, section 5.1).
"""

from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.averages import Terms
from bert_jax.models.heads.prediction import MaskedLanguageModelHead
from bert_jax.models.rows import Rows, Targets, gather_positions
from bert_jax.objectives.base import EncodedBatch, Objective
from bert_jax.objectives.corruption import Corruption
from bert_jax.objectives.mlm import empty_rows, prediction_terms
from bert_jax.types import Key


class CausalText(Corruption):
    """The clean text, with the next token as the target of every position but the last.

    The weight is 0 where that token is special or padding.
    """

    label = 'causal'

    def __call__(self, keys_B: Key, rows: Rows) -> Rows:
        """Return the clean rows with their targets; nothing is random."""
        ids_BP = rows.input_ids_BT[:, 1:]
        positions_BP = jnp.broadcast_to(jnp.arange(ids_BP.shape[1]), ids_BP.shape)
        counts_BP = rows.is_token_BT[:, 1:] & ~self.vocabulary.is_special(ids_BP)
        targets = Targets(positions_BP, ids_BP, counts_BP.astype(jnp.float32))
        return rows.replace(targets=targets)


class CausalLanguageModel(Objective):
    """Cross-entropy of every token that is not special, given the tokens before it."""

    corruptions = (CausalText,)
    is_causal = True

    def setup(self) -> None:
        self.head = MaskedLanguageModelHead(self.architecture, self.compute)

    def logits(self, encoded: EncodedBatch) -> jax.Array:
        """Return the logits of the token after each of the `positions_BP`, float32 [B, P, V]."""
        hidden_BPD = gather_positions(encoded.hidden, encoded.rows.chosen.positions_BP)
        return self.head.predict(hidden_BPD, encoded.embedding_table)

    def __call__(self, encoded: EncodedBatch) -> Terms:
        """Return the terms `clm_loss` (nats per token), `clm_accuracy` and `clm_empty`."""
        targets = encoded.rows.chosen
        logits_BPV = self.head.predict(encoded.hidden[:, :-1], encoded.embedding_table)
        terms = prediction_terms('clm', logits_BPV, targets.ids_BP, targets.weights_BP)
        return terms | empty_rows('clm', targets.weights_BP, encoded.rows)

    @staticmethod
    def vocabulary_products(options: Any, sequence_length: int, num_predictions: int) -> int:
        """Every position but the last predicts a token."""
        return sequence_length - 1

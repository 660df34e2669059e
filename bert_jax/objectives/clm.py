"""Causal language modeling: predict each token from the tokens to its left.

The row "LTR & No NSP" of BERT's ablation (Devlin et al. 2019, section 5.1).
"""

from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.averages import Terms
from bert_jax.models.heads.prediction import MaskedLanguageModelHead
from bert_jax.models.rows import gather_positions
from bert_jax.objectives.base import EncodedBatch, Objective
from bert_jax.objectives.corruption import Corruption
from bert_jax.objectives.masking import Masked, Masking, is_special
from bert_jax.objectives.mlm import empty_rows, prediction_terms
from bert_jax.types import Batch, Key


class CausalText(Corruption):
    """The clean text, with the next token as the target of every position but the last."""

    label = 'causal'

    def __call__(self, keys_B: Key, batch: Batch) -> Masked:
        """Return the clean batch with its targets; nothing is random."""
        return next_tokens(self.masking, batch['input_ids'], batch['attention_mask'])


class CausalLanguageModel(Objective):
    """Cross-entropy of every token that is not special, given the tokens before it."""

    corruptions = (CausalText,)
    is_causal = True

    def setup(self) -> None:
        self.head = MaskedLanguageModelHead(self.architecture, self.compute)

    def logits(self, encoded: EncodedBatch) -> jax.Array:
        """Return the logits of the token after each of `corrupted.positions`, float32 [B, P, V]."""
        hidden_BPD = gather_positions(encoded.hidden, encoded.corrupted.positions)
        return self.head.predict(hidden_BPD, encoded.embedding_table)

    def __call__(self, encoded: EncodedBatch) -> Terms:
        """Return the terms `clm_loss` (nats per token), `clm_accuracy` and `clm_empty`."""
        targets = encoded.corrupted
        logits_BPV = self.head.predict(encoded.hidden[:, :-1], encoded.embedding_table)
        terms = prediction_terms('clm', logits_BPV, targets.labels, targets.weights)
        return terms | empty_rows('clm', targets.weights, encoded.batch['attention_mask'])

    @staticmethod
    def vocabulary_products(options: Any, sequence_length: int, num_predictions: int) -> int:
        """Every position but the last predicts a token."""
        return sequence_length - 1


def next_tokens(masking: Masking, input_ids_BT: jax.Array, attention_mask_BT: jax.Array) -> Masked:
    """Pair every position but the last with the token after it.

    The weight is 0 where that token is special or padding.
    """
    labels_BP = input_ids_BT[:, 1:]
    positions_BP = jnp.broadcast_to(jnp.arange(labels_BP.shape[1]), labels_BP.shape)
    counts_BP = (attention_mask_BT[:, 1:] > 0) & ~is_special(labels_BP, masking)
    return Masked(input_ids_BT, positions_BP, labels_BP, counts_BP.astype(jnp.float32))

"""Masked language modeling: predict the tokens that were hidden (BERT, section 3.1)."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from bert_jax.averages import Term, Terms, weighted_sum
from bert_jax.models.model import HeadOptions, ModelOutput
from bert_jax.models.rows import Rows
from bert_jax.objectives import Objective
from bert_jax.types import Array


class MaskedLanguageModel(Objective):
    """Cross-entropy of the hidden tokens.

    States are gathered at the masked positions before the projection onto the vocabulary. With
    replaced text the objective trains the generator instead of the encoder.
    """

    corruptions = ('masked', 'replaced')
    predicts_tokens = True

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'mlm': {}}

    def terms(self, output: ModelOutput, clean: Rows) -> Terms:
        """Return the loss and metrics of predicting masked tokens.

        Terms: `mlm_loss` (nats per masked token), `mlm_accuracy`, `mlm_rate`, the masked share of
        the tokens that are not padding, and `mlm_empty` of `empty_rows`.
        """
        rows = output.rows
        _, ids_BP, weights_BP = rows.chosen
        rate = Term(jnp.sum(weights_BP), jnp.sum(rows.attention_mask_BT).astype(jnp.float32))
        terms = prediction_terms('mlm', output.heads['mlm'], ids_BP, weights_BP)
        return terms | empty_rows('mlm', weights_BP, rows) | {'mlm_rate': rate}


def prediction_terms(name: str, logits_XV: jax.Array, labels_X: Array, weights_X: Array) -> Terms:
    """Return the terms `<name>_loss` and `<name>_accuracy` of predicting one of V classes."""
    return {
        f'{name}_loss': weighted_sum(cross_entropy(logits_XV, labels_X), weights_X),
        f'{name}_accuracy': weighted_sum(is_best(logits_XV, labels_X), weights_X),
    }


def empty_rows(name: str, weights_BP: Array, rows: Rows) -> Terms:
    """Return the term `<name>_empty`, the share of rows with tokens but without a prediction."""
    has_tokens_B = jnp.any(rows.is_token_BT, axis=1)
    is_empty_B = ~jnp.any(weights_BP > 0, axis=1)
    return {f'{name}_empty': weighted_sum(is_empty_B, has_tokens_B)}


def cross_entropy(logits_XV: jax.Array, labels_X: Array) -> jax.Array:
    """Return −log softmax(logits)[label] in nats, float32 [X]."""
    label_logit_X = jnp.take_along_axis(logits_XV, labels_X[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits_XV, axis=-1) - label_logit_X


def is_best(logits_XV: jax.Array, labels_X: Array) -> jax.Array:
    """Return 1 where no other logit is above the label's, else 0; float32 [X].

    Compares with the maximum, because XLA's argmax is several times slower on CPU.
    """
    label_logit_X = jnp.take_along_axis(logits_XV, labels_X[..., None], axis=-1)[..., 0]
    return (label_logit_X >= logits_XV.max(axis=-1)).astype(jnp.float32)

"""Masked language modeling (BERT, section 3.1): say which tokens were hidden."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.averages import Term, Terms, weighted_sum
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.heads import MaskedLanguageModelHead
from bert_jax.models.packed_rows import gather_positions
from bert_jax.objectives.base import Encoded
from bert_jax.objectives.masking import Masked


class MaskedLanguageModel(nn.Module):
    """Cross-entropy of the hidden tokens, gathered before the projection onto the vocabulary.

    In text with replaced tokens it is the generator that is trained so, not the encoder.
    """

    architecture: Architecture
    compute: Compute

    needs = ('input_ids',)
    forms = ('masked', 'replaced')

    def setup(self):
        self.head = MaskedLanguageModelHead(self.architecture, self.compute)

    def logits(self, encoded: Encoded) -> jax.Array:
        """float32 [B, P, V] at the masked positions."""
        decoded_BPD = gather_positions(encoded.decoded, encoded.corrupted.positions)
        return self.head(decoded_BPD, encoded.embedding_table)

    def __call__(self, encoded: Encoded) -> Terms:
        """The terms of masked_terms."""
        mask_BT = encoded.batch['attention_mask']
        return masked_terms(self.logits(encoded), encoded.corrupted, mask_BT)


def masked_terms(logits_BPV, masked: Masked, attention_mask_BT) -> Terms:
    """Terms `mlm_loss` (nats a masked token), `mlm_accuracy`, and `mlm_rate`, the share of the real
    tokens that is masked."""
    rate = Term(jnp.sum(masked.weights), jnp.sum(attention_mask_BT).astype(jnp.float32))
    terms = prediction_terms('mlm', logits_BPV, masked.labels, masked.weights)
    return terms | {'mlm_rate': rate}


def prediction_terms(name: str, logits_XV, labels_X, weights_X) -> Terms:
    """The terms `…_loss` and `…_accuracy` of predicting one of V classes."""
    return {
        f'{name}_loss': weighted_sum(cross_entropy(logits_XV, labels_X), weights_X),
        f'{name}_accuracy': weighted_sum(is_best(logits_XV, labels_X), weights_X),
    }


def cross_entropy(logits_XV: jax.Array, labels_X: jax.Array) -> jax.Array:
    """−log softmax(logits)[label], float32 [X], in nats."""
    label_logit_X = jnp.take_along_axis(logits_XV, labels_X[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits_XV, axis=-1) - label_logit_X


def is_best(logits_XV: jax.Array, labels_X: jax.Array) -> jax.Array:
    """float32 [X]: 1 where no other logit is above the label's.

    Compared with the maximum instead of by argmax, which XLA runs several times slower on CPU.
    """
    label_logit_X = jnp.take_along_axis(logits_XV, labels_X[..., None], axis=-1)[..., 0]
    return (label_logit_X >= logits_XV.max(axis=-1)).astype(jnp.float32)

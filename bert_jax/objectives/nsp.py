"""Next sentence prediction (BERT, section 3.1): does segment B follow segment A in the text?"""

import flax.linen as nn
import jax.numpy as jnp

from bert_jax.averages import Terms, weighted_sum
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.heads import NextSentenceHead
from bert_jax.objectives.base import Encoded
from bert_jax.objectives.mlm import prediction_terms


class NextSentencePrediction(nn.Module):
    """Cross-entropy of the two classes: 0 = true next, 1 = random."""

    architecture: Architecture
    compute: Compute

    needs = ('next_sentence_label',)
    forms = ('masked', 'replaced', 'edited')

    def setup(self):
        self.head = NextSentenceHead(self.architecture, self.compute)

    def __call__(self, encoded: Encoded) -> Terms:
        """Terms `nsp_loss` (nats a pair), `nsp_accuracy` and `nsp_negatives`, the share of random
        partners.
        """
        labels_B = encoded.batch['next_sentence_label']
        return pair_terms('nsp', self.head(encoded.pooled), labels_B, encoded.batch)


def pair_terms(name: str, logits_X2, labels_X, batch) -> Terms:
    """The terms `…_loss`, `…_accuracy` and `…_negatives` of sorting pairs into two classes. X: B,
    or in packed rows B, S, where not all places have a pair."""
    weights_X = jnp.ones(labels_X.shape)
    if 'first_positions' in batch:
        weights_X = (batch['first_positions'] >= 0).astype(jnp.float32)
    return prediction_terms(name, logits_X2, labels_X, weights_X) | {
        f'{name}_negatives': weighted_sum(labels_X, weights_X)
    }

"""Next sentence prediction (BERT, section 3.1): does segment B follow segment A in the text?"""

import flax.linen as nn
import jax.numpy as jnp

from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.heads import NextSentenceHead
from bert_jax.objectives.encoded import Encoded
from bert_jax.objectives.mlm import prediction_terms
from bert_jax.terms import Terms, weighted_sum


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
        return pair_terms('nsp', self.head(encoded.pooled), labels_B)


def pair_terms(name: str, logits_B2, labels_B) -> Terms:
    """The terms `…_loss`, `…_accuracy` and `…_negatives` of sorting pairs into two classes."""
    one_B = jnp.ones(labels_B.shape)
    return prediction_terms(name, logits_B2, labels_B, one_B) | {
        f'{name}_negatives': weighted_sum(labels_B, one_B)
    }

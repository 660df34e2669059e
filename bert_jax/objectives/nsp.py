"""Next sentence prediction (BERT, section 3.1): does segment B follow segment A in the text?"""

import flax.linen as nn
import jax.numpy as jnp

from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.heads import NextSentenceHead
from bert_jax.objectives.encoded import Encoded
from bert_jax.objectives.mlm import cross_entropy, is_best
from bert_jax.terms import Terms, weighted_sum


class NextSentencePrediction(nn.Module):
    """Cross-entropy of the two classes: 0 = true next, 1 = random."""

    architecture: Architecture
    compute: Compute

    needs = ('next_sentence_label',)

    def setup(self):
        self.head = NextSentenceHead(self.architecture, self.compute)

    def __call__(self, encoded: Encoded) -> Terms:
        """Terms `nsp_loss` (nats a pair), `nsp_accuracy` and `nsp_negatives`, the share of random
        partners.
        """
        labels_B = encoded.batch['next_sentence_label']
        logits_B2 = self.head(encoded.pooled)
        one_B = jnp.ones(labels_B.shape)
        return {
            'nsp_loss': weighted_sum(cross_entropy(logits_B2, labels_B), one_B),
            'nsp_accuracy': weighted_sum(is_best(logits_B2, labels_B), one_B),
            'nsp_negatives': weighted_sum(labels_B, one_B),
        }

"""Sentence order prediction (ALBERT, Lan et al. 2020, arXiv 1909.11942, section 3.1): which of two
neighboring segments comes first in the text?"""

import flax.linen as nn

from bert_jax.averages import Terms
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.heads import NextSentenceHead
from bert_jax.objectives.base import Encoded
from bert_jax.objectives.nsp import pair_terms


class SentenceOrderPrediction(nn.Module):
    """Cross-entropy of the two classes: 0 = as in the text, 1 = swapped."""

    architecture: Architecture
    compute: Compute

    needs = ('sentence_order_label',)
    forms = ('masked', 'replaced', 'edited')

    def setup(self):
        self.head = NextSentenceHead(self.architecture, self.compute)

    def __call__(self, encoded: Encoded) -> Terms:
        """Terms `sop_loss` (nats a pair), `sop_accuracy` and `sop_negatives`, the share of swapped
        pairs.
        """
        labels_B = encoded.batch['sentence_order_label']
        return pair_terms('sop', self.head(encoded.pooled), labels_B, encoded.batch)

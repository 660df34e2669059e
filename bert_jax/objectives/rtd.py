"""Replaced token detection (ELECTRA, Clark et al. 2020, arXiv 2003.10555): which tokens are not the
original ones but a generator's?"""

import flax.linen as nn

from bert_jax.averages import Terms
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.heads import ReplacedTokenHead
from bert_jax.objectives.base import Encoded
from bert_jax.objectives.detection import detection_terms
from bert_jax.objectives.packed import example_starts


class ReplacedTokenDetection(nn.Module):
    """Binary cross-entropy over all real tokens, special ones included. The generator
    (replacing.py) trains by masked language modeling, whose weight is that of `mlm`."""

    architecture: Architecture
    compute: Compute

    needs = ('input_ids',)
    forms = ('replaced',)
    beside = ('mlm',)

    def setup(self):
        self.head = ReplacedTokenHead(self.architecture, self.compute)

    def __call__(self, encoded: Encoded) -> Terms:
        """Terms `rtd_loss` (nats a token), `rtd_accuracy`, `rtd_share` (of replaced tokens), and
        those of the generator's masked language model."""
        replaced = encoded.corrupted
        logits_BT = self.head(encoded.hidden, example_starts(encoded.batch))
        real_BT = encoded.batch['attention_mask'] > 0
        return replaced.terms | detection_terms('rtd', logits_BT, replaced.is_replaced, real_BT)

"""Causal language modeling: say which token comes next, seeing none of those to the right.

The row "LTR & No NSP" of BERT's ablation (Devlin et al. 2019, section 5.1).
"""

import flax.linen as nn
import jax.numpy as jnp

from bert_jax.averages import Terms
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.heads import MaskedLanguageModelHead
from bert_jax.objectives.base import Encoded
from bert_jax.objectives.masking import Masked, Masking, is_special
from bert_jax.objectives.mlm import prediction_terms


class CausalLanguageModel(nn.Module):
    """Cross-entropy of each token but the special ones, from the states up to the one before."""

    architecture: Architecture
    compute: Compute

    needs = ('input_ids',)
    forms = ('causal',)

    def setup(self):
        self.head = MaskedLanguageModelHead(self.architecture, self.compute)

    def __call__(self, encoded: Encoded) -> Terms:
        """Terms `clm_loss` (nats a token) and `clm_accuracy`."""
        target = encoded.corrupted
        logits_BPV = self.head(encoded.hidden[:, :-1], encoded.embedding_table)
        return prediction_terms('clm', logits_BPV, target.labels, target.weights)


def next_tokens(masking: Masking, input_ids_BT, attention_mask_BT) -> Masked:
    """The clean text, with its next token for every position but the last; weight 0 where that is
    special or padding."""
    labels_BP = input_ids_BT[:, 1:]
    positions_BP = jnp.broadcast_to(jnp.arange(labels_BP.shape[1]), labels_BP.shape)
    counts_BP = (attention_mask_BT[:, 1:] > 0) & ~is_special(labels_BP, masking)
    return Masked(input_ids_BT, positions_BP, labels_BP, counts_BP.astype(jnp.float32))

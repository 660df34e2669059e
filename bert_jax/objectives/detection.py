"""Saying of every token whether something was done to it (the replaced-token detection of ELECTRA,
Clark et al. 2020, section 2, for any way of changing a text)."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.averages import Terms, weighted_sum
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.heads import ReplacedTokenHead
from bert_jax.objectives.base import Encoded


def detection_terms(name: str, logits_BT, is_changed_BT, weights_BT) -> Terms:
    """Terms `…_loss` (nats a token, binary cross-entropy), `…_accuracy` (threshold ½) and
    `…_share`, how many were changed."""
    sign_BT = jnp.where(is_changed_BT, 1.0, -1.0)
    return {
        f'{name}_loss': weighted_sum(jax.nn.softplus(-sign_BT * logits_BT), weights_BT),
        f'{name}_accuracy': weighted_sum(sign_BT * logits_BT > 0, weights_BT),
        f'{name}_share': weighted_sum(is_changed_BT, weights_BT),
    }


class EditDetection(nn.Module):
    """The binary question that an edit's marks put to positions (editing.py)."""

    architecture: Architecture
    compute: Compute

    edit = ''  # a name of EDITS
    needs = ('input_ids',)
    forms = ('edited',)

    def setup(self):
        self.head = ReplacedTokenHead(self.architecture, self.compute)

    def __call__(self, encoded: Encoded) -> Terms:
        """The terms of detection_terms, by the name of the edit."""
        marks_BT = encoded.corrupted.marks[self.edit]
        logits_BT = self.head(encoded.hidden)
        return detection_terms(self.edit, logits_BT, marks_BT > 0, marks_BT >= 0)

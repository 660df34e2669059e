"""Objectives that detect edits: permuted sentences, deleted, inserted or substituted tokens.

They generalize ELECTRA's replaced token detection (Clark et al. 2020, section 2) to other changes
of a text (edits.py).
"""

from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp

from bert_jax.averages import Terms, weighted_sum
from bert_jax.models.model import HeadOptions, ModelOutput
from bert_jax.models.rows import Rows
from bert_jax.objectives import Objective
from bert_jax.objectives.mlm import prediction_terms
from bert_jax.types import Array


def detection_terms(
    name: str, logits_BT: jax.Array, is_changed_BT: Array, weights_BT: Array
) -> Terms:
    """Return the loss and metrics of a binary decision per position.

    Terms: `<name>_loss` (binary cross-entropy in nats), `<name>_accuracy` (threshold 0.5), and
    `<name>_share`, the share of changed positions.
    """
    sign_BT = jnp.where(is_changed_BT, 1.0, -1.0)
    return {
        f'{name}_loss': weighted_sum(jax.nn.softplus(-sign_BT * logits_BT), weights_BT),
        f'{name}_accuracy': weighted_sum(sign_BT * logits_BT > 0, weights_BT),
        f'{name}_share': weighted_sum(is_changed_BT, weights_BT),
    }


class EditDetection(Objective):
    """Binary cross-entropy at the positions that an edit labeled.

    Attributes:
        edit: Name of the edit in EDITS.
    """

    corruptions = ('edited',)
    edit: ClassVar[str]

    def heads(self) -> Mapping[str, HeadOptions]:
        return {self.edit: {}}

    def terms(self, output: ModelOutput, clean: Rows) -> Terms:
        """Return the terms of `detection_terms`, named after the edit."""
        labels_BT = output.rows.labels[self.edit]
        return detection_terms(self.edit, output.heads[self.edit], labels_BT > 0, labels_BT >= 0)


class PermutationDetection(EditDetection):
    """Does this sentence follow the sentence that precedes it in the original text?

    Asked at the first token of each sentence. An encoder with one output per token cannot write
    out the original order, but where all answers are "yes" they determine it.
    """

    edit = 'permutation'
    batch_keys = ('sentence_start',)


class InsertionDetection(EditDetection):
    """Was this token inserted?"""

    edit = 'insertion'


class SubstitutionDetection(EditDetection):
    """Was this token replaced by a random token?

    A random token that equals the original counts as original.
    """

    edit = 'substitution'


class DeletionDetection(EditDetection):
    """Was a token deleted after this one, and which?

    After several deletions in a row the target is the first deleted token, because each position
    has one output.
    """

    edit = 'deletion'
    loss_terms = ('deletion_loss', 'deletion_token_loss')

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'deletion': {}, 'deletion_token': {}}

    def terms(self, output: ModelOutput, clean: Rows) -> Terms:
        """Add `deletion_token_loss` (nats per predicted token) and `deletion_token_accuracy`."""
        _, ids_BP, weights_BP = output.rows.chosen
        logits_BPV = output.heads['deletion_token']
        terms = prediction_terms('deletion_token', logits_BPV, ids_BP, weights_BP)
        return super().terms(output, clean) | terms

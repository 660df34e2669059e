"""Objectives that detect edits: permuted sentences, deleted, inserted or substituted tokens.

They generalize ELECTRA's replaced token detection (Clark et al. 2020, section 2) to other changes
of a text (edits.py).
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from bert_jax.averages import Terms, weighted_sum
from bert_jax.models.architecture import Architecture
from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.heads.prediction import MaskedLanguageModelHead, ReplacedTokenHead
from bert_jax.models.rows import gather_positions
from bert_jax.objectives.base import EncodedBatch, Objective
from bert_jax.objectives.edits import EditedText
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


def detection_flops(architecture: Architecture, sequence_length: int) -> int:
    """Return the forward operations of a `ReplacedTokenHead` at every position of a sequence."""
    return 2 * sequence_length * architecture.hidden_size * (architecture.hidden_size + 1)


class EditDetection(Objective):
    """Binary cross-entropy at the positions that an edit labeled.

    Attributes:
        edit: Name of the edit in EDITS.
    """

    corruptions = (EditedText,)
    edit: ClassVar[str]

    def setup(self) -> None:
        self.head = ReplacedTokenHead(self.architecture, self.compute)

    def __call__(self, encoded: EncodedBatch) -> Terms:
        """Return the terms of `detection_terms`, named after the edit."""
        labels_BT = encoded.rows.labels[self.edit]
        logits_BT = self.head(EncoderOutput(encoded.hidden, None), encoded.rows)
        return detection_terms(self.edit, logits_BT, labels_BT > 0, labels_BT >= 0)

    @staticmethod
    def head_flops(
        architecture: Architecture, options: Any, sequence_length: int, num_predictions: int
    ) -> int:
        """Every position is classified."""
        return detection_flops(architecture, sequence_length)


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
    has one output. At most the first ⌈T / 3⌉ deletions of a row predict their token.
    """

    edit = 'deletion'
    reads_decoded = True
    loss_terms = ('deletion_loss', 'deletion_token_loss')

    def setup(self) -> None:
        super().setup()
        self.token_head = MaskedLanguageModelHead(self.architecture, self.compute)

    def __call__(self, encoded: EncodedBatch) -> Terms:
        """Add `deletion_token_loss` (nats per predicted token) and `deletion_token_accuracy`."""
        labels_BT = encoded.rows.labels[self.edit]
        num_predictions = self.vocabulary_products(self.options, labels_BT.shape[1], 0)
        positions_BP = jnp.argsort(labels_BT <= 0, axis=1, stable=True)[:, :num_predictions]
        deleted_BP = jnp.take_along_axis(labels_BT, positions_BP, axis=1)
        decoded_BPD = gather_positions(encoded.decoded, positions_BP)
        logits_BPV = self.token_head.predict(decoded_BPD, encoded.embedding_table)
        token_BP = jnp.maximum(deleted_BP - 1, 0)
        return super().__call__(encoded) | prediction_terms(
            'deletion_token', logits_BPV, token_BP, deleted_BP > 0
        )

    @staticmethod
    def vocabulary_products(options: Any, sequence_length: int, num_predictions: int) -> int:
        """One third of the positions, rounded up."""
        return -(-sequence_length // 3)

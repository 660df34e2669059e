"""Token deletion: was something left out here, and what?"""

import jax.numpy as jnp

from bert_jax.averages import Terms
from bert_jax.models.heads import MaskedLanguageModelHead
from bert_jax.models.packed_rows import gather_positions
from bert_jax.objectives.base import Encoded
from bert_jax.objectives.detection import EditDetection
from bert_jax.objectives.mlm import prediction_terms


class DeletionDetection(EditDetection):
    """Of every token left whether one was deleted after it (editing.delete), and at those where it
    is so, which. Of several in a row the first is asked for: there is one output to say it at. What
    was deleted is asked at a third of a row's positions at most, from the left.
    """

    edit = 'deletion'
    losses = ('deletion_loss', 'deletion_token_loss')

    def setup(self):
        super().setup()
        self.token_head = MaskedLanguageModelHead(self.architecture, self.compute)

    def __call__(self, encoded: Encoded) -> Terms:
        """The terms of detection and `deletion_token_loss` (nats), `deletion_token_accuracy`."""
        marks_BT = encoded.corrupted.marks[self.edit]
        slots = -(-marks_BT.shape[1] // 3)
        positions_BP = jnp.argsort(marks_BT <= 0, axis=1, stable=True)[:, :slots]
        asked_BP = jnp.take_along_axis(marks_BT, positions_BP, axis=1)
        decoded_BPD = gather_positions(encoded.decoded, positions_BP)
        logits_BPV = self.token_head(decoded_BPD, encoded.embedding_table)
        labels_BP = jnp.maximum(asked_BP - 1, 0)
        return super().__call__(encoded) | prediction_terms(
            'deletion_token', logits_BPV, labels_BP, asked_BP > 0
        )

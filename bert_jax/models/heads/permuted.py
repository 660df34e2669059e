"""The head of a permutation language model."""

import jax
from flax import linen as nn

from bert_jax.errors import UserError
from bert_jax.models.dropout import dropout, fold_in
from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.flops import feedforward_flops
from bert_jax.models.heads.prediction import MaskedLanguageModelHead
from bert_jax.models.rows import Rows

_SITE = 2**28 + 2  # of dropout, beyond those of encoders/two_stream.py


class PermutedTokenHead(MaskedLanguageModelHead):
    """Dropout and the layers of masked language modeling on the states of the query stream.

    Without a query stream, for rows that have no order, on the states of all tokens.

    Raises:
        UserError: the encoder has no query stream, so a state has seen the token to predict.
    """

    reads_decoded = False
    published = ('plm',)

    def __call__(
        self, states: EncoderOutput, rows: Rows, dropout_seeds_B: jax.Array | None = None
    ) -> jax.Array:
        """Return the logits at the targets or, without targets, at every position."""
        x_BPD = states.query_BPD
        if x_BPD is None and rows.ranks_BT is not None:
            raise UserError(
                'the objective plm needs an encoder with a query stream; set model.architecture to '
                "'xlnet'"
            )
        if x_BPD is None:
            x_BPD = rows.at_targets(states.hidden_BTD)
        seeds_B = fold_in(dropout_seeds_B, _SITE)
        x_BPD = dropout(x_BPD, self.architecture.hidden_dropout, seeds_B)
        return self.predict(x_BPD, states.embedding_VE)

    @nn.nowrap
    def flops(self, sequence_length: int, num_predictions: int) -> int:
        """Count the layers of the query stream: its queries, outputs, scores and feed-forward."""
        architecture, length = self.architecture, sequence_length
        size = architecture.hidden_size
        layer = 4 * size**2 + feedforward_flops(architecture) + 8 * length * size + 4 * size
        return num_predictions * architecture.num_layers * layer

"""The head of a bidirectional language model: one softmax for both directions."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.errors import UserError
from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.heads import Head
from bert_jax.models.heads.prediction import PADDED_LOGIT
from bert_jax.models.linear import add_bias, product, weight_init
from bert_jax.models.partitioning import constrain, param
from bert_jax.models.rows import Rows


class DirectionLogits(NamedTuple):
    """fp32 logits of the tokens 1 … T − 2, [B, T − 2, padded_vocab_size].

    Attributes:
        forward_BPV: from the forward state of the token before.
        backward_BPV: from the backward state of the token after.
    """

    forward_BPV: jax.Array
    backward_BPV: jax.Array


class BidirectionalLanguageModelHead(Head):
    """Product of the state of a direction with the token embeddings, and a bias.

    Parameters: bias [padded_vocab_size], and decoder if the architecture does not tie predictions.

    Raises:
        UserError: the encoder mixes its directions, so a state has seen the token to predict.
    """

    predicts_tokens = True
    is_per_token = True

    @nn.compact
    def __call__(
        self, states: EncoderOutput, rows: Rows, dropout_seeds_B: jax.Array | None = None
    ) -> DirectionLogits:
        architecture = self.architecture
        if architecture.recurrence is None:
            raise UserError(
                'the objective bilm needs an encoder whose directions do not read each other; set '
                "model.architecture to 'elmo'"
            )
        forward_BTE, backward_BTE = jnp.split(states.hidden_BTD, 2, axis=-1)
        number, width = architecture.padded_vocab_size, architecture.embedding_width
        decoder_VE = states.embedding_VE
        if not architecture.prediction.tied:
            init = weight_init(architecture)
            decoder_VE = param(self, 'decoder', init, (number, width), ('vocab', 'embed'))
        assert decoder_VE is not None
        decoder_VE = constrain(decoder_VE, ('vocab', None))
        bias_V = param(self, 'bias', nn.initializers.zeros, (number,), ('vocab',))
        bias_V = jnp.where(jnp.arange(number) < architecture.vocab_size, bias_V, PADDED_LOGIT)

        def predict(state_BPE: jax.Array) -> jax.Array:
            dtype = self.compute.activation_dtype
            logits_BPV = add_bias(product('BPE,VE->BPV', state_BPE, decoder_VE, dtype), bias_V)
            return constrain(logits_BPV, ('batch', None, 'vocab'))

        # A token is predicted by the forward state before it and by the backward state after it,
        # which have not read it. The first and the last token have only one of them.
        return DirectionLogits(predict(forward_BTE[:, :-2]), predict(backward_BTE[:, 2:]))

    @nn.nowrap
    def flops(self, sequence_length: int, num_predictions: int) -> int:
        """Two products with the vocabulary for each predicted token."""
        width, vocab_size = self.architecture.embedding_width, self.architecture.vocab_size
        return 2 * (sequence_length - 2) * 2 * width * vocab_size

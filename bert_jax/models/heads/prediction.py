"""Pretraining heads: masked and next tokens, sentence pairs, replaced tokens."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.errors import UserError
from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.feedforward import ACTIVATIONS
from bert_jax.models.heads import Head
from bert_jax.models.linear import add_bias, product, weight_init
from bert_jax.models.partitioning import constrain, param
from bert_jax.models.rows import Rows, gather_positions

PADDED_LOGIT = -1e9


class MaskedLanguageModelHead(Head):
    """Dense, activation, norm, product with token embeddings (or a separate matrix), bias.

    google-research/bert run_pretraining.py, get_masked_lm_output. The dense layer maps to the width
    of the embeddings; with prediction.transform False, only the product and the bias are left.
    With prediction.shift, a token is predicted from the state of the position before it.
    Logits beyond vocab_size are about −10⁹, so their probabilities and all gradients through them
    are exactly 0.

    Attributes:
        predicts_everywhere: whether its rows have no targets; counts operations.
    """

    # Keyword-only, so that subclasses may add fields without defaults.
    predicts_everywhere: bool = dataclasses.field(default=False, kw_only=True)

    reads_decoded = True
    published: ClassVar[tuple[str, ...]] = ('mlm',)
    predicts_tokens = True
    is_per_token = True
    can_shift: ClassVar[bool] = True

    def __call__(
        self, states: EncoderOutput, rows: Rows, dropout_seeds_B: jax.Array | None = None
    ) -> jax.Array:
        """Return the logits at the targets of the rows or, without targets, at every position."""
        decoded_BTD = states.hidden_BTD if states.decoded_BTD is None else states.decoded_BTD
        if self.can_shift and self.architecture.prediction.shift:
            return self.predict(rows.before_targets(decoded_BTD), states.embedding_VE)
        return self.predict(rows.at_targets(decoded_BTD), states.embedding_VE)

    @nn.compact
    def predict(self, hidden_BPD: jax.Array, embedding_VE: jax.Array | None) -> jax.Array:
        """Return fp32 logits [B, P, padded_vocab_size] for some states."""
        architecture = self.architecture
        width = architecture.prediction_width
        x_BPE = constrain(hidden_BPD, ('batch', None, 'embed'))
        if architecture.prediction.transform:
            shape = (architecture.hidden_size, width)
            names, activation = ('embed', 'features'), ACTIVATIONS[architecture.prediction_act]
            transform = self.make_dense('BPD,DE->BPE', shape, names, name='transform')
            x_BPE = self.make_norm('norm')(activation(transform(x_BPE)))
            x_BPE = constrain(x_BPE, ('batch', None, 'embed'))
        if architecture.prediction.scaled:
            x_BPE = x_BPE * architecture.hidden_size**-0.5
        num_logits = architecture.padded_vocab_size
        if not architecture.prediction.tied:
            shape = (num_logits, width)
            stddev = float(shape[1] ** -0.5) if architecture.fan_in_init else None
            embedding_VE = param(
                self, 'decoder', weight_init(architecture, stddev), shape, ('vocab', 'embed')
            )
        assert embedding_VE is not None
        embedding_VE = constrain(embedding_VE, ('vocab', None))
        logits_BPV = product('BPE,VE->BPV', x_BPE, embedding_VE, self.compute.activation_dtype)
        bias_V: jax.Array | int = 0
        if architecture.prediction.bias:
            bias_V = param(self, 'bias', nn.initializers.zeros, (num_logits,), ('vocab',))
            if architecture.prediction.fixed_bias:
                bias_V = jax.lax.stop_gradient(bias_V)
        is_token_V = jnp.arange(num_logits) < architecture.vocab_size
        if cap := architecture.prediction.soft_cap:
            logits_BPV = cap * jnp.tanh((logits_BPV + bias_V) / cap)
            bias_V = 0
        logits_BPV = add_bias(logits_BPV, jnp.where(is_token_V, bias_V, PADDED_LOGIT))
        return constrain(logits_BPV, ('batch', None, 'vocab'))

    @nn.nowrap
    def vocabulary_products(self, sequence_length: int, num_predictions: int) -> int:
        """Only the targets predict a token, unless the rows have none."""
        return sequence_length if self.predicts_everywhere else num_predictions


class NextTokenHead(MaskedLanguageModelHead):
    """The same layers on the states of the last layer: logits of the token after a position."""

    reads_decoded = False
    published = ('clm', 'seq2seq')
    writes = True
    can_shift = False

    def __call__(
        self, states: EncoderOutput, rows: Rows, dropout_seeds_B: jax.Array | None = None
    ) -> jax.Array:
        """As `MaskedLanguageModelHead`."""
        return super().__call__(states._replace(decoded_BTD=None), rows, dropout_seeds_B)

    @nn.nowrap
    def vocabulary_products(self, sequence_length: int, num_predictions: int) -> int:
        """Every position but the last predicts a token."""
        return sequence_length - 1


class DeletedTokenHead(MaskedLanguageModelHead):
    """Logits of the token that was deleted after a position."""

    published = ()
    can_shift = False

    @nn.nowrap
    def vocabulary_products(self, sequence_length: int, num_predictions: int) -> int:
        """One third of the positions, rounded up."""
        return -(-sequence_length // 3)


class NextSentenceHead(Head):
    """Whether the second segment follows the first: class 0 yes, class 1 no.

    Class 1 is a random segment (NSP), or the two segments swapped (SOP). With pair_pooling 'first'
    one matrix reads the state of [CLS] itself, as textbooks describe NSP (Jurafsky and Martin,
    Speech and Language Processing, 3rd edition, chapter on masked language models); the bias stays.
    """

    published = ('nsp', 'sop')
    is_pair = True

    @nn.compact
    def __call__(
        self, states: EncoderOutput, rows: Rows, dropout_seeds_B: jax.Array | None = None
    ) -> jax.Array:
        """Return fp32 logits [B, 2], or [B, S, 2] in packed rows.

        Raises:
            UserError: the encoder has no pooler, which pair_pooling needs.
        """
        pooled_BD = states.pooled_BD
        if self.architecture.pair_pooling == 'first':
            pooled_BD = rows.first_states(states.hidden_BTD)
        if pooled_BD is None:
            raise UserError(
                'the objectives nsp and sop need an architecture with a pooler; set '
                "model.pooler=True, or model.pair_pooling='first'"
            )
        shape, names = (self.architecture.hidden_size, 2), ('embed', 'labels')
        spec = 'BD,DC->BC' if pooled_BD.ndim == 2 else 'BSD,DC->BSC'
        dense = self.make_dense(spec, shape, names, use_bias=True, name='dense')
        return dense(pooled_BD).astype(jnp.float32)

    @nn.nowrap
    def reads_pooler(self) -> bool:
        return self.architecture.pair_pooling == 'pooler'

    @nn.nowrap
    def flops(self, sequence_length: int, num_predictions: int) -> int:
        """The pooler, if it is read, and the two classes."""
        size = self.architecture.hidden_size
        return 2 * size * (size + 2 if self.reads_pooler() else 2)


class ReplacedTokenHead(Head):
    """Logits of each token having been replaced, or of another yes: dense, activation, dense.

    ELECTRA (Clark et al. 2020, arXiv 2003.10555). With detection_context the state of the
    sequence's first position is added to every state, and the sum normalized, before these layers
    (He et al. 2023, arXiv 2111.09543; LMMaskPredictionHead in microsoft/DeBERTa,
    replaced_token_detection_model.py).
    """

    published = ('rtd',)
    is_per_token = True

    @nn.compact
    def __call__(
        self, states: EncoderOutput, rows: Rows, dropout_seeds_B: jax.Array | None = None
    ) -> jax.Array:
        """Return fp32 logits [B, T]."""
        size = self.architecture.hidden_size
        x_BTD = constrain(states.hidden_BTD, ('batch', 'length', 'embed'))
        if self.architecture.detection_context:
            first_BT = rows.starts()
            first_BTD = x_BTD[:, :1] if first_BT is None else gather_positions(x_BTD, first_BT)
            x_BTD = self.make_norm('norm')(first_BTD + x_BTD)
        names = ('embed', 'features')
        transform = self.make_dense('BTD,DE->BTE', (size, size), names, name='transform')
        x_BTD = ACTIVATIONS[self.architecture.hidden_act](transform(x_BTD))
        options = dict(use_bias=True, name='output')
        output = self.make_dense('BTD,DC->BTC', (size, 1), ('embed', 'labels'), **options)
        return output(x_BTD)[..., 0].astype(jnp.float32)

    @nn.nowrap
    def flops(self, sequence_length: int, num_predictions: int) -> int:
        """Every position is classified."""
        size = self.architecture.hidden_size
        return 2 * sequence_length * size * (size + 1)

"""Fine-tuning heads: classes of sequences or tokens, multiple choice, and answer spans.

The architecture's `classifier.pooling` represents a sequence as one vector:
    pooler: the output of the encoder's pooler; without a pooler as `first`.
    first: the state of the first token.
    last: the state of the last token (XLNet, whose [CLS] is there; causal models).
    mean: the mean state of the tokens.
    concat: [last; max; mean], the state of the last token, and maximum and mean over the tokens
        (Howard & Ruder 2018, arXiv 1801.06146, section 3.3).
    late: none; each token has logits, whose mean over the tokens are those of the sequence
        (EuroBERT).
The `classifier.layers` precede the output projection:
    none: nothing (GPT-2).
    linear: dropout.
    dense: dense, activation, dropout (DistilBERT).
    dropout_dense: dropout, dense, activation, dropout (RoBERTa, ELECTRA).
    dense_norm: dense, activation, norm, dropout (ModernBERT); used for tokens, too.
"""

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.architecture import Architecture
from bert_jax.models.dropout import head_dropout
from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.feedforward import ACTIVATIONS
from bert_jax.models.heads import Head
from bert_jax.models.linear import TRUNCATED_STDDEV
from bert_jax.models.partitioning import constrain
from bert_jax.models.pooling import POOLINGS
from bert_jax.models.rows import Rows, masked_mean

CLASSIFIERS: dict[str, tuple[str, ...]] = {
    'none': (),
    'linear': ('dropout',),
    'dense': ('dense', 'dropout'),
    'dropout_dense': ('dropout', 'dense', 'dropout'),
    'dense_norm': ('dense', 'norm', 'dropout'),
}


Inputs: TypeAlias = tuple[jax.Array, tuple[str, ...]]


class _Classifier(Head):
    """Base class: encoder output → fp32 logits.

    Initial kernels have standard deviation initializer_range after truncation, as in transformers.
    The original code's 0.88 · initializer_range learns more slowly in the first few hundred steps
    (experiments/finetuning).
    """

    num_labels: int = 2
    reads_head_states = True
    is_fine_tuned = True

    @nn.compact
    def __call__(
        self, states: EncoderOutput, rows: Rows, dropout_seeds_B: jax.Array | None = None
    ) -> jax.Array:
        """Return fp32 logits; with first positions, those of sequences are [B, S, …]."""
        architecture = self.architecture
        x, layers = self.inputs(states, rows)
        drop = head_dropout(architecture, dropout_seeds_B)
        init_range = architecture.initializer_range / TRUNCATED_STDDEV
        letters = 'BT'[: x.ndim - 1]
        x = constrain(x, ('batch', 'length', 'embed') if x.ndim == 3 else ('batch', 'embed'))
        for number, layer in enumerate(layers):
            if layer == 'dropout':
                x = drop(x, number)
            elif layer == 'norm':
                x = self.make_norm('norm')(x)
            else:
                spec, names = f'{letters}D,DE->{letters}E', ('embed', 'features')
                options = dict(init_range=init_range, name='transform')
                shape = (x.shape[-1], architecture.hidden_size)
                x = self.make_dense(spec, shape, names, **options)(x)
                x = ACTIVATIONS[architecture.classifier.activation](x)
        spec, names = f'{letters}D,DC->{letters}C', ('embed', 'labels')
        options = dict(use_bias=self.has_bias, init_range=init_range, name='output')
        output = self.make_dense(spec, (x.shape[-1], self.num_labels), names, **options)
        return output(x).astype(jnp.float32)

    @property
    def has_bias(self) -> bool:
        """Whether the logits have a bias."""
        return True

    def inputs(self, states: EncoderOutput, rows: Rows) -> Inputs:
        """Return states [B, D], [B, S, D] or [B, T, D] and the layers before the logits."""
        raise NotImplementedError

    @nn.nowrap
    def token_layers(self, default: tuple[str, ...]) -> tuple[str, ...]:
        """Return the layers that precede the logits of tokens."""
        layers = self.architecture.classifier.layers
        return CLASSIFIERS[layers] if layers == 'dense_norm' else default


class SequenceClassificationHead(_Classifier):
    """logits_BC of each sequence's classes; logits_BSC in packed rows."""

    published = ('sequence_classification',)
    has_labels = True

    def __call__(
        self, states: EncoderOutput, rows: Rows, dropout_seeds_B: jax.Array | None = None
    ) -> jax.Array:
        """As `_Classifier`."""
        logits = super().__call__(states, rows, dropout_seeds_B)
        if self.architecture.pooling != 'late' or self.reads_pooler():
            return logits
        logits_BSC = masked_mean(logits, rows.members())
        return logits_BSC[:, 0] if rows.first_positions_BS is None else logits_BSC

    def inputs(self, states: EncoderOutput, rows: Rows) -> Inputs:
        layers = CLASSIFIERS[self.architecture.classifier.layers]
        if self.architecture.pooling == 'late':
            return states.hidden_BTD, layers
        return _pool(self.architecture, states, rows), layers

    @property
    def has_bias(self) -> bool:
        return self.architecture.classifier.bias

    @nn.nowrap
    def reads_pooler(self) -> bool:
        return self.architecture.pooling == 'pooler'


class MultipleChoiceHead(SequenceClassificationHead):
    """logit_B of each sequence being the correct choice; logit_BS in packed rows.

    Reads the pooler and applies dropout if the encoder has a pooler, even if sequence
    classification does not read it (RoBERTa), unless that reads the last token; otherwise as
    sequence classification.
    """

    num_labels: int = 1
    published = ('multiple_choice',)
    has_labels = False

    def inputs(self, states: EncoderOutput, rows: Rows) -> Inputs:
        if states.pooled_BD is None or not self.reads_pooler():
            return super().inputs(states, rows)
        return states.pooled_BD, CLASSIFIERS['linear']

    def __call__(self, *args: Any, **options: Any) -> jax.Array:
        return super().__call__(*args, **options)[..., 0]

    @nn.nowrap
    def reads_pooler(self) -> bool:
        architecture = self.architecture
        has_pooler = architecture.pooler and architecture.reads_last_layer
        return has_pooler and architecture.pooling != 'last'


class TokenClassificationHead(_Classifier):
    """logits_BTC of each position's classes."""

    published = ('token_classification',)
    has_labels = True
    is_per_token = True

    def inputs(self, states: EncoderOutput, rows: Rows) -> Inputs:
        return states.hidden_BTD, self.token_layers(CLASSIFIERS['linear'])


class QuestionAnsweringHead(_Classifier):
    """logits_BT2 of each position being the first (0) or last (1) of the answer.

    No dropout, as in google-research/bert run_squad.py, except with classifier dense_norm.
    """

    published = ('question_answering',)
    is_per_token = True

    def inputs(self, states: EncoderOutput, rows: Rows) -> Inputs:
        return states.hidden_BTD, self.token_layers(())


def _pool(architecture: Architecture, states: EncoderOutput, rows: Rows) -> jax.Array:
    """Pool each sequence into one vector: [B, D], or [B, S, D] in packed rows."""
    if architecture.pooling == 'pooler':
        assert states.pooled_BD is not None
        return states.pooled_BD
    member_BST = rows.members()
    parts = [
        POOLINGS[name](states.hidden_BTD, _readable(member_BST, architecture, rows, name))
        for name in _POOLINGS[architecture.pooling]
    ]
    vector_BSD = jnp.concatenate(parts, -1)
    return vector_BSD[:, 0] if rows.first_positions_BS is None else vector_BSD


def _readable(
    member_BST: jax.Array, architecture: Architecture, rows: Rows, pooling: str
) -> jax.Array:
    """The positions of each sequence that a pooling reads, bool [B, S, T].

    The last token is one without `Classifier.skipped_id`, or the first token if all have it.
    """
    skipped_id = architecture.classifier.skipped_id
    if skipped_id is None or POOLINGS[pooling].tokens != 'last':
        return member_BST
    is_first_BST = jnp.arange(member_BST.shape[2]) == member_BST.argmax(-1)[..., None]
    return is_first_BST | (member_BST & (jnp.asarray(rows.input_ids_BT) != skipped_id)[:, None])


# `Architecture.pooling` → the poolings of models/pooling.py whose vectors are joined.
_POOLINGS = {
    'first': ('cls',),
    'last': ('lasttoken',),
    'mean': ('mean',),
    'concat': ('lasttoken', 'max', 'mean'),
}

"""Heads that are trained for a task: classes of a sequence or of its tokens, an answer's ends.

What stands for a sequence is the architecture's `pooling`:
    pooler: what the encoder's pooler gives.
    first: the state of the first real position.
    mean: the mean of the states of all real positions.
In a row of several sequences each of them has a vector of its own.
What is done before the last product is its `classifier`, with `classifier_act` and dropout of rate
`classifier_dropout`:
    linear: dropout.
    dense: dense, activation, dropout (DistilBERT).
    dropout_dense: dropout, dense, activation, dropout (RoBERTa, ELECTRA).
    dense_norm: dense, activation, norm, dropout (ModernBERT); alone of all, for tokens as well.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.errors import UserError
from bert_jax.models.activations import ACTIVATIONS
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.dropout import dropout, fold
from bert_jax.models.encoder import EncoderOutput
from bert_jax.models.linear import CUT, Dense
from bert_jax.models.normalization import make_norm
from bert_jax.models.packed_rows import gather_positions, masked_mean, sequence_members
from bert_jax.models.partitioning import constrain

STEPS = {
    'linear': ('dropout',),
    'dense': ('dense', 'dropout'),
    'dropout_dense': ('dropout', 'dense', 'dropout'),
    'dense_norm': ('dense', 'norm', 'dropout'),
}


class Rows(NamedTuple):
    """Where sequences are in the rows of a batch; the last two are None for one a row."""

    attention_mask_BT: jax.Array
    segment_ids_BT: jax.Array | None
    first_positions_BS: jax.Array | None


class _Head(nn.Module):
    """(EncoderOutput, attention_mask_BT, dropout_seeds_B, …) → logits, fp32.

    dropout_seeds_B: those given to the encoder, uint32; None for evaluation.
    Kernels begin with the deviation initializer_range, as those of transformers: with the original
    code's, a normal of that deviation cut and so of .88 of it, a few hundred steps learn less
    (experiments/finetuning).
    segment_ids_BT, first_positions_BS: those given to the encoder, of rows of several sequences
        (see Encoder). What is said of a sequence is then said of each, [B, S, …]; where
        first_positions_BS is below 0, it is finite and means nothing.
    """

    architecture: Architecture
    compute: Compute

    @nn.compact
    def __call__(
        self,
        encoded: EncoderOutput,
        attention_mask_BT,
        dropout_seeds_B=None,
        *,
        segment_ids_BT=None,
        first_positions_BS=None,
    ):
        rows = Rows(attention_mask_BT, segment_ids_BT, first_positions_BS)
        return self.of(encoded, rows, dropout_seeds_B)

    def _logits(self, x, num_labels: int, steps: tuple[str, ...], dropout_seeds_B):
        """States [B, D], [B, S, D] or [B, T, D] → [B, C], [B, S, C] or [B, T, C]: the steps, then
        a product."""
        architecture, settings = self.architecture, (self.architecture, self.compute)
        size, rate = architecture.hidden_size, architecture.classifier_dropout
        rate = architecture.hidden_dropout if rate is None else rate
        init_range = architecture.initializer_range / CUT
        seeds_B = fold(dropout_seeds_B, architecture.num_layers + 1)  # fewer are the encoder's
        letters = 'BT'[: x.ndim - 1]
        x = constrain(x, ('batch', 'length', 'embed') if x.ndim == 3 else ('batch', 'embed'))
        for number, step in enumerate(steps):
            if step == 'dropout':
                x = dropout(x, rate, fold(seeds_B, number))
            elif step == 'norm':
                x = make_norm(*settings, name='norm')(x)
            else:
                spec, names = f'{letters}D,DE->{letters}E', ('embed', 'features')
                x = Dense(
                    spec, (size, size), names, *settings, init_range=init_range, name='transform'
                )(x)
                x = ACTIVATIONS[architecture.classifier_act](x)
        spec, names = f'{letters}D,DC->{letters}C', ('embed', 'labels')
        shape = (size, num_labels)
        output = Dense(
            spec, shape, names, *settings, use_bias=True, init_range=init_range, name='output'
        )
        return output(x).astype(jnp.float32)

    def _token_steps(self, others: tuple[str, ...]) -> tuple[str, ...]:
        steps = STEPS[self.architecture.classifier]
        return steps if self.architecture.classifier == 'dense_norm' else others


class SequenceClassificationHead(_Head):
    """logits_BC of the classes of each sequence; logits_BSC in packed rows."""

    num_labels: int = 2

    def of(self, encoded: EncoderOutput, rows: Rows, dropout_seeds_B):
        vector_BD = _pool(self.architecture, encoded, rows)
        steps = STEPS[self.architecture.classifier]
        return self._logits(vector_BD, self.num_labels, steps, dropout_seeds_B)


class MultipleChoiceHead(_Head):
    """logit_B, or logit_BS, of each sequence being the right one among those of its question.

    Through the pooler and dropout where the encoder has a pooler (so with RoBERTa too, whose
    classes do without); else as for the classes of a sequence.
    """

    def of(self, encoded: EncoderOutput, rows: Rows, dropout_seeds_B):
        vector_BD, steps = encoded.pooled_BD, STEPS['linear']
        if vector_BD is None:
            vector_BD = _pool(self.architecture, encoded, rows)
            steps = STEPS[self.architecture.classifier]
        return self._logits(vector_BD, 1, steps, dropout_seeds_B)[..., 0]


class TokenClassificationHead(_Head):
    """logits_BTC of the classes of each position."""

    num_labels: int = 2

    def of(self, encoded: EncoderOutput, rows: Rows, dropout_seeds_B):
        steps = self._token_steps(STEPS['linear'])
        return self._logits(encoded.hidden_BTD, self.num_labels, steps, dropout_seeds_B)


class SpanHead(_Head):
    """logits_BT2 of each position being the first (0) and the last (1) of an answer; without
    dropout, as in google-research/bert run_squad.py, but for dense_norm."""

    def of(self, encoded: EncoderOutput, rows: Rows, dropout_seeds_B):
        return self._logits(encoded.hidden_BTD, 2, self._token_steps(()), dropout_seeds_B)


def _pool(architecture: Architecture, encoded: EncoderOutput, rows: Rows) -> jax.Array:
    """[B, D], or [B, S, D] with first positions, by the architecture's `pooling`."""
    if architecture.pooling == 'pooler':
        if encoded.pooled_BD is None:
            raise UserError('pooling pooler needs an architecture with a pooler')
        return encoded.pooled_BD
    real_BT = rows.attention_mask_BT > 0
    is_packed = rows.first_positions_BS is not None
    if architecture.pooling == 'first':
        first_BS = rows.first_positions_BS if is_packed else real_BT.argmax(1)[:, None]
        vector_BSD = gather_positions(encoded.hidden_BTD, jnp.maximum(first_BS, 0))
    else:
        member_BST = real_BT[:, None]
        if is_packed:
            member_BST &= sequence_members(rows.segment_ids_BT, rows.first_positions_BS)
        vector_BSD = masked_mean(encoded.hidden_BTD, member_BST)
    return vector_BSD if is_packed else vector_BSD[:, 0]

"""Masked next-token prediction: one model learns to fill masks and to write text.

GPT-BERT (Charpentier and Samuel 2024, arXiv 2410.24159, section 2; ltgoslo/gpt-bert dataset.py). A
hidden token is predicted at the position before it, where a causal model predicts it too, so that
rows of both kinds train the same head.
"""

import dataclasses
from collections.abc import Mapping
from fractions import Fraction
from typing import Self

import jax
import jax.numpy as jnp

from bert_jax.averages import Terms
from bert_jax.errors import UserError
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.model import HeadOptions, Model, ModelOutput
from bert_jax.models.rows import Rows, Targets, chosen_tokens
from bert_jax.objectives import Objective
from bert_jax.objectives.corruption import Vocabulary
from bert_jax.objectives.masking import MaskedText
from bert_jax.objectives.mlm import empty_rows, prediction_terms
from bert_jax.types import Array, Config, Key

_DENOMINATOR = 1024  # of the share of causal rows


@dataclasses.dataclass(frozen=True, eq=False)
class HybridText(MaskedText):
    """Clean rows with causal attention among masked rows.

    A share of a/b of the examples is causal: a of every b consecutive ones, whatever the mesh and
    the micro-batches. Every token of a causal row but special ones is a target; in other rows the
    masked tokens are. The slots of the targets are all positions of a row.

    Attributes:
        causal_share: Share of the causal rows.
    """

    causal_share: float = 0.0

    @property
    def has_causal_rows(self) -> bool:
        return self.causal_share > 0

    @classmethod
    def build(
        cls, config: Config, vocabulary: Vocabulary, num_predictions: Mapping[int, int]
    ) -> Self:
        """Return the corruption; raises UserError if not all tokens of a row can be predicted."""
        for length, number in num_predictions.items():
            if number < length:
                raise UserError(
                    f'objective mntp predicts every token of causal rows, but '
                    f'training.max_predictions is {number} for sequences of {length}; set it to '
                    f'{length}'
                )
        masked = super().build(config, vocabulary, num_predictions)
        return dataclasses.replace(masked, causal_share=config.mntp.causal_share)

    def __call__(self, keys_B: Key, rows: Rows) -> Rows:
        """Mask the rows that are not causal, and say which are."""
        masked = super().__call__(keys_B, rows)
        clean_BT = jnp.asarray(rows.input_ids_BT)
        causal_B = is_causal(rows.labels['example_index'], self.causal_share)
        positions_BP, _, weights_BP = masked.chosen
        chosen_BT = jax.vmap(chosen_tokens, (0, 0, None))(
            positions_BP, weights_BP, clean_BT.shape[1]
        )
        has_left_T = jnp.arange(clean_BT.shape[1]) > 0
        counts_BT = rows.is_token_BT & ~self.vocabulary.is_special(clean_BT) & has_left_T
        weights_BT = jnp.where(causal_B[:, None], counts_BT, chosen_BT & has_left_T)
        return masked.replace(
            input_ids_BT=jnp.where(causal_B[:, None], clean_BT, masked.input_ids_BT),
            targets=Targets.of_first(clean_BT, weights_BT.astype(jnp.float32)),
            causal_B=causal_B,
        )


def is_causal(example_index_B: Array, share: float) -> jax.Array:
    """Return which examples n are causal, bool [B]: with ⌊(n + 1) a / b⌋ > ⌊n a / b⌋."""
    part = Fraction(share).limit_denominator(_DENOMINATOR)
    a, b = part.numerator, part.denominator
    place_B = jnp.asarray(example_index_B) % b
    return (place_B + 1) * a // b > place_B * a // b


@dataclasses.dataclass(frozen=True)
class MaskedNextToken(Objective):
    """Cross-entropy of the hidden tokens, each predicted at the position before it.

    Attributes:
        causal_share: Share of the rows that are causal instead, for `HybridText`.
    """

    causal_share: float

    corruptions = ('hybrid',)
    predicts_tokens = True

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'mlm': {}}

    def make_model(
        self, architecture: Architecture, compute: Compute, heads: Mapping[str, HeadOptions]
    ) -> Model:
        """Return the model; raises UserError for an encoder that cannot have causal rows."""
        if not architecture.prediction.shift:
            raise UserError(
                'objective mntp predicts a hidden token at the position before it; set '
                'model.prediction.shift=True'
            )
        if architecture.encoder != 'transformer' or architecture.convolution is not None:
            raise UserError(
                'objective mntp has causal rows, but the encoder of this architecture sees later '
                "tokens; choose an architecture with encoder='transformer' and no convolution"
            )
        return Model(architecture, compute, heads)

    def terms(self, output: ModelOutput, clean: Rows) -> Terms:
        """Return `mntp_loss` (nats per masked token), `mntp_accuracy` and `mntp_empty`."""
        return _terms('mntp', output, causal=False)


class NextToken(Objective):
    """Cross-entropy of every token of the causal rows, given the tokens before it."""

    corruptions = ('hybrid',)
    companions = ('mntp',)
    is_generative = True
    predicts_tokens = True

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'mlm': {}}

    def terms(self, output: ModelOutput, clean: Rows) -> Terms:
        """Return the terms `ntp_loss` (nats per token), `ntp_accuracy` and `ntp_empty`."""
        return _terms('ntp', output, causal=True)


def _terms(name: str, output: ModelOutput, causal: bool) -> Terms:
    """Return the terms of the rows that are causal, or of the others."""
    rows = output.rows
    assert rows.causal_B is not None
    _, ids_BP, weights_BP = rows.chosen
    is_own_B1 = (jnp.asarray(rows.causal_B) == causal)[:, None]
    own_BP = weights_BP * is_own_B1
    own = rows.replace(attention_mask_BT=rows.attention_mask_BT * is_own_B1)
    terms = prediction_terms(name, output.heads['mlm'], ids_BP, own_BP)
    return terms | empty_rows(name, own_BP, own)

"""Objectives on pairs of segments: next sentence prediction and sentence order prediction.

Next sentence prediction: Devlin et al. 2019, section 3.1. Sentence order prediction: Lan et al.
2020 (ALBERT, arXiv 1909.11942), section 3.1.
"""

from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp

from bert_jax.averages import Terms, weighted_sum
from bert_jax.models.model import HeadOptions, ModelOutput
from bert_jax.models.rows import Rows
from bert_jax.objectives import Objective
from bert_jax.objectives.mlm import prediction_terms


class PairClassification(Objective):
    """Cross-entropy of the class of a pair of segments, read from the pooled state.

    Attributes:
        term: Name of the head, and prefix of the terms.
    """

    corruptions = ('masked', 'replaced', 'edited')
    term: ClassVar[str]

    def heads(self) -> Mapping[str, HeadOptions]:
        return {self.term: {}}

    def terms(self, output: ModelOutput, clean: Rows) -> Terms:
        """Return `<term>_loss` (nats per pair), `<term>_accuracy` and `<term>_negatives`.

        `<term>_negatives` is the share of pairs of class 1. Packed rows have pairs [B, S]. Rows
        without tokens and slots without a pair have weight 0.
        """
        labels_X = clean.labels[self.batch_keys[0]]
        weights_X = jnp.any(clean.is_token_BT, axis=1)
        if clean.first_positions_BS is not None:
            weights_X = jnp.asarray(clean.first_positions_BS) >= 0
        terms = prediction_terms(self.term, output.heads[self.term], labels_X, weights_X)
        return terms | {f'{self.term}_negatives': weighted_sum(labels_X, weights_X)}


class NextSentencePrediction(PairClassification):
    """Does segment B follow segment A in the text? 0 = it does, 1 = it is a random segment."""

    term = 'nsp'
    batch_keys = ('next_sentence_label',)


class SentenceOrderPrediction(PairClassification):
    """Are two neighboring segments in their original order? 0 = they are, 1 = they are swapped."""

    term = 'sop'
    batch_keys = ('sentence_order_label',)

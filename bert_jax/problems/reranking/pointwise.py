"""Losses on each document, or on each document and the first one of its query."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from bert_jax.averages import Term, weighted_sum
from bert_jax.problems.reranking.base import RankingLoss, ScoreBatch, mean_over_documents


@dataclasses.dataclass(frozen=True)
class Binary(RankingLoss):
    """Cross-entropy of a label from 0 to 1 for each document, its probability of relevance.

    Attributes:
        positive_weight: factor of the loss of relevance, against many documents of label 0.
    """

    positive_weight: float = 1.0

    min_documents: ClassVar[int] = 1
    activation: ClassVar[str] = 'sigmoid'

    def why_unusable(self, labels: tuple[float, ...]) -> str:
        outside = [label for label in labels if not 0 <= label <= 1]
        return f'the label {outside[0]:g}, must be from 0 to 1' if outside else ''

    def __call__(self, batch: ScoreBatch) -> Term:
        labels_BN = jnp.asarray(batch.labels_BN)
        relevant_BN = self.positive_weight * labels_BN * jax.nn.softplus(-batch.logits_BN)
        other_BN = (1 - labels_BN) * jax.nn.softplus(batch.logits_BN)
        return mean_over_documents(relevant_BN + other_BN, batch)


@dataclasses.dataclass(frozen=True)
class SquaredError(RankingLoss):
    """Squared difference of the logit and the label of each document."""

    min_documents: ClassVar[int] = 1

    def __call__(self, batch: ScoreBatch) -> Term:
        return mean_over_documents(jnp.square(batch.logits_BN - batch.labels_BN), batch)


@dataclasses.dataclass(frozen=True)
class PointwiseMarginMSE(RankingLoss):
    """Squared difference of margins: first minus other document, of logits and of a teacher.

    The labels are the teacher's logits (Hofstätter et al. 2020, equation 3).
    """

    def __call__(self, batch: ScoreBatch) -> Term:
        margin_BN = batch.logits_BN[:, :1] - batch.logits_BN
        target_BN = batch.labels_BN[:, :1] - batch.labels_BN
        is_other_BN = jnp.asarray(batch.is_present_BN).at[:, 0].set(False)
        return weighted_sum(jnp.square(margin_BN - target_BN), is_other_BN)

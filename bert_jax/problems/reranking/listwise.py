"""Losses on the order of all documents of a query."""

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp

from bert_jax.averages import Term, weighted_sum
from bert_jax.problems.reranking.base import (
    RankingLoss,
    ScoreBatch,
    mean_over_documents,
    mean_over_queries,
)

_ABSENT = -1e9  # logit of a document that a query lacks; finite, so that its gradient is not NaN
_LONGEST_EXPONENT = 126  # of a weight 2^n in float32
_HIGHEST_GRADE = 64  # gains 2^grade are added up in float32


@dataclasses.dataclass(frozen=True)
class ListNet(RankingLoss):
    """Cross-entropy of the softmax of the logits to that of the labels (Cao et al. 2007, 4.2)."""

    def __call__(self, batch: ScoreBatch) -> Term:
        logits_BN, labels_BN = _masked(batch)
        target_BN = jax.nn.softmax(labels_BN)
        log_p_BN = jnp.where(batch.is_present_BN, jax.nn.log_softmax(logits_BN), 0)
        return mean_over_queries(-(target_BN * log_p_BN).sum(-1), batch)


@dataclasses.dataclass(frozen=True)
class ListMLE(RankingLoss):
    """Negative log likelihood of the order of the documents (Xia et al. 2008, section 4).

    Attributes:
        given_order: whether the documents are in the best order; else their labels order them,
            equal ones as given.
    """

    given_order: bool = False

    def __call__(self, batch: ScoreBatch) -> Term:
        ordered, is_present_BN = self._ordered(batch)
        # log Σ exp of the document and all later ones, from the end.
        total_BN = jax.lax.cumlogsumexp(ordered, axis=1, reverse=True)
        loss_BN = jnp.where(is_present_BN, total_BN - ordered, 0)
        return mean_over_queries((self.weights(is_present_BN) * loss_BN).sum(-1), batch)

    def weights(self, is_present_BN: jax.Array) -> jax.Array:
        """Return the weight of each rank, [B, N]."""
        return jnp.ones_like(is_present_BN, jnp.float32)

    def _ordered(self, batch: ScoreBatch) -> tuple[jax.Array, jax.Array]:
        """Return logits in the best order, absent documents last, and which are present."""
        logits_BN, labels_BN = _masked(batch)
        if self.given_order:
            labels_BN = jnp.where(batch.is_present_BN, 0, _ABSENT)
        order_BN = jnp.argsort(-labels_BN, axis=1, stable=True)
        is_present_BN = jnp.take_along_axis(jnp.asarray(batch.is_present_BN), order_BN, axis=1)
        return jnp.take_along_axis(logits_BN, order_BN, axis=1), is_present_BN


@dataclasses.dataclass(frozen=True)
class PositionListMLE(ListMLE):
    """ListMLE whose rank r of n has a weight ∝ 2^(n − r) − 1 (Lan et al. 2014, section 4)."""

    def weights(self, is_present_BN: jax.Array) -> jax.Array:
        number_B1 = is_present_BN.sum(-1, keepdims=True)
        rank_BN = jnp.cumsum(is_present_BN, axis=1)
        shift_B1 = jnp.maximum(number_B1 - _LONGEST_EXPONENT, 0)
        weight_BN = jnp.exp2(number_B1 - rank_BN - shift_B1.astype(jnp.float32))
        weight_BN = (weight_BN - jnp.exp2(-shift_B1.astype(jnp.float32))) * is_present_BN
        return weight_BN / jnp.maximum(weight_BN.sum(-1, keepdims=True), 1e-30)


@dataclasses.dataclass(frozen=True)
class _Pairwise(RankingLoss, abc.ABC):
    """Base class: −log2 of the probability that the better of two documents has the higher score.

    It is the mean over all pairs of the batch with different labels.
    """

    needs_order: ClassVar[bool] = True

    @abc.abstractmethod
    def pair_weights(self, gain_BN: jax.Array, rank_BN: jax.Array) -> jax.Array:
        """Return the weights of pairs of documents, [B, N, N].

        Args:
            gain_BN: (2^label − 1) / the best DCG of the query.
            rank_BN: rank by score, from 1, float32.
        """

    def is_kept(self, rank_BN: jax.Array) -> jax.Array:
        """Return which pairs are learned from, bool [B, N, N]; all by default."""
        return jnp.ones((*rank_BN.shape, rank_BN.shape[-1]), bool)

    def __call__(self, batch: ScoreBatch) -> Term:
        logits_BN, labels_BN = _masked(batch)
        order_BN = jnp.argsort(-logits_BN, axis=1, stable=True)
        rank_BN = jnp.argsort(order_BN, axis=1).astype(jnp.float32) + 1
        is_present_BN = jnp.asarray(batch.is_present_BN)
        is_better_BNN = (labels_BN[:, :, None] > labels_BN[:, None]) & is_present_BN[:, None]
        gain_BN = self._gains(jnp.where(is_present_BN, jnp.maximum(labels_BN, 0), 0))
        log_p_BNN = jax.nn.log_sigmoid(logits_BN[:, :, None] - logits_BN[:, None]) / math.log(2)
        chosen_BNN = is_better_BNN & self.is_kept(rank_BN)
        loss_BNN = jnp.where(chosen_BNN, -log_p_BNN * self.pair_weights(gain_BN, rank_BN), 0)
        return weighted_sum(loss_BNN, chosen_BNN)

    def _gains(self, labels_BN: jax.Array) -> jax.Array:
        """Return 2^label − 1, divided by the DCG of the best order."""
        best_BN = -jnp.sort(-labels_BN, axis=1)
        rank_N = jnp.arange(1, labels_BN.shape[1] + 1)
        in_ideal_N = rank_N <= self.depth(labels_BN.shape[1])
        ideal_B1 = (_gain(best_BN) * in_ideal_N / _discount(rank_N)).sum(-1, keepdims=True)
        return _gain(labels_BN) / jnp.maximum(ideal_B1, 1e-10)

    def depth(self, num_documents: int) -> int:
        """Return how many documents of the best order count; all by default."""
        return num_documents


@dataclasses.dataclass(frozen=True)
class RankNet(_Pairwise):
    """All pairs with the same weight (Burges et al. 2005, section 3)."""

    def pair_weights(self, gain_BN: jax.Array, rank_BN: jax.Array) -> jax.Array:
        return jnp.ones((*rank_BN.shape, rank_BN.shape[-1]))


@dataclasses.dataclass(frozen=True)
class Lambda(_Pairwise):
    """Pairs weighted by what exchanging them changes of nDCG (Wang et al. 2018, section 4).

    Attributes:
        weighting: key of WEIGHTINGS.
        depth_of_ndcg: pairs count if one of them is among so many documents of the highest scores;
            0: all pairs.
    """

    weighting: str = 'ndcg_2pp'
    depth_of_ndcg: int = 0

    def why_unusable(self, labels: tuple[float, ...]) -> str:
        outside = [label for label in labels if not 0 <= label <= _HIGHEST_GRADE]
        return (
            f'the label {outside[0]:g}, must be a relevance from 0 to {_HIGHEST_GRADE}, because '
            'its gain is 2^label − 1'
            if outside
            else ''
        )

    def pair_weights(self, gain_BN: jax.Array, rank_BN: jax.Array) -> jax.Array:
        difference_BNN = jnp.abs(gain_BN[:, :, None] - gain_BN[:, None])
        return difference_BNN * WEIGHTINGS[self.weighting](rank_BN)

    def is_kept(self, rank_BN: jax.Array) -> jax.Array:
        is_first_BN = rank_BN <= self.depth(rank_BN.shape[1])
        return is_first_BN[:, :, None] | is_first_BN[:, None]

    def depth(self, num_documents: int) -> int:
        return self.depth_of_ndcg or num_documents


@dataclasses.dataclass(frozen=True)
class ApproximateRank(RankingLoss):
    """Squared difference of rank and expected rank, discounted (Schlatt et al. 2025, ADR-MSE).

    The expected rank is 1 + Σ σ(other logit − own logit); documents of equal labels share the mean
    of their ranks.
    """

    def __call__(self, batch: ScoreBatch) -> Term:
        logits_BN, labels_BN = _masked(batch)
        present_BNN = jnp.asarray(batch.is_present_BN)[:, None]
        is_other_NN = ~jnp.eye(logits_BN.shape[1], dtype=bool)
        above_BNN = jax.nn.sigmoid(logits_BN[:, None] - logits_BN[:, :, None])
        expected_BN = 1 + jnp.where(present_BNN & is_other_NN, above_BNN, 0).sum(-1)
        better_BN = ((labels_BN[:, None] > labels_BN[:, :, None]) & present_BNN).sum(-1)
        equal_BN = ((labels_BN[:, None] == labels_BN[:, :, None]) & present_BNN).sum(-1)
        rank_BN = better_BN + (equal_BN + 1) / 2
        return mean_over_documents(jnp.square(rank_BN - expected_BN) / _discount(rank_BN), batch)


def _of_distance(rank_BN: jax.Array) -> jax.Array:
    """|1 / D(δ) − 1 / D(δ + 1)| of the distance δ of two ranks."""
    distance_BNN = jnp.maximum(jnp.abs(rank_BN[:, :, None] - rank_BN[:, None]), 1)
    return 1 / _discount(distance_BNN) - 1 / _discount(distance_BNN + 1)


def _of_ranks(rank_BN: jax.Array) -> jax.Array:
    """|1 / D(r) − 1 / D(r′)| of two ranks."""
    value_BN = 1 / _discount(rank_BN)
    return jnp.abs(value_BN[:, :, None] - value_BN[:, None])


# Name → weights of pairs, [B, N, N], from ranks by score.
WEIGHTINGS: dict[str, Callable[[jax.Array], jax.Array]] = {
    'lambda_rank': _of_ranks,
    'ndcg_2': _of_distance,
    'ndcg_2pp': lambda rank_BN: 10 * _of_distance(rank_BN) + _of_ranks(rank_BN),
}


def _masked(batch: ScoreBatch) -> tuple[jax.Array, jax.Array]:
    """Logits and labels, very low for documents that a query lacks."""
    present_BN = batch.is_present_BN
    logits_BN = jnp.where(present_BN, batch.logits_BN, _ABSENT)
    return logits_BN, jnp.where(present_BN, batch.labels_BN, _ABSENT)


def _gain(labels_BN: jax.Array) -> jax.Array:
    return jnp.exp2(labels_BN) - 1


def _discount(rank: jax.Array) -> jax.Array:
    """D(r) = log2(1 + r)."""
    return jnp.log2(1.0 + rank)

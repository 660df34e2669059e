"""Losses on pairs of texts with a score or with 1 (similar) and 0 (not similar)."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from bert_jax.labels.examples import TextGroup
from bert_jax.problems.embedding.base import EmbeddingLoss, VectorBatch, cosine, dot, normalize
from bert_jax.types import Array


@dataclasses.dataclass(frozen=True)
class _ScoredPairs(EmbeddingLoss):
    """Base class: one score for each pair."""

    reads: ClassVar[tuple[str, ...]] = ('scores',)

    def why_unusable(self, example: TextGroup) -> str:
        number = len(example.scores)
        return '' if number == 1 else f'{number} scores, but a pair has one'


@dataclasses.dataclass(frozen=True)
class Cosine(_ScoredPairs):
    """The squared difference of cosine and score (Reimers and Gurevych 2019, section 3).

    Attributes:
        highest_score: scores are divided by it.
    """

    highest_score: float = 1.0

    def why_unusable(self, example: TextGroup) -> str:
        if reason := super().why_unusable(example):
            return reason
        score = example.scores[0] / self.highest_score
        if abs(score) <= 1:
            return ''
        return (
            f'the score {example.scores[0]:g}, but a cosine is at most 1; set '
            'problem.highest_score to the highest score of the scale'
        )

    def __call__(self, batch: VectorBatch) -> jax.Array:
        cosine_B = cosine(batch.vectors_BND[:, 0], batch.vectors_BND[:, 1])
        return jnp.mean(jnp.square(cosine_B - batch.scores_BK[:, 0] / self.highest_score))


@dataclasses.dataclass(frozen=True)
class CoSENT(_ScoredPairs):
    """The order of the similarities of pairs: log(1 + Σ exp(scale · (s_a − s_b))).

    The sum is over all two pairs a, b of the batch in which a has the lower score; only the order
    of the scores matters. It is one number for the batch, not a mean (Su 2022, kexue.fm 8847; Huang
    et al. 2024).

    Attributes:
        scale: factor of the differences.
    """

    scale: float = 20.0

    min_examples = 2

    def similarity(self, first_BD: jax.Array, second_BD: jax.Array) -> jax.Array:
        """Return the similarity of each pair, [B]: the cosine."""
        return cosine(first_BD, second_BD)

    def __call__(self, batch: VectorBatch) -> jax.Array:
        similarity_B = self.similarity(batch.vectors_BND[:, 0], batch.vectors_BND[:, 1])
        score_B = jnp.asarray(batch.scores_BK[:, 0])
        is_lower_BB = score_B[:, None] < score_B[None]
        logits_BB = self.scale * (similarity_B[:, None] - similarity_B[None])
        logits_X = jnp.where(is_lower_BB, logits_BB, -jnp.inf).ravel()
        return jax.nn.logsumexp(jnp.concatenate([jnp.zeros(1), logits_X]))


@dataclasses.dataclass(frozen=True)
class AnglE(CoSENT):
    """CoSENT with the angle of complex numbers as similarity (Li and Li 2024, section 3.4).

    The similarity of unit vectors x, y is |x · y + x″ · y′ − x′ · y″| with the halves x′, x″ of x.
    """

    def similarity(self, first_BD: jax.Array, second_BD: jax.Array) -> jax.Array:
        """Return the similarity of each pair, [B]; it is not symmetric."""
        first_B2D, second_B2D = (_halves(normalize(one)) for one in (first_BD, second_BD))
        cosine_B = jnp.sum(first_B2D * second_B2D, axis=(1, 2))
        sine_B = dot(first_B2D[:, 1], second_B2D[:, 0]) - dot(first_B2D[:, 0], second_B2D[:, 1])
        return jnp.abs(cosine_B + sine_B)


def _halves(x_BD: jax.Array) -> jax.Array:
    """Split vectors into halves, [B, 2, ⌈D / 2⌉]; an odd size gets one more 0."""
    padded_BD = jnp.pad(x_BD, [(0, 0), (0, x_BD.shape[1] % 2)])
    return padded_BD.reshape(len(x_BD), 2, -1)


@dataclasses.dataclass(frozen=True)
class Contrastive(_ScoredPairs):
    """½ d² for similar pairs, ½ max(0, margin − d)² for others, with d = 1 − cosine.

    Hadsell et al. 2006, equation 4.

    Attributes:
        margin: pairs that are not similar have no loss beyond this distance.
    """

    margin: float = 0.5

    def why_unusable(self, example: TextGroup) -> str:
        if reason := super().why_unusable(example):
            return reason
        is_binary = example.scores[0] in (0, 1)
        return '' if is_binary else f'the score {example.scores[0]:g}, must be 0 or 1'

    def __call__(self, batch: VectorBatch) -> jax.Array:
        distance_B, is_similar_B = self._distances(batch)
        hinge_B = jax.nn.relu(self.margin - distance_B)
        chosen_B = jnp.where(is_similar_B, distance_B, hinge_B)
        return 0.5 * jnp.mean(jnp.square(chosen_B))

    def _distances(self, batch: VectorBatch) -> tuple[jax.Array, Array]:
        """Return the distance of each pair, and whether it is similar, bool [B]."""
        distance_B = 1 - cosine(batch.vectors_BND[:, 0], batch.vectors_BND[:, 1])
        return distance_B, batch.scores_BK[:, 0] > 0.5


@dataclasses.dataclass(frozen=True)
class OnlineContrastive(Contrastive):
    """Σ d² and Σ max(0, margin − d)² over the hard pairs of the batch.

    A pair that is not similar is hard if it is nearer than the farthest similar pair, a similar
    pair if it is farther than the nearest other pair; without pairs of the other kind, if it is
    nearer or farther than the mean of its own kind. It is a sum, not a mean
    (sentence-transformers, OnlineContrastiveLoss).
    """

    def __call__(self, batch: VectorBatch) -> jax.Array:
        distance_B, is_similar_B = self._distances(batch)
        farthest = _farthest(distance_B, is_similar_B, ~is_similar_B)
        nearest = -_farthest(-distance_B, ~is_similar_B, is_similar_B)
        is_hard_B = jnp.where(is_similar_B, distance_B > nearest, distance_B < farthest)
        hinge_B = jax.nn.relu(self.margin - distance_B)
        chosen_B = jnp.where(is_similar_B, distance_B, hinge_B)
        return jnp.sum(jnp.square(chosen_B) * is_hard_B)


def _farthest(distance_B: jax.Array, chosen_B: Array, others_B: Array) -> jax.Array:
    """Return the largest distance of the chosen pairs; without any, the mean of the others."""
    largest = jnp.max(distance_B, where=jnp.asarray(chosen_B), initial=-jnp.inf)
    mean = jnp.mean(distance_B, where=jnp.asarray(others_B))
    return jnp.where(jnp.any(jnp.asarray(chosen_B)), largest, mean)

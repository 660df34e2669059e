"""Losses on triplets: given, or made of the texts of a batch by their classes."""

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.problems.embedding.base import EmbeddingLoss, VectorBatch, cosine

_TINY = 1e-16  # smallest squared distance; a hinge above it counts as a triplet with a loss


def _euclidean(first_XD: jax.Array, second_XD: jax.Array) -> jax.Array:
    """Return the norm of each difference; its gradient at 0 is 0."""
    square_X = jnp.sum(jnp.square(first_XD - second_XD), axis=-1)
    is_zero_X = square_X < _TINY
    return jnp.where(is_zero_X, 0.0, jnp.sqrt(jnp.where(is_zero_X, 1.0, square_X)))


def _manhattan(first_XD: jax.Array, second_XD: jax.Array) -> jax.Array:
    return jnp.sum(jnp.abs(first_XD - second_XD), axis=-1)


def _one_minus_cosine(first_XD: jax.Array, second_XD: jax.Array) -> jax.Array:
    return 1 - cosine(first_XD, second_XD)


DISTANCES = {'euclidean': _euclidean, 'manhattan': _manhattan, 'cosine': _one_minus_cosine}


@dataclasses.dataclass(frozen=True)
class Triplet(EmbeddingLoss):
    """max(0, d(query, document) − d(query, other document) + margin).

    Schroff et al. 2015, section 3.1. On normalized vectors the Euclidean distance is at most 2, so
    a margin of 5 is never reached: set the margin with the distance.

    Attributes:
        distance: 'euclidean', 'manhattan' or 'cosine' (1 − cosine).
        margin: how much farther the other document must be.
    """

    distance: str = 'euclidean'
    margin: float = 5.0

    min_texts = 3
    max_texts = 3

    def __call__(self, batch: VectorBatch) -> jax.Array:
        query_BD, own_BD, other_BD = jnp.moveaxis(batch.vectors_BND, 1, 0)
        distance = DISTANCES[self.distance]
        gap_B = distance(query_BD, own_BD) - distance(query_BD, other_BD)
        return jnp.mean(jax.nn.relu(gap_B + self.margin))


class _Distances(NamedTuple):
    """Distances between the texts of a batch.

    Attributes:
        distance_BB: float32.
        is_positive_BB: bool, whether two different texts have the same class.
        is_negative_BB: bool, whether two texts have different classes.
    """

    distance_BB: jax.Array
    is_positive_BB: jax.Array
    is_negative_BB: jax.Array


@dataclasses.dataclass(frozen=True)
class _ByClass(EmbeddingLoss):
    """Base class: texts with classes, in batches of pairs of the same class.

    Attributes:
        distance: 'euclidean' or 'cosine'.
    """

    distance: str = 'euclidean'

    reads: ClassVar[tuple[str, ...]] = ('label',)
    min_texts = 1
    max_texts = 1
    min_examples = 4
    batches = 'pairs_of_classes'

    def distances(self, batch: VectorBatch) -> _Distances:
        """Compare all texts of a batch."""
        vectors_BD, class_B = batch.vectors_BND[:, 0], jnp.asarray(batch.class_B)
        is_same_BB = class_B[:, None] == class_B[None]
        is_self_BB = jnp.eye(len(class_B), dtype=bool)
        distance_BB = DISTANCES[self.distance](vectors_BD[:, None], vectors_BD[None])
        return _Distances(distance_BB, is_same_BB & ~is_self_BB, ~is_same_BB)


@dataclasses.dataclass(frozen=True)
class BatchHard(_ByClass):
    """Each text with the farthest text of its class and the nearest of another class.

    mean(max(0, d(farthest) − d(nearest) + margin)) (Hermans et al. 2017, equation 5).

    Attributes:
        margin: how much farther the other class must be.
    """

    margin: float = 5.0

    def __call__(self, batch: VectorBatch) -> jax.Array:
        return jnp.mean(jax.nn.relu(self.gaps(batch) + self.margin))

    def gaps(self, batch: VectorBatch) -> jax.Array:
        """Return d(farthest of the class) − d(nearest of another class) of each text, [B]."""
        distance_BB, is_positive_BB, is_negative_BB = self.distances(batch)
        farthest_B = jnp.max(distance_BB * is_positive_BB, axis=1)
        largest_B1 = jnp.max(distance_BB, axis=1, keepdims=True)
        nearest_B = jnp.min(distance_BB + largest_B1 * ~is_negative_BB, axis=1)
        return farthest_B - nearest_B


@dataclasses.dataclass(frozen=True)
class BatchHardSoft(_ByClass):
    """BatchHard with log(1 + exp(gap)) instead of a margin (Hermans et al. 2017, section 2)."""

    def __call__(self, batch: VectorBatch) -> jax.Array:
        return jnp.mean(jax.nn.softplus(BatchHard(self.distance).gaps(batch)))


@dataclasses.dataclass(frozen=True)
class BatchAll(_ByClass):
    """The mean hinge of all triplets of the batch whose hinge is above 0.

    Hermans et al. 2017, equation 6, with the mean of its section 4.1.

    Attributes:
        margin: how much farther the other class must be.
    """

    margin: float = 5.0

    def __call__(self, batch: VectorBatch) -> jax.Array:
        distance_BB, is_positive_BB, is_negative_BB = self.distances(batch)
        hinge_BBB = jax.nn.relu(distance_BB[:, :, None] - distance_BB[:, None, :] + self.margin)
        is_triplet_BBB = is_positive_BB[:, :, None] & is_negative_BB[:, None, :]
        hinge_BBB = jnp.where(is_triplet_BBB, hinge_BBB, 0)
        return jnp.sum(hinge_BBB) / jnp.maximum(jnp.sum(hinge_BBB > _TINY), 1)


@dataclasses.dataclass(frozen=True)
class BatchSemiHard(_ByClass):
    """Each pair of a class with the nearest negative that is farther than the pair.

    If no negative is farther, the farthest negative is used. The mean is over pairs (Schroff et al.
    2015, section 3.2).

    Attributes:
        margin: how much farther the other class must be.
    """

    margin: float = 5.0

    def __call__(self, batch: VectorBatch) -> jax.Array:
        distance_BB, is_positive_BB, is_negative_BB = self.distances(batch)
        is_farther_BBB = distance_BB[:, None, :] > distance_BB[:, :, None]
        is_farther_BBB &= is_negative_BB[:, None, :]
        outside_BBB = jnp.min(
            distance_BB[:, None, :], axis=2, where=is_farther_BBB, initial=jnp.inf
        )
        inside_B = jnp.max(distance_BB, axis=1, where=is_negative_BB, initial=-jnp.inf)
        inside_B = jnp.where(is_negative_BB.any(1), inside_B, 0)
        negative_BB = jnp.where(is_farther_BBB.any(2), outside_BBB, inside_B[:, None])
        hinge_BB = jax.nn.relu(distance_BB - negative_BB + self.margin) * is_positive_BB
        return jnp.sum(hinge_BB) / jnp.maximum(jnp.sum(is_positive_BB), 1)

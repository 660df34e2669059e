"""Losses that learn from the vectors or the scores of a teacher."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from bert_jax.errors import UserError
from bert_jax.labels.examples import TextGroup
from bert_jax.problems.embedding.base import EmbeddingLoss, VectorBatch, cosine, dot

_TINY = 1e-24  # smallest squared distance; below it the gradient is 0


def _one_minus_cosine(own_XD: jax.Array, teacher_XD: jax.Array) -> jax.Array:
    return 1 - cosine(own_XD, teacher_XD)


def _mean_square(own_XD: jax.Array, teacher_XD: jax.Array) -> jax.Array:
    return jnp.mean(jnp.square(own_XD - teacher_XD), axis=-1)


def _norm(own_XD: jax.Array, teacher_XD: jax.Array) -> jax.Array:
    square_X = jnp.sum(jnp.square(own_XD - teacher_XD), axis=-1)
    return jnp.sqrt(jnp.maximum(square_X, _TINY))


TARGETS = {'cosine': _one_minus_cosine, 'mse': _mean_square, 'l2': _norm}


@dataclasses.dataclass(frozen=True)
class TeacherVectors(EmbeddingLoss):
    """The distance of each text's vector from the vector of a teacher.

    Kim et al. 2023 (EmbedDistill), equation 8; 'mse' is Reimers and Gurevych 2020, equation 1.

    Attributes:
        target: 'cosine' (1 − cosine), 'mse' (the mean over the dimensions), or 'l2' (the norm).
    """

    target: str = 'cosine'

    reads: ClassVar[tuple[str, ...]] = ('vectors',)
    min_texts = 1
    max_texts = None

    def __call__(self, batch: VectorBatch) -> jax.Array:
        own, teacher = batch.vectors_BND.shape[-1], batch.teacher_BNV.shape[-1]
        if own != teacher:
            raise UserError(
                f'data.columns.vectors has vectors of {teacher} numbers, but those of the model '
                f'have {own}'
            )
        return jnp.mean(TARGETS[self.target](batch.vectors_BND, jnp.asarray(batch.teacher_BNV)))


@dataclasses.dataclass(frozen=True)
class MarginMSE(EmbeddingLoss):
    """The squared error of the margin between the own document and each other document.

    Margins are differences of dot products; those of the teacher are given as one score for each
    document, whose differences are taken, or as one margin for each other document (Hofstätter et
    al. 2020, equation 8). Scores must be logits: sigmoids squeeze the margins.
    """

    reads: ClassVar[tuple[str, ...]] = ('scores',)
    min_texts = 3
    max_texts = None

    def why_unusable(self, example: TextGroup) -> str:
        scores, documents = len(example.scores), len(example.texts) - 1
        if scores in (documents - 1, documents):
            return ''
        return f'{scores} scores, must be {documents} scores or {documents - 1} margins'

    def compared_by(self) -> str:
        return 'dot'

    def __call__(self, batch: VectorBatch) -> jax.Array:
        own_BM = _scores(batch)
        scores_BK = jnp.asarray(batch.scores_BK)
        if scores_BK.shape[1] == own_BM.shape[1]:
            scores_BK = scores_BK[:, :1] - scores_BK[:, 1:]
        return jnp.mean(jnp.square(own_BM[:, :1] - own_BM[:, 1:] - scores_BK))


@dataclasses.dataclass(frozen=True)
class DistillKL(EmbeddingLoss):
    """T² · KL(softmax(teacher / T) ‖ softmax(dot products / T)) over the documents of a query.

    Hinton et al. 2015, section 2; Lin et al. 2020 for rankings.

    Attributes:
        temperature: T.
    """

    temperature: float = 1.0

    reads: ClassVar[tuple[str, ...]] = ('scores',)
    min_texts = 3
    max_texts = None

    def why_unusable(self, example: TextGroup) -> str:
        scores, documents = len(example.scores), len(example.texts) - 1
        return '' if scores == documents else f'{scores} scores, must be {documents}'

    def compared_by(self) -> str:
        return 'dot'

    def __call__(self, batch: VectorBatch) -> jax.Array:
        log_p_BM = jax.nn.log_softmax(_scores(batch) / self.temperature)
        log_q_BM = jax.nn.log_softmax(jnp.asarray(batch.scores_BK) / self.temperature)
        divergence_B = jnp.sum(jnp.exp(log_q_BM) * (log_q_BM - log_p_BM), axis=1)
        return self.temperature**2 * jnp.mean(divergence_B)


def _scores(batch: VectorBatch) -> jax.Array:
    """Return the dot products of each query with its documents, [B, N − 1]."""
    return dot(batch.vectors_BND[:, :1], batch.vectors_BND[:, 1:])

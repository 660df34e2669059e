"""Losses on the scores of late interaction: contrastive, and learned from the scores of a teacher.

Each has the scores of `problem.scoring`: 'maxsim', 'meanmaxsim' or 'xtr'.
"""

import abc
import dataclasses
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.labels.examples import TextGroup
from bert_jax.models import late_interaction
from bert_jax.models.late_interaction import TokenVectors
from bert_jax.problems.embedding.base import LossOptions
from bert_jax.problems.embedding.in_batch import Candidates, accuracy_of
from bert_jax.types import Array


class LateBatch(NamedTuple):
    """The vectors of the tokens of B queries with N − 1 documents each, and what is known of them.

    Attributes:
        queries: vectors [B, L, E].
        documents: vectors [B, N − 1, K, E]; of documents that an example lacks, without tokens.
        is_present_BN: bool; False for texts that an example lacks.
        texts_BN2: int32; equal texts have equal numbers.
        scores_BK: float32, the scores of a teacher; K is 0 without scores.
    """

    queries: TokenVectors
    documents: TokenVectors
    is_present_BN: Array
    texts_BN2: Array
    scores_BK: Array


# Function of queries [B], documents of all [M] or of each query [B, N], and `problem.top_k`.
ScoreFunction = Callable[[TokenVectors, TokenVectors, int], jax.Array]


def _in_order(values_BNX: jax.Array) -> jax.Array:
    """Return the values of all documents [M, …]: of own documents, then of hard negatives."""
    rest_MX = values_BNX[:, 1:].reshape(-1, *values_BNX.shape[2:])
    return jnp.concatenate([values_BNX[:, 0], rest_MX])


class Scoring(NamedTuple):
    """How queries and documents are compared.

    Attributes:
        of_all: gives the scores of queries with documents [M], [B, M].
        of_own: gives the scores of queries with their own documents [B, N], [B, N].
        similarity: what a search with the trained model compares by.
    """

    of_all: ScoreFunction
    of_own: ScoreFunction
    similarity: str = 'maxsim'


def _all(queries: TokenVectors, documents: TokenVectors, top_k: int) -> jax.Array:
    return late_interaction.max_similarities(queries, documents)


def _own(queries: TokenVectors, documents: TokenVectors, top_k: int) -> jax.Array:
    return late_interaction.own_max_similarities(queries, documents)


def _mean(function: ScoreFunction) -> ScoreFunction:
    """Divide scores by the number of tokens of the query."""

    def mean(queries: TokenVectors, documents: TokenVectors, top_k: int) -> jax.Array:
        number_B1 = late_interaction.number_of_tokens(queries)[:, None]
        return function(queries, documents, top_k) / number_B1

    return mean


def _own_of_retrieved(queries: TokenVectors, documents: TokenVectors, top_k: int) -> jax.Array:
    """The scores of XTR with the own documents; tokens are found among those of all queries."""
    number, others = documents.has_vector_XT.shape[:2]
    flat = TokenVectors(*(values.reshape(-1, *values.shape[2:]) for values in documents))
    scores_BX = late_interaction.retrieved_similarities(queries, flat, top_k)
    scores_BBN = scores_BX.reshape(number, number, others)
    own_BN: jax.Array = scores_BBN[jnp.arange(number), jnp.arange(number)]
    return own_BN


# `problem.scoring` → the scores.
SCORINGS: dict[str, Scoring] = {
    'maxsim': Scoring(_all, _own),
    'meanmaxsim': Scoring(_mean(_all), _mean(_own), 'meanmaxsim'),
    'xtr': Scoring(late_interaction.retrieved_similarities, _own_of_retrieved),
}


@dataclasses.dataclass(frozen=True)
class LateLoss(LossOptions):
    """A loss on the scores of a batch.

    Attributes:
        scoring: key of SCORINGS.
        top_k: of XTR: the number of tokens that a query token finds in the batch.
    """

    scoring: str = 'maxsim'
    top_k: int = 256

    training: ClassVar[str] = 'bert_jax.problems.late_interaction.problem:LateTraining'
    max_texts: ClassVar[int | None] = None

    def compared_by(self) -> str:
        return SCORINGS[self.scoring].similarity

    def all_scores(self, batch: LateBatch) -> jax.Array:
        """Return the scores of all queries with all documents, own documents first, [B, M]."""
        documents = (_in_order(values) for values in batch.documents)
        score = SCORINGS[self.scoring].of_all
        return score(batch.queries, TokenVectors(*documents), self.top_k)

    def own_scores(self, queries: TokenVectors, documents: TokenVectors) -> jax.Array:
        """Return the scores of queries with their own documents, [B, N]."""
        return SCORINGS[self.scoring].of_own(queries, documents, self.top_k)

    def accuracy(self, batch: LateBatch) -> jax.Array:
        """Return the share of queries whose own document has the best score of the batch."""
        candidates = Candidates.of(batch.texts_BN2, batch.is_present_BN)
        return accuracy_of(self.all_scores(batch), candidates)

    @abc.abstractmethod
    def __call__(self, batch: LateBatch) -> jax.Array:
        """Return the loss, a float32 scalar, the mean over the examples."""


@dataclasses.dataclass(frozen=True)
class Contrastive(LateLoss):
    """The cross-entropy of the own document among all documents of the batch.

    mean_i(log Σ_d exp(scale · s_id) − scale · s_ii), with hard negatives as further documents
    (Khattab and Zaharia 2020, section 3.4, with the negatives of the batch).

    Attributes:
        scale: the inverse of the temperature. A score is a sum over the tokens of a query, so 1 is
            sharp already; the mean ('meanmaxsim') needs about the number of these tokens.
        mask_equal_texts: see `Candidates.of`.
    """

    scale: float = 1.0
    mask_equal_texts: bool = True

    may_lack_texts: ClassVar[bool] = True
    min_examples: ClassVar[int] = 2

    def __call__(self, batch: LateBatch) -> jax.Array:
        candidates = Candidates.of(batch.texts_BN2, batch.is_present_BN, self.mask_equal_texts)
        logits_BM = self.scale * self.all_scores(batch)
        own_B = jnp.sum(jnp.where(candidates.is_own_BM, logits_BM, 0), axis=1)
        is_used_BM = candidates.is_own_BM | candidates.is_negative_BM
        total_B = jax.nn.logsumexp(jnp.where(is_used_BM, logits_BM, -jnp.inf), axis=1)
        return jnp.mean(total_B - own_B)


@dataclasses.dataclass(frozen=True)
class LateDistillKL(LateLoss):
    """T² · KL(softmax(teacher / T′) ‖ softmax(scores / T)) over the documents of a query.

    Santhanam et al. 2022 (ColBERTv2), section 3.2; Hinton et al. 2015, section 2, for T².

    Attributes:
        temperature: T.
        teacher_temperature: T′; None: T.
    """

    temperature: float = 1.0
    teacher_temperature: float | None = None

    reads: ClassVar[tuple[str, ...]] = ('scores',)
    min_texts: ClassVar[int] = 3

    def why_unusable(self, example: TextGroup) -> str:
        scores, documents = len(example.scores), len(example.texts) - 1
        return '' if scores == documents else f'{scores} scores, must be {documents}'

    def __call__(self, batch: LateBatch) -> jax.Array:
        scores_BN = self.own_scores(batch.queries, batch.documents)
        log_p_BN = jax.nn.log_softmax(scores_BN / self.temperature)
        teacher = self.teacher_temperature or self.temperature
        log_q_BN = jax.nn.log_softmax(jnp.asarray(batch.scores_BK) / teacher)
        divergence_B = jnp.sum(jnp.exp(log_q_BN) * (log_q_BN - log_p_BN), axis=1)
        return self.temperature**2 * jnp.mean(divergence_B)


@dataclasses.dataclass(frozen=True)
class LateMarginMSE(LateLoss):
    """The squared error of the margin between the own document and each other document.

    The teacher gives one score for each document, whose differences are taken, or one margin for
    each other document (Hofstätter et al. 2020, equation 8). XTR finds the tokens of a document
    among the documents at the same place of all queries.
    """

    reads: ClassVar[tuple[str, ...]] = ('scores',)
    min_texts: ClassVar[int] = 3

    def why_unusable(self, example: TextGroup) -> str:
        scores, documents = len(example.scores), len(example.texts) - 1
        if scores in (documents - 1, documents):
            return ''
        return f'{scores} scores, must be {documents} scores or {documents - 1} margins'

    def __call__(self, batch: LateBatch) -> jax.Array:
        columns = [
            TokenVectors(*(values[:, place : place + 1] for values in batch.documents))
            for place in range(batch.documents.has_vector_XT.shape[1])
        ]
        scores_BN = jnp.concatenate(
            [self.own_scores(batch.queries, column) for column in columns], axis=1
        )
        teacher_BK = jnp.asarray(batch.scores_BK)
        if teacher_BK.shape[1] == scores_BN.shape[1]:
            teacher_BK = teacher_BK[:, :1] - teacher_BK[:, 1:]
        return jnp.mean(jnp.square(scores_BN[:, :1] - scores_BN[:, 1:] - teacher_BK))

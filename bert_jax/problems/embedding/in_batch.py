"""Losses in which the documents of other queries of the batch are negatives."""

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.errors import UserError, unknown
from bert_jax.problems.embedding.base import (
    EmbeddingLoss,
    VectorBatch,
    cosines,
    normalize,
    products,
)
from bert_jax.types import Array

SIMILARITIES = {'cosine': cosines, 'dot': products}
DIRECTIONS = (
    'query_to_document',
    'query_to_query',
    'document_to_query',
    'document_to_document',
)
PARTITIONS = ('joint', 'per_direction')
HARDNESS = ('all', 'in_batch', 'hard')
MARGINS = ('absolute', 'relative')


class Candidates(NamedTuple):
    """The M documents of a batch of B queries, and which of them are negatives of each query.

    Own documents come first, in the order of their queries, then all hard negatives.

    Attributes:
        owner_M: the query of each document.
        is_own_BM: bool, whether a document is the one that answers the query.
        is_negative_BM: bool. Documents that an example lacks and false negatives are none.
        is_same_BB: bool, whether two queries have an equal query or an equal own document.
    """

    owner_M: jax.Array
    is_own_BM: jax.Array
    is_negative_BM: jax.Array
    is_same_BB: jax.Array

    @classmethod
    def of(
        cls, texts_BN2: Array, is_present_BN: Array, mask_equal_texts: bool = True
    ) -> 'Candidates':
        """Compare the texts of a batch.

        Args:
            texts_BN2, is_present_BN: as in `VectorBatch`, of queries (N = 0), own documents (1) and
                hard negatives (2, …).
            mask_equal_texts: whether documents are false negatives of a query if they have the text
                of its own document, or belong to an equal query.
        """
        number, num_texts = texts_BN2.shape[:2]
        owner_BN = jnp.broadcast_to(jnp.arange(number)[:, None], (number, num_texts))
        owner_M, text_M2 = documents_in_order(owner_BN), documents_in_order(texts_BN2)
        is_positive_M = jnp.arange(len(owner_M)) < number
        is_own_BM = jnp.eye(number, len(owner_M), dtype=bool)
        query_B2, own_B2 = texts_BN2[:, 0], texts_BN2[:, 1]
        is_same_BB = _equal(query_B2, query_B2) | _equal(own_B2, own_B2)
        if not mask_equal_texts:
            is_same_BB = jnp.eye(number, dtype=bool)
        is_false_BM = is_same_BB[:, owner_M] & is_positive_M
        if mask_equal_texts:
            is_false_BM |= _equal(own_B2, text_M2)
        is_negative_BM = documents_in_order(is_present_BN)[None] & ~is_false_BM & ~is_own_BM
        return cls(owner_M, is_own_BM, is_negative_BM, is_same_BB)


def documents_in_order(values_BNX: Array) -> jax.Array:
    """Return the values of all documents [M, …]: of own documents, then of hard negatives."""
    rest_MX = jnp.asarray(values_BNX[:, 2:]).reshape(-1, *values_BNX.shape[2:])
    return jnp.concatenate([jnp.asarray(values_BNX[:, 1]), rest_MX])


class Documents(NamedTuple):
    """The documents of a batch: their vectors [M, D], and `Candidates`."""

    vectors_MD: jax.Array
    owner_M: jax.Array
    is_own_BM: jax.Array
    is_negative_BM: jax.Array
    is_same_BB: jax.Array

    @classmethod
    def of(cls, batch: VectorBatch, mask_equal_texts: bool = True) -> 'Documents':
        """Collect the documents of a batch; see `Candidates.of`."""
        candidates = Candidates.of(batch.texts_BN2, batch.is_present_BN, mask_equal_texts)
        return cls(documents_in_order(batch.vectors_BND), *candidates)


def _equal(first_B2: Array, second_M2: Array) -> jax.Array:
    """Return which texts are equal, bool [B, M]."""
    is_equal_BM: jax.Array = (first_B2[:, None] == second_M2[None]).all(-1)
    return is_equal_BM


def accuracy(batch: VectorBatch, similarity: str) -> jax.Array:
    """Return the share of queries whose own document is nearer than all negatives of the batch."""
    documents = Documents.of(batch)
    similarity_BM = SIMILARITIES[similarity](batch.vectors_BND[:, 0], documents.vectors_MD)
    return accuracy_of(similarity_BM, documents)


def accuracy_of(similarity_BM: jax.Array, documents: Candidates | Documents) -> jax.Array:
    """Return the share of queries whose own document is more similar than all negatives."""
    best_B = jnp.max(similarity_BM, axis=1, where=documents.is_negative_BM, initial=-jnp.inf)
    own_B = jnp.sum(jnp.where(documents.is_own_BM, similarity_BM, 0), axis=1)
    return jnp.mean(own_B > best_B)


@dataclasses.dataclass(frozen=True)
class InBatch(EmbeddingLoss):
    """InfoNCE: the cross-entropy of the own document among all documents of the batch.

    With similarity s of query i and document d, and hard negatives as further documents, the loss
    is mean_i(log Σ_d exp(scale · s_id) − scale · s_ii) (Henderson et al. 2017, section 4.4; van den
    Oord et al. 2018, equation 4). More directions add terms to the sum: similarities of query i and
    other queries, of document i and all queries, of document i and documents of other queries. All
    four with the partition 'joint' are the improved loss of GTE (Li et al. 2023, section 3.3);
    query_to_document and document_to_query with 'per_direction', the mean of a sum for each, are
    the symmetric loss of CLIP. With hardness α, the logits of negatives are raised by α · s, which
    has no gradient (Robinson et al. 2021 weight negatives in this way).

    Attributes:
        scale: the inverse of the temperature.
        similarity: 'cosine', or 'dot', the dot product of the vectors as they are.
        directions: names of DIRECTIONS.
        partition: 'joint', or 'per_direction'.
        hardness: α, of query_to_document.
        hardness_of: which negatives are raised: 'all', the 'in_batch' negatives, or the 'hard'
            negatives of the query itself.
        mask_equal_texts: see `Documents.of`.
    """

    scale: float = 20.0
    similarity: str = 'cosine'
    directions: tuple[str, ...] = ('query_to_document',)
    partition: str = 'joint'
    hardness: float = 0.0
    hardness_of: str = 'all'
    mask_equal_texts: bool = True

    max_texts: ClassVar[int | None] = None
    may_lack_texts = True
    min_examples = 2

    def __post_init__(self) -> None:
        """Raise UserError for unknown directions, and for directions without the own document."""
        for direction in self.directions:
            if direction not in DIRECTIONS:
                raise unknown('direction of problem.directions', direction, DIRECTIONS)
        if 'query_to_document' not in self.directions:
            raise UserError(f"problem.directions is {self.directions}; add 'query_to_document'")
        among_themselves = {'query_to_query', 'document_to_document'} & {*self.directions}
        if self.partition == 'per_direction' and among_themselves:
            raise UserError(
                f"problem.partition is 'per_direction', but {min(among_themselves)} has no own "
                "document; set problem.partition='joint' or leave it out of problem.directions"
            )

    def compared_by(self) -> str:
        return self.similarity

    def __call__(self, batch: VectorBatch) -> jax.Array:
        compare = SIMILARITIES[self.similarity]
        query_BD, own_BD = batch.vectors_BND[:, 0], batch.vectors_BND[:, 1]
        documents = Documents.of(batch, self.mask_equal_texts)
        similarity_BM = compare(query_BD, documents.vectors_MD)
        positive_B = self.scale * jnp.sum(jnp.where(documents.is_own_BM, similarity_BM, 0), axis=1)
        is_other_BB = ~documents.is_same_BB
        is_diagonal_BB = jnp.eye(len(query_BD), dtype=bool)
        raised_BM = self._raise(self.scale * similarity_BM, similarity_BM, documents)
        logits = {
            'query_to_document': _only(raised_BM, documents.is_own_BM | documents.is_negative_BM)
        }
        if 'query_to_query' in self.directions:
            logits['query_to_query'] = _only(self.scale * compare(query_BD, query_BD), is_other_BB)
        if 'document_to_query' in self.directions:
            logits['document_to_query'] = _only(
                self.scale * compare(own_BD, query_BD), is_other_BB | is_diagonal_BB
            )
        if 'document_to_document' in self.directions:
            is_of_other_BM = documents.owner_M != jnp.arange(len(own_BD))[:, None]
            logits['document_to_document'] = _only(
                self.scale * compare(own_BD, documents.vectors_MD),
                documents.is_negative_BM & is_of_other_BM,
            )
        if self.partition == 'joint':
            total_B = jax.nn.logsumexp(jnp.concatenate([*logits.values()], axis=1), axis=1)
        else:
            sums = [jax.nn.logsumexp(part_BM, axis=1) for part_BM in logits.values()]
            total_B = jnp.mean(jnp.stack(sums), axis=0)
        return jnp.mean(total_B - positive_B)

    def _raise(
        self, logits_BM: jax.Array, similarity_BM: jax.Array, documents: Documents
    ) -> jax.Array:
        """Add hardness · similarity to the logits of negatives."""
        if not self.hardness:
            return logits_BM
        number = len(documents.is_own_BM)
        is_of_query_BM = documents.owner_M == jnp.arange(number)[:, None]
        is_hard_BM = is_of_query_BM & ~documents.is_own_BM
        is_raised_BM = {
            'all': ~documents.is_own_BM,
            'in_batch': ~is_of_query_BM,
            'hard': is_hard_BM,
        }[self.hardness_of]
        return logits_BM + self.hardness * jax.lax.stop_gradient(similarity_BM) * is_raised_BM


def _only(logits_BM: jax.Array, is_used_BM: jax.Array) -> jax.Array:
    """Set the logits that are not used to −∞."""
    return jnp.where(is_used_BM, logits_BM, -jnp.inf)


@dataclasses.dataclass(frozen=True)
class SimCSE(InBatch):
    """InfoNCE between two passes of the same texts, which differ in dropout alone.

    Gao et al. 2021, section 3.
    """

    min_texts = 1
    max_texts = 1
    copies = 2


@dataclasses.dataclass(frozen=True)
class Guided(EmbeddingLoss):
    """GISTEmbed: InfoNCE without the negatives that a guide finds more similar than the pair.

    The candidates of query i are all documents, the other queries, and the documents of other
    queries compared with its own document. A candidate is left out if the guide's cosine exceeds
    that of the pair, reduced by the margin (Solatorio 2024, section 3.2, is margin 0).

    Attributes:
        scale: the inverse of the temperature.
        margin: how much less similar than the pair negatives are in the guide's vectors.
        margin_kind: 'absolute', or 'relative': a share of the pair's absolute cosine.
    """

    scale: float = 100.0
    margin: float = 0.0
    margin_kind: str = 'absolute'

    reads: ClassVar[tuple[str, ...]] = ('vectors',)
    max_texts: ClassVar[int | None] = None
    may_lack_texts = True
    min_examples = 2

    def __call__(self, batch: VectorBatch) -> jax.Array:
        parts = _blocks(batch, batch.vectors_BND)
        guide = _blocks(batch, jnp.asarray(batch.teacher_BNV))
        number = len(batch.vectors_BND)
        is_diagonal_BB = jnp.eye(number, dtype=bool)
        pair_B1 = jnp.diagonal(guide[0])[:, None]
        margin_B1 = self.margin * (jnp.abs(pair_B1) if self.margin_kind == 'relative' else 1.0)
        logits = []
        for block, (similarity_BM, guide_BM) in enumerate(zip(parts, guide, strict=True)):
            is_used_BM = guide_BM <= pair_B1 - margin_B1
            if block == 0:
                is_used_BM |= is_diagonal_BB
            elif block < 3:
                is_used_BM &= ~is_diagonal_BB
            else:
                is_used_BM &= jnp.asarray(batch.is_present_BN[:, 2:]).reshape(1, -1)
            logits.append(_only(self.scale * similarity_BM, is_used_BM))
        total_B = jax.nn.logsumexp(jnp.concatenate(logits, axis=1), axis=1)
        return jnp.mean(total_B - self.scale * jnp.diagonal(parts[0]))


def _blocks(batch: VectorBatch, vectors_BND: jax.Array) -> list[jax.Array]:
    """Cosines of query and own document, queries, own documents, query and hard negatives."""
    unit_BND = normalize(vectors_BND)
    query_BD, own_BD, rest_BND = unit_BND[:, 0], unit_BND[:, 1], unit_BND[:, 2:]
    pairs = [(query_BD, own_BD), (query_BD, query_BD), (own_BD, own_BD)]
    return [products(*pair) for pair in (*pairs, (query_BD, rest_BND.reshape(-1, own_BD.shape[1])))]


@dataclasses.dataclass(frozen=True)
class MegaBatchMargin(EmbeddingLoss):
    """Margins of the own document and of the nearest negative of a large batch.

    mean_i(max(0, positive_margin − s_ii) + max(0, max_{j≠i} s_ij − negative_margin)) with cosines s
    (Wieting and Gimpel 2018, section 3.3, mine negatives in this way).

    Attributes:
        positive_margin: own documents that are more similar have no loss.
        negative_margin: negatives that are less similar have no loss.
        mask_equal_texts: see `Documents.of`.
    """

    positive_margin: float = 0.8
    negative_margin: float = 0.3
    mask_equal_texts: bool = True

    min_examples = 2

    def __call__(self, batch: VectorBatch) -> jax.Array:
        documents = Documents.of(batch, self.mask_equal_texts)
        cosine_BM = cosines(batch.vectors_BND[:, 0], documents.vectors_MD)
        own_B = jnp.diagonal(cosine_BM)
        worst_B = jnp.max(cosine_BM, axis=1, where=documents.is_negative_BM, initial=-1.0)
        hinge_B = jax.nn.relu(self.positive_margin - own_B)
        return jnp.mean(hinge_B + jax.nn.relu(worst_B - self.negative_margin))

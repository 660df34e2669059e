"""Texts that are searched by the vectors of their tokens, exactly and in bounded memory."""

import dataclasses
import functools
import pathlib
from collections import Counter
from collections.abc import Sequence

import numpy as np

from bert_jax.errors import UserError
from bert_jax.inference import late_store, late_vectors
from bert_jax.inference.late_store import LateVectors
from bert_jax.inference.nearest import Nearest
from bert_jax.inference.predictor import Predictor
from bert_jax.metrics import late_scores
from bert_jax.types import JsonObject

_QUERIES = 16  # whose tokens are compared with a block of documents


@dataclasses.dataclass(frozen=True, eq=False)
class LateEncoder:
    """A model that turns texts into vectors of their tokens.

    Attributes:
        predictor: the model.
        precision: of the vectors of documents that are kept, one of late_store.PRECISIONS.
    """

    predictor: Predictor
    precision: str = 'float32'

    def __post_init__(self) -> None:
        """Raise UserError for a model without vectors of tokens."""
        late_vectors.modules_of(self.predictor)

    @property
    def compared_by(self) -> str:
        """The name of the similarity."""
        return self.predictor.compared_by

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the model: its parameters, architecture, tokenizer and modules."""
        return self.predictor.digest()

    @property
    def options(self) -> JsonObject:
        """What else the vectors of documents depend on."""
        return {'similarity': f'tokens, {self.compared_by}', 'precision': self.precision}

    def encode_queries(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The vectors of the tokens of queries, float32 [L, E] each."""
        return self._encode(texts, 'query')

    def encode_documents(self, texts: Sequence[str]) -> LateVectors:
        """The vectors of the tokens of documents."""
        return LateVectors.of(self._encode(texts, 'document'), self.precision)

    def _encode(self, texts: Sequence[str], side: str) -> list[np.ndarray]:
        vectors = late_vectors.embed_late(self.predictor, texts, side)
        if not all(np.isfinite(own_TE).all() for own_TE in vectors):
            raise UserError(
                f'{self.predictor.name} computes vectors that are not finite; has its training '
                'diverged?'
            )
        return vectors

    def products(self, query_LE: np.ndarray, documents: LateVectors) -> list[float]:
        """The scores of a query with documents."""
        scores: list[float] = self.index(documents).scores_of([query_LE])[0].tolist()
        return scores

    def index(self, documents: LateVectors) -> 'LateSearch':
        """Return a search among the vectors of documents."""
        return LateSearch(self, documents)

    def keep(
        self, folder: pathlib.Path, origin: JsonObject, texts: Sequence[str], counts: Counter[str]
    ) -> tuple[LateVectors, str]:
        """Read or compute the vectors in a folder; see `late_store.load_or_make`."""
        return late_store.load_or_make(folder, origin, texts, self.encode_documents, counts)


@dataclasses.dataclass(frozen=True, eq=False)
class LateSearch:
    """Documents that are searched by the vectors of their tokens.

    Attributes:
        encoder: makes the vectors of queries.
        documents: may be memory-mapped: one block of their tokens is read at a time.
    """

    encoder: LateEncoder
    documents: LateVectors

    def search(self, queries: Sequence[str], number: int) -> Nearest:
        """Find the documents with the largest scores; of equal scores, the earlier document."""
        return self.nearest(self.encoder.encode_queries(queries), number)

    def nearest(self, queries: Sequence[np.ndarray], number: int) -> Nearest:
        """Find the best documents of queries, given by their vectors, float32 [L, E] each.

        Raises:
            UserError: there are no documents.
        """
        if not self.documents.num_documents:
            raise UserError('there are no documents to search')
        number = min(number, self.documents.num_documents)
        blocks = [
            self._nearest(queries[first : first + _QUERIES], number)
            for first in range(0, len(queries), _QUERIES)
        ]
        empty = Nearest(np.zeros((0, number), np.float32), np.zeros((0, number), np.int64))
        return Nearest(*map(np.concatenate, zip(empty, *blocks, strict=True)))

    def _nearest(self, queries: Sequence[np.ndarray], number: int) -> Nearest:
        """Merge the best documents of one part after the other."""
        scores_QK, found_QK = np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0))
        first = 0
        for part in self.documents.parts:
            scores_QN = part.scores(queries)
            number_QN = np.broadcast_to(first + np.arange(len(part)), scores_QN.shape)
            scores_QX = np.concatenate([scores_QK, scores_QN], axis=1)
            found_QX = np.concatenate([found_QK, number_QN], axis=1)
            order_QK = np.argsort(-scores_QX, axis=1, kind='stable')[:, :number]
            scores_QK = np.take_along_axis(scores_QX, order_QK, axis=1)
            found_QK = np.take_along_axis(found_QX, order_QK, axis=1)
            first += len(part)
        return Nearest(self._divide(scores_QK, queries), found_QK.astype(np.int64))

    def _divide(self, scores_QX: np.ndarray, queries: Sequence[np.ndarray]) -> np.ndarray:
        """Divide scores by the numbers of tokens of their queries, for meanmaxsim."""
        if self.encoder.compared_by != 'meanmaxsim':
            return scores_QX
        number_Q = np.array([max(len(query_LE), 1) for query_LE in queries], np.float32)
        return np.asarray(scores_QX / number_Q[:, None])

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """Return the scores of queries with all documents, float32 [Q, N]."""
        return self.scores_of(self.encoder.encode_queries(queries))

    def scores_of(self, queries: Sequence[np.ndarray]) -> np.ndarray:
        """Return the scores of queries that are given by their vectors, float32 [Q, N]."""
        parts = [part.scores(queries) for part in self.documents.parts]
        scores_QN = np.concatenate([np.zeros((len(queries), 0), np.float32), *parts], axis=1)
        return self._divide(scores_QN, queries)

    def score_candidates(self, queries: Sequence[str], documents_QC: np.ndarray) -> np.ndarray:
        """Return the scores of each query with some documents of its own, float32 [Q, C]."""
        vectors = self.encoder.encode_queries(queries)
        scores = [
            late_scores.of_texts([query_LE], self.documents.documents(documents_C.tolist()))
            for query_LE, documents_C in zip(vectors, documents_QC, strict=True)
        ]
        empty = np.zeros((0, documents_QC.shape[1]), np.float32)
        return self._divide(np.concatenate([empty, *scores]), vectors)

    def subset(self, numbers: Sequence[int]) -> 'LateSearch':
        """Return a search among some of the documents."""
        chosen = LateVectors.of(self.documents.documents(numbers), 'float32')
        return LateSearch(self.encoder, chosen)

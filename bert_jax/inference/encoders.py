"""Encoders, which turn texts into vectors, for every kind of model that compares texts."""

import itertools
import pathlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from bert_jax.inference.late_search import LateEncoder
from bert_jax.inference.nearest import Nearest
from bert_jax.inference.predictor import Predictor
from bert_jax.inference.sparse_vectors import TermEncoder
from bert_jax.inference.text_rows import check_texts
from bert_jax.inference.vector_search import TextEncoder
from bert_jax.types import JsonObject


class Searcher(Protocol):
    """Documents that can be searched by a text."""

    def search(self, queries: Sequence[str], number: int) -> Nearest:
        """Find the best documents of each query."""


class Index(Searcher, Protocol):
    """Documents with their vectors."""

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """Return the scores of queries with all documents, float32 [Q, N]."""

    def score_candidates(self, queries: Sequence[str], documents_QC: np.ndarray) -> np.ndarray:
        """Return the scores of each query with some documents of its own, float32 [Q, C]."""

    def subset(self, numbers: Sequence[int]) -> 'Index':
        """Return a search among some of the documents."""


class VectorEncoder(Protocol):
    """Makes the vectors of texts."""

    @property
    def predictor(self) -> Predictor:
        """The model."""

    @property
    def digest(self) -> str:
        """SHA-256 of the model."""

    @property
    def compared_by(self) -> str:
        """The name of the similarity."""

    @property
    def options(self) -> JsonObject:
        """What else the vectors of documents depend on."""

    def encode_queries(self, texts: Sequence[str]) -> Any:
        """The vectors of queries."""

    def encode_documents(self, texts: Sequence[str]) -> Any:
        """The vectors of documents."""

    def products(self, query: Any, documents: Any) -> list[float]:
        """The scores of a query with documents, given by their vectors."""

    def index(self, vectors: Any) -> Index:
        """Return a search among the vectors that `encode_documents` returned."""

    def keep(
        self, folder: pathlib.Path, origin: JsonObject, texts: Sequence[str], counts: Counter[str]
    ) -> tuple[Any, str]:
        """Read or compute the vectors of documents in a folder; return them and what happened."""


def of_model(predictor: Predictor) -> VectorEncoder:
    """Return what makes the vectors of a model that is not a reranker, as it was trained."""
    if predictor.is_late:
        return LateEncoder(predictor)
    return TermEncoder(predictor) if predictor.is_sparse else TextEncoder(predictor)


def similarity(
    predictor: Predictor, queries: Sequence[str], documents: Sequence[str]
) -> np.ndarray:
    """See `Predictor.similarity`."""
    queries, documents = check_texts(queries), check_texts(documents)
    if not queries or not documents:
        return np.zeros((len(queries), len(documents)), np.float32)
    if 'rerank' in predictor.tasks:
        return logits(predictor, queries, [documents] * len(queries))
    encoder = of_model(predictor)
    return encoder.index(encoder.encode_documents(documents)).scores(queries)


def rerank(
    predictor: Predictor, queries: Sequence[str], documents: Sequence[Sequence[str]]
) -> list[JsonObject]:
    """Order the documents of each query by the similarity of vectors; see `Predictor.rerank`."""
    encoder = of_model(predictor)
    texts = dict.fromkeys(itertools.chain.from_iterable(documents))
    numbers = {text: number for number, text in enumerate(texts)}
    index = encoder.index(encoder.encode_documents([*numbers]))
    # Rows of equal length: the scores of what fills up the shorter ones are not read.
    places_QC = np.zeros((len(queries), max(map(len, documents), default=0)), np.int64)
    for row_C, own in zip(places_QC, documents, strict=True):
        row_C[: len(own)] = [numbers[text] for text in own]
    scores_QC = index.score_candidates(queries, places_QC) if texts else places_QC
    records = []
    for query, own, scores_C in zip(queries, documents, scores_QC, strict=True):
        order_C = np.argsort(-scores_C[: len(own)], kind='stable')
        results = [
            {'document': int(n), 'score': float(scores_C[n]), 'text': own[n]} for n in order_C
        ]
        records.append({'query': query, 'results': results})
    return records


def logits(
    reranker: Predictor, queries: Sequence[str], documents: Sequence[Sequence[str]]
) -> np.ndarray:
    """Return the logits of a reranker for each query with its documents, float32 [Q, C]."""
    logits_QC = np.zeros((len(queries), len(documents[0]) if documents else 0), np.float32)
    records = reranker.rerank(queries, documents) if len(queries) else []
    for row, record in enumerate(records):
        for result in record['results']:
            logits_QC[row, result['document']] = result['logit']
    return logits_QC

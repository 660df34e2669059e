"""Search in two stages: a model scores the first results of another search again."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from bert_jax.inference import encoders
from bert_jax.inference.encoders import Searcher, VectorEncoder
from bert_jax.inference.nearest import Nearest
from bert_jax.inference.predictor import Predictor
from bert_jax.interop import loading


class Scorer(Protocol):
    """Scores documents for a query; see `encoders.Index`."""

    def score_candidates(self, queries: Sequence[str], documents_QC: np.ndarray) -> np.ndarray:
        """Return the scores of each query with some documents of its own, float32 [Q, C]."""


@dataclasses.dataclass(frozen=True, eq=False)
class TwoStages:
    """A search whose first results are ordered anew.

    Attributes:
        first: finds the candidates.
        second: gives their scores.
        candidates: number of results of `first` that are scored.
    """

    first: Searcher
    second: Scorer
    candidates: int

    def search(self, queries: Sequence[str], number: int) -> Nearest:
        """Find the candidates with the largest scores; of equal scores, the earlier candidate."""
        found_QC = self.first.search(queries, self.candidates).documents_QK
        scores_QC = self.second.score_candidates(queries, found_QC)
        order_QK = np.argsort(-scores_QC, axis=1, kind='stable')[:, :number]
        return Nearest(
            np.take_along_axis(scores_QC, order_QK, axis=1),
            np.take_along_axis(found_QC, order_QK, axis=1),
        )


@dataclasses.dataclass(frozen=True, eq=False)
class PairScorer:
    """A reranker, which reads the query and the document together; scores are its logits.

    Attributes:
        reranker: a model for pairs of a query and a document.
        texts: the documents, by number.
    """

    reranker: Predictor
    texts: Sequence[str]

    def score_candidates(self, queries: Sequence[str], documents_QC: np.ndarray) -> np.ndarray:
        """See `Scorer`."""
        documents = [[self.texts[n] for n in row] for row in documents_QC]
        return encoders.logits(self.reranker, queries, documents)


@dataclasses.dataclass(frozen=True, eq=False)
class VectorScorer:
    """A model with vectors, which are computed for the candidates alone.

    Attributes:
        encoder: makes the vectors.
        texts: the documents, by number.
    """

    encoder: VectorEncoder
    texts: Sequence[str]

    def score_candidates(self, queries: Sequence[str], documents_QC: np.ndarray) -> np.ndarray:
        """See `Scorer`."""
        if not documents_QC.size:
            return np.zeros(documents_QC.shape, np.float32)
        numbers, place_QC = np.unique(documents_QC, return_inverse=True)
        vectors = self.encoder.encode_documents([self.texts[n] for n in numbers])
        place_QC = place_QC.reshape(documents_QC.shape)
        return self.encoder.index(vectors).score_candidates(queries, place_QC)


def scorer_of(model: Predictor, texts: Sequence[str]) -> Scorer:
    """Return what scores documents with a model of any kind."""
    if 'rerank' in model.tasks:
        return PairScorer(model, texts)
    return VectorScorer(encoders.of_model(model), texts)


def counts_of(reranker: Predictor) -> Counter[str]:
    """Return what a reranker truncated, named apart from the counts of the search."""
    return Counter({f'{what} by the reranker': n for what, n in reranker.counts.items()})


def load(name: str, **options: Any) -> Predictor:
    """Load a model of any kind that was trained to compare texts.

    Args:
        name: its folder.
        options: see `Predictor`.

    Raises:
        UserError: the folder has no model, or one that does not say how its vectors are made.
    """
    predictor = load_any(name, **options)
    if predictor.sentence_modules is None:
        predictor.require('rerank')
    return predictor


def load_any(name: str, **options: Any) -> Predictor:
    """Load a model that may also be a bare encoder; see `load`."""
    model = loading.load_any(name, allow_missing=('^encoder/pooler/',))
    return Predictor(model, name=name, **options)

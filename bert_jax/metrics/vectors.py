"""How well the similarity of vectors agrees with scores, documents and classes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.metrics import metrics
from bert_jax.metrics.intervals import RowScore

_MRR_DEPTH = 10
_CHUNK = 1024  # queries that are compared at once


def unit(vectors_XD: np.ndarray) -> np.ndarray:
    """Divide vectors by their Euclidean norms, float32."""
    norms_X1 = np.linalg.norm(vectors_XD, axis=-1, keepdims=True)
    return np.asarray(vectors_XD / np.maximum(norms_X1, 1e-12), np.float32)


def score_rows(
    vectors: Sequence[np.ndarray],
    texts: Sequence[Sequence[str]],
    scores: Sequence[Sequence[float]],
    classes: Sequence[str],
) -> RowScore:
    """Return a function that computes the metrics of some of the examples.

    Args:
        vectors: of the texts of each example, [N, D]; normalized if cosines are compared.
        texts: of each example: a query, its document, and documents that do not answer it.
        scores: of each example; one score if it is a pair with a score.
        classes: of each example; '' without classes.

    Returns:
        Numbers of examples → 'spearman' and 'pearson' of pairs with a score; else 'accuracy' and
        'mrr' of queries, and 'triplet_accuracy' if all have other documents; else
        'neighbor_accuracy' of classes. Examples without any of these have no metrics.
    """
    if all(len(own) == 2 and len(known) == 1 for own, known in zip(texts, scores, strict=True)):
        gold_N = np.array([known[0] for known in scores])
        product_N = np.array([own_2D[0] @ own_2D[1] for own_2D in vectors], np.float64)
        return lambda rows_M: correlations(gold_N[rows_M], product_N[rows_M])
    if all(len(own) > 1 for own in texts):
        return of_columns(_of_queries(vectors, texts))
    if all(classes) and len(classes) > 1:
        vectors_ND = np.concatenate([own[:1] for own in vectors])
        return of_columns({'neighbor_accuracy': _has_neighbor(vectors_ND, classes)})
    return lambda rows_M: {}


def correlations(gold_M: np.ndarray, product_M: np.ndarray) -> Mapping[str, float]:
    """Return 'spearman' and 'pearson'."""
    return {
        'spearman': metrics.spearman(gold_M, product_M),
        'pearson': metrics.pearson(gold_M, product_M),
    }


def of_columns(columns: Mapping[str, np.ndarray]) -> RowScore:
    """Return a function that takes the mean of each metric over examples."""
    return lambda rows_M: {name: float(np.mean(own_N[rows_M])) for name, own_N in columns.items()}


def _of_queries(
    vectors: Sequence[np.ndarray], texts: Sequence[Sequence[str]]
) -> dict[str, np.ndarray]:
    """Return the metrics of each query among all different documents, float [N]."""
    products = [own_ND[1:] @ own_ND[0] for own_ND in vectors]
    return of_ranks(ranks_of_own(vectors, texts), products)


def of_ranks(rank_N: np.ndarray, products: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Return the metrics of each query, float [N].

    Args:
        rank_N: the rank of its own document.
        products: of the query with its own document and with its other documents.
    """
    columns = {
        'accuracy': (rank_N == 1).astype(float),
        'mrr': np.where(rank_N <= _MRR_DEPTH, 1 / rank_N, 0.0),
    }
    if all(len(own) > 1 for own in products):
        columns['triplet_accuracy'] = np.array([own[0] > own[1:].max() for own in products], float)
    return columns


def ranks_of_own(vectors: Sequence[np.ndarray], texts: Sequence[Sequence[str]]) -> np.ndarray:
    """Return the rank of each query's own document; see `DocumentsOfQueries.ranks`."""
    documents = DocumentsOfQueries.of(texts)
    documents_MD = np.stack([vectors[example][place] for example, place in documents.places])
    return documents.ranks(
        np.stack([vectors[i][0] for i in part]) @ documents_MD.T for part in documents.chunks()
    )


class DocumentsOfQueries(NamedTuple):
    """All different documents of some queries.

    Attributes:
        texts: of each example: a query, its document, and documents that do not answer it.
        numbers: document → its number.
        places: of each document: the number of an example that has it, and the place there.
    """

    texts: Sequence[Sequence[str]]
    numbers: Mapping[str, int]
    places: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, texts: Sequence[Sequence[str]]) -> 'DocumentsOfQueries':
        """Number the documents."""
        places = {
            text: (example, place)
            for example, own in enumerate(texts)
            for place, text in enumerate(own[1:], 1)
        }
        return cls(texts, {text: n for n, text in enumerate(places)}, list(places.values()))

    def chunks(self) -> list[range]:
        """Return the numbers of the queries that are compared at once."""
        last = len(self.texts)
        return [range(first, min(first + _CHUNK, last)) for first in range(0, last, _CHUNK)]

    def ranks(self, products: Iterable[np.ndarray]) -> np.ndarray:
        """Return the rank of each query's own document among all different documents, int64 [N].

        Documents that are as near count as nearer. Documents that answer an equal query are left
        out.

        Args:
            products: of the queries of each chunk with all documents, float [Q, M].
        """
        answers: dict[str, list[int]] = {}
        for query, own, *_ in self.texts:
            answers.setdefault(query, []).append(self.numbers[own])
        rank_N = np.empty(len(self.texts), np.int64)
        for part, product_QM in zip(self.chunks(), products, strict=True):
            for i, product_M in zip(part, product_QM, strict=True):
                query, own, *_ = self.texts[i]
                is_nearer_M = ~(product_M < product_M[self.numbers[own]])  # NaN counts as nearer
                is_nearer_M[answers[query]] = False
                rank_N[i] = 1 + is_nearer_M.sum()
        return rank_N


def _has_neighbor(vectors_ND: np.ndarray, classes: Sequence[str]) -> np.ndarray:
    """Return whether the nearest other text of each text has its class, float [N]."""
    class_N = np.array(classes)
    is_right_N = np.empty(len(class_N))
    for first in range(0, len(class_N), _CHUNK):
        cosine_QN = vectors_ND[first : first + _CHUNK] @ vectors_ND.T
        own_Q = np.arange(len(cosine_QN))
        cosine_QN[own_Q, first + own_Q] = -np.inf
        nearest_Q = cosine_QN.argmax(1)
        is_right_N[first : first + _CHUNK] = class_N[nearest_Q] == class_N[first + own_Q]
    return is_right_N

"""Sparse search: BM25, the lexical baseline, and other vectors with a weight for each term.

A document is a row of a sparse matrix, a query a vector of weights of the same terms, and the score
is their product. BM25 is the form of Lucene, whose idf is never negative.

Sources: Robertson and Zaragoza 2009, section 3.4; Kamphuis et al. 2020, table 1, for Lucene's form.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from scipy import sparse

from bert_jax.inference.nearest import Nearest
from bert_jax.labels.word_spans import split_characters

K1, B = 1.2, 0.75  # Lucene's defaults
_QUERIES = 64  # of a block


def terms(text: str) -> list[str]:
    """The words of a text without case and punctuation; characters where words have no spaces."""
    words = (text[start:end].casefold() for start, end in split_characters(text))
    return [word for word in words if any(map(str.isalnum, word))]


@dataclasses.dataclass(frozen=True)
class BM25:
    """Documents that are searched by their words.

    Attributes:
        weights_NV: the weight of each term in each document, float32.
        numbers: term → its number.
    """

    weights_NV: sparse.csr_array
    numbers: Mapping[str, int]

    @classmethod
    def of(cls, documents: Iterable[str]) -> 'BM25':
        """Count the terms of documents."""
        counted = [Counter(terms(text)) for text in documents]
        names = dict.fromkeys(term for counts in counted for term in counts)
        numbers = {term: number for number, term in enumerate(names)}
        counts_NV = _matrix(counted, numbers)
        length_N = np.asarray(counts_NV.sum(axis=1), np.float64)
        frequency_V = np.bincount(counts_NV.indices, minlength=len(numbers))
        idf_V = np.log1p((len(counted) - frequency_V + 0.5) / (frequency_V + 0.5))
        norm_N = 1 - B + B * length_N / max(length_N.mean(), 1e-12)
        norm_E = np.repeat(norm_N, np.diff(counts_NV.indptr))
        frequency_E = counts_NV.data
        weight_E = idf_V[counts_NV.indices] * frequency_E / (frequency_E + K1 * norm_E)
        counts_NV.data = weight_E.astype(np.float32)
        return cls(counts_NV, numbers)

    def search(self, queries: Sequence[str], number: int) -> Nearest:
        """Find the best documents of each query; a term counts as often as the query has it."""
        counts_QV = _matrix([Counter(terms(text)) for text in queries], self.numbers)
        return search(counts_QV.astype(np.float32), self.weights_NV, number)


def _matrix(counted: Sequence[Counter[str]], numbers: Mapping[str, int]) -> sparse.csr_array:
    """How often each text has each of the numbered terms, float64 [texts, V]."""
    known = [[(numbers[t], n) for t, n in counts.items() if t in numbers] for counts in counted]
    row_E = np.repeat(np.arange(len(known)), list(map(len, known)))
    term_E, count_E = np.array([pair for pairs in known for pair in pairs]).reshape(-1, 2).T
    shape = len(counted), len(numbers)
    return sparse.csr_array((count_E.astype(np.float64), (row_E, term_E.astype(int))), shape)


def search(queries_QV: sparse.csr_array, documents_NV: sparse.csr_array, number: int) -> Nearest:
    """Find the documents with the largest products, as `nearest.search` does for dense vectors.

    Documents without a term of the query have the score 0.
    """
    number = min(number, documents_NV.shape[0])
    scores, documents = [], []
    for first in range(0, queries_QV.shape[0], _QUERIES):
        scores_QN = (queries_QV[first : first + _QUERIES] @ documents_NV.T).toarray()
        best_QK = np.argsort(-scores_QN, axis=1, kind='stable')[:, :number]
        documents.append(best_QK)
        scores.append(np.take_along_axis(scores_QN, best_QK, axis=1))
    empty = np.zeros((0, number))
    return Nearest(
        np.concatenate([empty.astype(np.float32), *scores]).astype(np.float32),
        np.concatenate([empty.astype(np.int64), *documents]),
    )

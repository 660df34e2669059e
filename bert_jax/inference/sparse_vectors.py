"""Sparse vectors: a weight for each term of the vocabulary, which can be read and searched.

Source: Formal et al. 2021, SPLADE v2, section 3.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import sparse

from bert_jax.inference import lexical
from bert_jax.inference.nearest import Nearest
from bert_jax.inference.predictor import Predictor
from bert_jax.inference.vector_search import DOCUMENT, QUERY, known_prompt


class Term(NamedTuple):
    """A token of the vocabulary and its weight in a text."""

    token: str
    weight: float


def terms(predictor: Predictor, texts: Sequence[str]) -> list[list[Term]]:
    """The terms of each text with a weight above 0, the largest first."""
    weights_NV, vocab = predictor.embed_sparse(texts), predictor.tokenizer.vocab
    found = []
    for row in range(len(texts)):
        part = slice(weights_NV.indptr[row], weights_NV.indptr[row + 1])
        weight_E, term_E = weights_NV.data[part], weights_NV.indices[part]
        order_E = np.argsort(-weight_E, kind='stable')
        names = [vocab[n] if n < len(vocab) else f'[{n}]' for n in term_E[order_E].tolist()]
        found.append([Term(*pair) for pair in zip(names, weight_E[order_E].tolist(), strict=True)])
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class SparseSearch:
    """Documents with weights of terms, searched by dot product.

    Attributes:
        predictor: makes the vectors of queries.
        weights_NV: float32.
    """

    predictor: Predictor
    weights_NV: sparse.csr_array

    @classmethod
    def of(cls, predictor: Predictor, texts: Sequence[str]) -> 'SparseSearch':
        """Encode documents."""
        prompt = known_prompt(predictor, DOCUMENT)
        return cls(predictor, predictor.embed_sparse(texts, prompt=prompt))

    def search(self, queries: Sequence[str], number: int) -> Nearest:
        """Find the best documents of each query; see `lexical.search`."""
        return lexical.search(self.queries(queries), self.weights_NV, number)

    def queries(self, texts: Sequence[str]) -> sparse.csr_array:
        """The vectors of queries, float32 [Q, V]."""
        return self.predictor.embed_sparse(texts, prompt=known_prompt(self.predictor, QUERY))


def mean_active(weights_NV: sparse.csr_array) -> float:
    """The mean number of terms of a text."""
    return float(weights_NV.nnz / max(weights_NV.shape[0], 1))

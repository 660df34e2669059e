"""Sparse vectors: a weight for each term of the vocabulary, which can be read and searched.

Source: Formal et al. 2021, SPLADE v2, section 3.
"""

import dataclasses
import functools
import pathlib
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import sparse

from bert_jax.errors import UserError
from bert_jax.inference import lexical, vector_store
from bert_jax.inference.nearest import Nearest
from bert_jax.inference.predictor import Predictor
from bert_jax.inference.vector_search import DOCUMENT, QUERY, known_prompt
from bert_jax.types import JsonRecord


class WeightedTerm(NamedTuple):
    """A token of the vocabulary and its weight in a text."""

    token: str
    weight: float


def terms(predictor: Predictor, texts: Sequence[str]) -> list[list[WeightedTerm]]:
    """The terms of each text with a weight above 0, the largest first."""
    weights_NV, vocab = predictor.embed_sparse(texts), predictor.tokenizer.vocab
    found = []
    for row in range(len(texts)):
        part = slice(weights_NV.indptr[row], weights_NV.indptr[row + 1])
        weight_E, term_E = weights_NV.data[part], weights_NV.indices[part]
        order_E = np.argsort(-weight_E, kind='stable')
        names = [vocab[n] if n < len(vocab) else f'[{n}]' for n in term_E[order_E].tolist()]
        found.append(
            [WeightedTerm(*pair) for pair in zip(names, weight_E[order_E].tolist(), strict=True)]
        )
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class TermEncoder:
    """A model that turns texts into weights of terms.

    Attributes:
        predictor: the model.
        similarity: 'dot' or 'cosine'; None: that of a model for sparse vectors, else 'dot'.
        long_texts: as for `Predictor.embed_sparse`.
    """

    predictor: Predictor
    similarity: str | None = None
    long_texts: str | None = None

    @property
    def compared_by(self) -> str:
        """The name of the similarity."""
        return self.similarity or (
            self.predictor.compared_by if self.predictor.is_sparse else 'dot'
        )

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the model: its parameters, architecture, tokenizer and modules."""
        return self.predictor.digest('mlm')

    @property
    def options(self) -> JsonRecord:
        """What else the vectors of documents depend on."""
        return {'similarity': f'terms, {self.compared_by}', 'long_texts': self.long_texts}

    def encode_queries(self, texts: Sequence[str]) -> sparse.csr_array:
        """The vectors of queries, float32 [Q, V], with the prompt for queries if there is one."""
        return self._encode(texts, QUERY)

    def encode_documents(self, texts: Sequence[str]) -> sparse.csr_array:
        """The vectors of documents, float32 [N, V], with their prompt if there is one."""
        return self._encode(texts, DOCUMENT)

    def _encode(self, texts: Sequence[str], names: Sequence[str]) -> sparse.csr_array:
        prompt = known_prompt(self.predictor, names)
        weights_NV = self.predictor.embed_sparse(texts, self.long_texts, prompt)
        if not np.isfinite(weights_NV.data).all():
            raise UserError(
                f'{self.predictor.name} computes weights that are not finite; has its training '
                'diverged?'
            )
        return unit(weights_NV) if self.compared_by == 'cosine' else weights_NV

    def products(self, query: sparse.csr_array, documents_NV: sparse.csr_array) -> list[float]:
        """The products of the vector of a query, [V], with those of documents."""
        products: list[float] = (documents_NV @ query).tolist()
        return products

    def index(self, weights_NV: sparse.csr_array) -> 'SparseSearch':
        """Return a search among the vectors of documents."""
        return SparseSearch(self, weights_NV)

    def keep(
        self, folder: pathlib.Path, origin: JsonRecord, texts: Sequence[str], counts: Counter[str]
    ) -> vector_store.Stored:
        """Read or compute the vectors in a folder; see `vector_store.load_or_make`."""
        return vector_store.load_or_make(folder, origin, texts, self.encode_documents, counts)


@dataclasses.dataclass(frozen=True, eq=False)
class SparseSearch:
    """Documents with weights of terms, searched by dot product (of unit vectors for cosines).

    Attributes:
        encoder: makes the vectors of queries.
        weights_NV: float32.
    """

    encoder: TermEncoder
    weights_NV: sparse.csr_array

    @classmethod
    def of(
        cls, predictor: Predictor, texts: Sequence[str], similarity: str | None = None
    ) -> 'SparseSearch':
        """Encode documents; see `TermEncoder`."""
        encoder = TermEncoder(predictor, similarity)
        return cls(encoder, encoder.encode_documents(texts))

    def search(self, queries: Sequence[str], number: int) -> Nearest:
        """Find the best documents of each query; see `lexical.search`."""
        return lexical.search(self.encoder.encode_queries(queries), self.weights_NV, number)

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """Return the products of queries with all documents, float32 [Q, N]."""
        queries_QV = self.encoder.encode_queries(queries)
        return np.asarray((queries_QV @ self.weights_NV.T).toarray(), np.float32)

    def score_candidates(self, queries: Sequence[str], documents_QC: np.ndarray) -> np.ndarray:
        """Return the products of each query with some documents of its own, float32 [Q, C]."""
        queries_QV = self.encoder.encode_queries(queries)
        found = [
            (self.weights_NV[documents_C] @ queries_QV[[row]].T).toarray()[:, 0]
            for row, documents_C in enumerate(documents_QC)
        ]
        return np.array(found, np.float32).reshape(documents_QC.shape)

    def subset(self, numbers: Sequence[int]) -> 'SparseSearch':
        """Return a search among some of the documents."""
        return SparseSearch(self.encoder, self.weights_NV[[*numbers]])


def unit(weights_NV: sparse.csr_array) -> sparse.csr_array:
    """Divide rows by their Euclidean norms, float32."""
    norms_N = np.sqrt(weights_NV.multiply(weights_NV).sum(axis=1))
    scales_N = (1 / np.maximum(norms_N, 1e-12)).astype(np.float32)
    return sparse.csr_array(sparse.diags_array(scales_N) @ weights_NV)


def mean_active(weights_NV: sparse.csr_array) -> float:
    """The mean number of terms of a text."""
    return float(weights_NV.nnz / max(weights_NV.shape[0], 1))

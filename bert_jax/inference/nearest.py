"""Exact search: the documents whose vectors have the largest products with a query's vector.

Scores are computed in blocks of fixed shapes, so that neither the number of queries nor the number
of documents changes the last bits of a score.
"""

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.errors import UserError

_QUERIES, _DOCUMENTS = 64, 4096  # of a block


class Nearest(NamedTuple):
    """The nearest documents of each query, best first; of equal scores, the earlier document.

    Attributes:
        scores_QK: float32.
        documents_QK: numbers of the documents, int64.
    """

    scores_QK: np.ndarray
    documents_QK: np.ndarray


class Blocks(Protocol):
    """Vectors [N, D] that are read in blocks, such as an array or `CompactVectors`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """N and D."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> np.ndarray: ...


def search(queries_QD: np.ndarray, documents_ND: Blocks, number: int) -> Nearest:
    """Find the nearest documents of each query.

    Args:
        queries_QD: float32.
        documents_ND: float32; may be memory-mapped: one block of it is read at a time.
        number: how many to find; K is this number, or N if that is smaller.

    Raises:
        UserError: the vectors have different sizes, or there are no documents.
    """
    num_documents = len(documents_ND)
    if not num_documents:
        raise UserError('there are no documents to search')
    if queries_QD.shape[1] != documents_ND.shape[1]:
        raise UserError(
            f'the vectors of the queries have {queries_QD.shape[1]} dimensions, those of the '
            f'documents {documents_ND.shape[1]}'
        )
    number = min(number, num_documents)
    blocks = [
        _search_block(queries_QD[first : first + _QUERIES], documents_ND, number)
        for first in range(0, len(queries_QD), _QUERIES)
    ]
    empty = Nearest(np.zeros((0, number), np.float32), np.zeros((0, number), np.int64))
    return Nearest(*map(np.concatenate, zip(empty, *blocks, strict=True)))


def normalize(vectors_XD: np.ndarray) -> np.ndarray:
    """Divide vectors by their Euclidean norms, so that their products are cosines."""
    norms_X1 = np.linalg.norm(vectors_XD, axis=-1, keepdims=True)
    return np.asarray(vectors_XD / np.maximum(norms_X1, np.float32(1e-12)))


def _search_block(queries_QD: np.ndarray, documents_ND: Blocks, number: int) -> Nearest:
    """`search` for up to _QUERIES queries."""
    padded_QD = jnp.asarray(_pad(queries_QD, _QUERIES))
    best = _Best(
        jnp.full((_QUERIES, number), -jnp.inf, jnp.float32),
        jnp.full((_QUERIES, number), -1, jnp.int32),
    )
    for first in range(0, len(documents_ND), _DOCUMENTS):
        block_ND = documents_ND[first : first + _DOCUMENTS]
        documents = _pad(block_ND, _DOCUMENTS), len(block_ND), first
        best = _merge(padded_QD, *documents, best)
    rows = slice(0, len(queries_QD))
    return Nearest(np.asarray(best.scores_QK)[rows], np.asarray(best.documents_QK, np.int64)[rows])


class _Best(NamedTuple):
    """The nearest of the documents so far; −∞ and −1 where there are fewer."""

    scores_QK: jax.Array
    documents_QK: jax.Array


@jax.jit
def _merge(
    queries_QD: jax.Array, documents_ND: jax.Array, num_documents: int, first: int, best: _Best
) -> _Best:
    """Add a block of documents, with numbers from `first`, to the nearest so far."""
    scores_QN = jnp.matmul(queries_QD, documents_ND.T, precision='highest')
    number_N = jnp.arange(len(documents_ND))
    scores_QN = jnp.where(number_N < num_documents, scores_QN, -jnp.inf)
    # lax.top_k keeps the order of equal scores, and earlier documents come first.
    scores_QX = jnp.concatenate([best.scores_QK, scores_QN], axis=1)
    documents_QX = jnp.concatenate(
        [best.documents_QK, jnp.broadcast_to(number_N + first, scores_QN.shape)], axis=1
    )
    scores_QK, place_QK = jax.lax.top_k(scores_QX, best.scores_QK.shape[1])
    return _Best(scores_QK, jnp.take_along_axis(documents_QX, place_QK, axis=1))


def _pad(vectors_XD: np.ndarray, number: int) -> np.ndarray:
    """Append rows of zeros up to a number of rows."""
    missing = number - len(vectors_XD)
    return np.pad(np.asarray(vectors_XD, np.float32), ((0, missing), (0, 0)))

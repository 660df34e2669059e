"""Scores of late interaction of texts with different numbers of tokens, in bounded memory.

The formula is that of `models/late_interaction.py`: each token of a query counts its largest
product with a token of the document (Khattab and Zaharia 2020, equation 3).
"""

from collections.abc import Callable, Sequence

import numpy as np

EMPTY = np.float32(-1e9)  # of a document without tokens: below all others
_BLOCK = 2**20  # products of tokens that are in memory at a time: they stay in the cache


def max_similarities(
    queries: Sequence[np.ndarray],
    tokens_YE: np.ndarray,
    offsets_N: np.ndarray,
    decode: Callable[[np.ndarray, slice], np.ndarray] | None = None,
    products: int = _BLOCK,
) -> np.ndarray:
    """Return the score of each query with each document, float32 [Q, N].

    Args:
        queries: the vectors of the tokens of each query, float32 [L, E].
        tokens_YE: the vectors of all documents, one after the other; may be memory-mapped.
        offsets_N: int64 [N + 1], the first token of each document, and the number of all tokens.
        decode: makes float32 vectors of a block of `tokens_YE` and its place there; None: they are
            numbers already.
        products: of tokens that are in memory at a time, about.
    """
    num_documents = len(offsets_N) - 1
    scores_QN = np.full((len(queries), num_documents), EMPTY, np.float32)
    bounds_Q = np.cumsum([0, *map(len, queries)])
    if not bounds_Q[-1] or not num_documents:
        scores_QN[:, np.diff(offsets_N) > 0] = 0
        return scores_QN
    queries_XE = np.concatenate(queries).astype(np.float32)
    has_tokens_Q = np.diff(bounds_Q) > 0
    for first, last in _blocks(offsets_N, max(1, products // len(queries_XE))):
        place = slice(int(offsets_N[first]), int(offsets_N[last]))
        block_YE = tokens_YE[place]
        block_YE = block_YE.astype(np.float32) if decode is None else decode(block_YE, place)
        chosen_M = first + np.flatnonzero(np.diff(offsets_N[first : last + 1]))
        if not len(chosen_M):
            continue
        products_YX = block_YE @ queries_XE.T
        best_MX = np.maximum.reduceat(products_YX, offsets_N[chosen_M] - place.start, axis=0)
        totals_MQ = np.zeros((len(chosen_M), len(queries)), np.float32)
        totals_MQ[:, has_tokens_Q] = np.add.reduceat(best_MX, bounds_Q[:-1][has_tokens_Q], axis=1)
        scores_QN[:, chosen_M] = totals_MQ.T
    return scores_QN


def of_texts(queries: Sequence[np.ndarray], documents: Sequence[np.ndarray]) -> np.ndarray:
    """Return `max_similarities` of texts that are given one by one, vectors [T, E]."""
    offsets_N = np.cumsum([0, *map(len, documents)])
    return max_similarities(queries, np.concatenate(documents), offsets_N)


def _blocks(offsets_N: np.ndarray, tokens: int) -> list[tuple[int, int]]:
    """Return the first and the last + 1 of documents with about so many tokens together."""
    blocks, first, number = [], 0, len(offsets_N) - 1
    while first < number:
        last = int(np.searchsorted(offsets_N, offsets_N[first] + tokens, side='right')) - 1
        last = min(max(last, first + 1), number)
        blocks.append((first, last))
        first = last
    return blocks

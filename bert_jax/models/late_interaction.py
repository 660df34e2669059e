"""Late interaction: a vector for each token, and scores that compare all of them.

Sources: Khattab and Zaharia 2020 (ColBERT), section 3; Lee et al. 2023 (XTR), section 3. L and K
are the tokens of a query and of a document, E the size of a vector.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

EMPTY = -1e9  # score of a document without tokens, as in sentence-transformers: below all others
SIMILARITIES = ('maxsim', 'meanmaxsim')
_LOWEST = float(jnp.finfo(jnp.float32).min)
_BLOCK = 2**24  # products of a block of documents that are in memory at a time


class LateInteraction(NamedTuple):
    """Which tokens of a text have a vector.

    Attributes:
        query_length, document_length: texts are truncated to this many tokens, special tokens
            included; None: the length of the model.
        expansion: tokens to which shorter queries are filled up; 0: none are.
        truncates: whether queries are truncated to `expansion`; otherwise to `query_length`.
        attends: whether tokens attend to those that fill up a query.
        expansion_token: what fills up queries; '': [MASK], or without it [SEP].
        skip_words: tokens without a vector.
        skips_in_queries: whether this holds for queries too, not only for documents.
        pool_factor: documents keep 1 / pool_factor of their vectors, the means of clusters; 1: all.
        protected_tokens: first vectors of a document that are in no cluster.
        normalizes_pooled: whether vectors have the norm 1 after pooling.
    """

    query_length: int | None = None
    document_length: int | None = None
    expansion: int = 0
    truncates: bool = True
    attends: bool = False
    expansion_token: str = ''
    skip_words: tuple[str, ...] = ()
    skips_in_queries: bool = False
    pool_factor: float = 1.0
    protected_tokens: int = 1
    normalizes_pooled: bool = True

    def longest(self, is_query: bool, longest: int) -> int:
        """Return the tokens of the longest query or document; the model has `longest` at most."""
        if is_query and self.expansion:
            limit = self.expansion if self.truncates else max(self.query_length or longest, 1)
            return min(max(limit, self.expansion), longest)
        return min((self.query_length if is_query else self.document_length) or longest, longest)


class TokenVectors(NamedTuple):
    """The vectors of the tokens of texts.

    Attributes:
        vectors_XTE: float32 [..., T, E].
        has_vector_XT: bool [..., T]; False for padding and for tokens without a vector.
    """

    vectors_XTE: jax.Array
    has_vector_XT: jax.Array


def max_similarities(queries: TokenVectors, documents: TokenVectors) -> jax.Array:
    """Return Σ over the tokens of a query of its largest product with a token of a document.

    ColBERT, equation 3. A few documents are compared at a time, and compared again in the
    backward pass, so the products of all tokens are never in memory together.

    Args:
        queries: of B queries, vectors [B, L, E].
        documents: of M documents, vectors [M, K, E].

    Returns:
        float32 [B, M]; EMPTY for documents without tokens.
    """
    queries_BLE, tokens = queries.vectors_XTE, documents.has_vector_XT.shape[1]

    @jax.checkpoint
    def of_document(document: TokenVectors) -> jax.Array:
        scores_BLK = jnp.einsum(
            'BLE,KE->BLK', queries_BLE, document.vectors_XTE, precision='highest'
        )
        return _sum_of_maxima(scores_BLK, queries.has_vector_XT, document.has_vector_XT)

    size = max(1, _BLOCK // max(1, queries_BLE.shape[0] * queries_BLE.shape[1] * tokens))
    scores_MB: jax.Array = jax.lax.map(of_document, documents, batch_size=size)
    return scores_MB.T


def own_max_similarities(queries: TokenVectors, documents: TokenVectors) -> jax.Array:
    """Return the score of each query and its own documents, float32 [B, N].

    Args:
        queries: of B queries, vectors [B, L, E].
        documents: of N documents of each query, vectors [B, N, K, E].
    """
    scores_BNLK = jnp.einsum(
        'BLE,BNKE->BNLK', queries.vectors_XTE, documents.vectors_XTE, precision='highest'
    )
    has_vector_B1L = queries.has_vector_XT[:, None]
    return _sum_of_maxima(scores_BNLK, has_vector_B1L, documents.has_vector_XT[:, :, None])


def _sum_of_maxima(
    scores_XLK: jax.Array, is_query_token_XL: jax.Array, is_token_XK: jax.Array
) -> jax.Array:
    """Sum the largest score of each query token; masks have axes that broadcast."""
    is_token_XK = jnp.broadcast_to(is_token_XK, scores_XLK.shape)
    best_XL = jnp.max(scores_XLK, axis=-1, where=is_token_XK, initial=_LOWEST)
    has_tokens_XL = is_token_XK.any(-1)
    total_X = jnp.sum(jnp.where(has_tokens_XL, best_XL, 0) * is_query_token_XL, axis=-1)
    return jnp.where(has_tokens_XL.any(-1), total_X, EMPTY)


def number_of_tokens(queries: TokenVectors) -> jax.Array:
    """Return how many tokens of each query have a vector, at least 1, float32 [B]."""
    return jnp.maximum(queries.has_vector_XT.sum(-1), 1).astype(jnp.float32)


@functools.partial(jax.jit, static_argnums=2)
def retrieved_similarities(queries: TokenVectors, documents: TokenVectors, top_k: int) -> jax.Array:
    """Return the scores of XTR: each query token counts the tokens that a search would find.

    The `top_k` nearest of all tokens of all documents are found for each query token; the score is
    the sum of the maxima over the found tokens of a document, divided by the number of query tokens
    that found any (Lee et al. 2023, equation 5; 0 if none did).

    Args:
        queries: of B queries, vectors [B, L, E].
        documents: of M documents, vectors [M, K, E].
        top_k: number of tokens that each query token finds.

    Returns:
        float32 [B, M]; EMPTY for documents without tokens.
    """
    scores_BLMK = jnp.einsum(
        'BLE,MKE->BLMK', queries.vectors_XTE, documents.vectors_XTE, precision='highest'
    )
    is_token_MK = documents.has_vector_XT
    scores_BLMK = jnp.where(is_token_MK, scores_BLMK, _LOWEST)
    flat_BLX = scores_BLMK.reshape(*scores_BLMK.shape[:2], -1)
    _, found_BLP = jax.lax.top_k(jax.lax.stop_gradient(flat_BLX), min(top_k, flat_BLX.shape[-1]))
    b_B11, l_1L1 = jnp.ogrid[: flat_BLX.shape[0], : flat_BLX.shape[1], :1][:2]
    is_found_BLX = jnp.zeros(flat_BLX.shape, bool).at[b_B11, l_1L1, found_BLP].set(True)
    is_found_BLMK = is_found_BLX.reshape(scores_BLMK.shape) & is_token_MK
    is_found_BLMK &= queries.has_vector_XT[:, :, None, None]
    best_BLM = jnp.max(scores_BLMK, axis=-1, where=is_found_BLMK, initial=_LOWEST)
    has_found_BLM = is_found_BLMK.any(-1)
    total_BM = jnp.sum(jnp.where(has_found_BLM, best_BLM, 0), axis=1)
    score_BM = total_BM / jnp.maximum(has_found_BLM.sum(1), 1)
    return jnp.where(is_token_MK.any(-1), score_BM, EMPTY)

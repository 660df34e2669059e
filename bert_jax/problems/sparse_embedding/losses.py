"""Losses on sparse vectors, and the regularizer that makes them sparse."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from bert_jax.problems.embedding.distillation import DistillKL
from bert_jax.problems.embedding.in_batch import InBatch
from bert_jax.types import Array


@dataclasses.dataclass(frozen=True)
class SparseInBatch(InBatch):
    """InfoNCE of dot products, without a temperature (Formal et al. 2021, SPLADE v2, section 3)."""

    scale: float = 1.0
    similarity: str = 'dot'


@dataclasses.dataclass(frozen=True)
class SparseDistillKL(DistillKL):
    """The divergence from the scores of a teacher, at temperature 2."""

    temperature: float = 2.0


def flops(vectors_XV: jax.Array, is_present_X: Array, threshold: int = 0) -> jax.Array:
    """Return Σ_v (mean_x |vectors_xv|)², the expected products of a search, without a factor.

    Paria et al. 2020, "Minimizing FLOPs to learn efficient sparse representations", equation 3; the
    weights of SPLADE are not negative.

    Args:
        vectors_XV: not negative.
        is_present_X: which texts exist.
        threshold: texts with at most so many terms count as zeros; they stay in the mean.
    """
    counted_X = jnp.asarray(is_present_X)
    number = jnp.maximum(jnp.sum(counted_X), 1)
    if threshold:
        counted_X &= jnp.sum(vectors_XV != 0, axis=-1) > threshold
    mean_V = jnp.sum(jnp.where(counted_X[:, None], vectors_XV, 0), axis=0) / number
    return jnp.sum(jnp.square(mean_V))


def mean_active(vectors_XV: jax.Array, is_present_X: Array) -> jax.Array:
    """Return the mean number of terms with a weight, of texts that exist."""
    active_X = jnp.sum(vectors_XV != 0, axis=-1, where=jnp.asarray(is_present_X)[:, None])
    return jnp.sum(active_X) / jnp.maximum(jnp.sum(is_present_X), 1)


# `problem.warmup` → function of the share of the warm-up that has passed, 0 to 1.
WARMUPS: dict[str, Callable[[jax.Array], jax.Array]] = {
    'quadratic': lambda share: jnp.square(share),
    'linear': lambda share: share,
}


def warmup(kind: str, length: float, progress: ArrayLike) -> jax.Array:
    """Return the factor of the regularizer, from 0 to 1 (SPLADE v2, section 4).

    Args:
        kind: key of WARMUPS.
        length: share of the run after which the factor is 1; 0: it is always 1.
        progress: share of the run that has passed.
    """
    if not length:
        return jnp.ones((), jnp.float32)
    share: jax.Array = jnp.minimum(jnp.asarray(progress) / length, 1)
    return WARMUPS[kind](share)

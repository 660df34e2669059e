"""Losses and metrics as (sum, count) pairs, summed over everything and divided once.

A mean of means depends on how a batch was cut; a sum and a count do not. So the result is the same
on one device, on a pod, and with any number of accumulation steps.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.types import Array


class Term(NamedTuple):
    """Float32 scalars: `sum` over `count` things such as masked tokens or sentence pairs."""

    sum: jax.Array
    count: jax.Array


Terms = dict[str, Term]


def weighted_sum(values_X: Array, weights_X: Array) -> Term:
    """Σ values · weights and Σ weights, in float32."""
    weights_X = jnp.asarray(weights_X, jnp.float32)
    return Term(jnp.sum(values_X.astype(jnp.float32) * weights_X), jnp.sum(weights_X))


def add(total: Terms, terms: Terms) -> Terms:
    """Sums and counts added by name; an empty total is zero."""
    return {
        name: Term(term.sum + total[name].sum, term.count + total[name].count) if total else term
        for name, term in terms.items()
    }


def mean(term: Term) -> jax.Array:
    """sum / count; 0 where nothing was counted."""
    return term.sum / jnp.maximum(term.count, 1.0)


def loss(terms: Terms, weights: dict[str, float], counts: dict[str, jax.Array]) -> jax.Array:
    """Σ weight · sum / count over the terms that have a weight; the counts are those of the whole
    global batch.
    """
    return sum(
        weight * terms[name].sum / jnp.maximum(counts[name], 1.0)
        for name, weight in weights.items()
    )

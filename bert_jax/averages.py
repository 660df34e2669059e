"""Losses and metrics as (sum, count) pairs, added up over the global batch and divided once.

A mean of means depends on how a batch is divided; sums and counts do not. Results are therefore
the same on one device, on many, and with any number of micro-batches.
"""

import functools
import operator
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.types import Array


class Term(NamedTuple):
    """A sum over `count` items, such as masked tokens or sentence pairs; float32 scalars."""

    sum: jax.Array
    count: jax.Array  # type: ignore[assignment]  # hides the method tuple.count


Terms = dict[str, Term]


def weighted_sum(values_X: Array, weights_X: Array) -> Term:
    """Return Σ values · weights and Σ weights, in float32."""
    weights_X = jnp.asarray(weights_X, jnp.float32)
    return Term(jnp.sum(values_X.astype(jnp.float32) * weights_X), jnp.sum(weights_X))


def add(total: Terms, terms: Terms) -> Terms:
    """Add sums and counts by name; an empty total counts as zero."""
    return jax.tree.map(operator.add, total, terms) if total else terms


def scale(terms: Terms, factor: float) -> Terms:
    """Multiply sums and counts, which leaves the means as they are."""
    scaled: Terms = jax.tree.map(lambda value: factor * value, terms)
    return scaled


def mean(term: Term) -> jax.Array:
    """Return sum / count, or 0 if nothing was counted: for a loss, never for a report."""
    return term.sum / _divisor(term.count)


def means(terms: Terms) -> dict[str, float]:
    """Return the mean of every term by name, except terms with a count of 0."""
    return {name: float(mean(term)) for name, term in terms.items() if term.count > 0}


def means_and_loss(terms: Terms, weights: Mapping[str, float]) -> dict[str, float]:
    """Return `means` and 'loss', their weighted sum, if any term with a weight has a mean."""
    values = means(terms)
    weighted = [weight * values[name] for name, weight in weights.items() if name in values]
    return ({'loss': sum(weighted)} if weighted else {}) | values


def loss(terms: Terms, weights: Mapping[str, float], counts: Mapping[str, jax.Array]) -> jax.Array:
    """Return Σ weight · sum / count over the terms with a weight.

    `counts` cover the whole global batch, even if `terms` come from one micro-batch.
    """
    weighted = [
        weight * terms[name].sum / _divisor(counts[name]) for name, weight in weights.items()
    ]
    return functools.reduce(operator.add, weighted)


def _divisor(count: jax.Array) -> jax.Array:
    """Return the count, which may be a sum of weights below 1, or 1 if nothing was counted."""
    return jnp.where(count > 0, count, 1.0)

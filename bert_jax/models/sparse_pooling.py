"""Weights of the terms of the vocabulary in a text, from the logits of its tokens."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.models.rows import Rows

# Name → function that pools weights [R, T, V] over the tokens.
STRATEGIES: dict[str, Callable[[jax.Array], jax.Array]] = {
    'max': lambda weights_RTV: weights_RTV.max(1),
    'sum': lambda weights_RTV: weights_RTV.sum(1),
}
# Name → function of logits, not below 0, that gives the weight of a term at a token.
ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    'relu': lambda x: jnp.log1p(x),
    'log1p_relu': lambda x: jnp.log1p(jnp.log1p(x)),
}


class SparsePooling(NamedTuple):
    """How logits of tokens become the weights of terms (Formal et al. 2021, SPLADE v2, section 3).

    Attributes:
        strategy: 'max' or 'sum' over the tokens of log(1 + relu(logit)).
        activation: 'relu', or 'log1p_relu', which takes the logarithm twice.
        max_active: how many terms of a text keep their weight, the largest; None: all.
    """

    strategy: str = 'max'
    activation: str = 'relu'
    max_active: int | None = None

    def pool(self, logits_RTV: jax.Array, rows: Rows) -> jax.Array:
        """Return the weights of all terms in each sequence, float32 [R, S, V].

        Special tokens are pooled like others. `max_active` is left to the caller.

        Args:
            logits_RTV: of every token.
            rows: rows, which may pack several sequences; S = 1 for one sequence per row.
        """

        @jax.checkpoint  # otherwise the weights of every token are kept once for each sequence
        def pool_sequence(member_RT: jax.Array) -> jax.Array:
            logits = jax.nn.relu(logits_RTV) * member_RT[..., None]
            return STRATEGIES[self.strategy](ACTIVATIONS[self.activation](logits))

        members_SRT = jnp.moveaxis(rows.members(), 1, 0)
        return jnp.moveaxis(jax.lax.map(pool_sequence, members_SRT), 0, 1)

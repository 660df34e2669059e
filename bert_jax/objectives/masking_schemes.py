"""Masking schemes: which tokens of an example are predicted.

A scheme chooses single tokens, whole words, spans or n-grams. It is a subclass of `Scheme`
(token_rows.py) and a line in SCHEMES.
"""

import dataclasses

import jax
import jax.numpy as jnp

from bert_jax.errors import unknown
from bert_jax.lazy_table import LazyTable
from bert_jax.objectives.token_rows import BudgetedScheme, ChosenPositions, Scheme, TokenRow
from bert_jax.types import Key


@dataclasses.dataclass(frozen=True)
class Tokens(BudgetedScheme):
    """Single tokens, uniformly without replacement (Devlin et al. 2019)."""

    def choose(self, key: Key, row: TokenRow, num_predictions: int) -> ChosenPositions:
        score_T = jnp.where(row.can_choose_T, jax.random.uniform(key, row.input_ids_T.shape), -1.0)
        n_X, budget_ids_T = self.num_to_choose(row, num_predictions), self.budget_ids(row)
        if budget_ids_T is not None:  # keep the n best of each sequence
            order_T = jnp.lexsort((-score_T, budget_ids_T))
            budget_ids_T = budget_ids_T[order_T]
            nth_T = jnp.arange(len(order_T)) - jnp.searchsorted(budget_ids_T, budget_ids_T)
            score_T = jnp.where(jnp.zeros_like(n_X).at[order_T].set(nth_T) < n_X, score_T, -1.0)
            n_X = jnp.int32(num_predictions)
        score_P, positions_P = jax.lax.top_k(score_T, num_predictions)
        return ChosenPositions(positions_P, jnp.minimum(n_X, jnp.sum(score_P >= 0)))


SCHEMES: LazyTable[type[Scheme]] = LazyTable(
    {
        'tokens': Tokens,
        'whole_words': 'bert_jax.objectives.ngram_masking:WholeWords',
        'spans': 'bert_jax.objectives.span_masking:Spans',
        'anchored_spans': 'bert_jax.objectives.span_masking:AnchoredSpans',
        'ngrams': 'bert_jax.objectives.ngram_masking:Ngrams',
    }
)


def find_scheme(name: str) -> type[Scheme]:
    """Return the masking scheme with this name; raise UserError if there is none."""
    if name not in SCHEMES:
        raise unknown('masking.scheme', name, SCHEMES)
    return SCHEMES[name]

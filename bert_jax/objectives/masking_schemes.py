"""Masking schemes: which tokens of an example are predicted.

A scheme chooses single tokens, whole words, spans or n-grams. It is a function with the signature
of `Choose` and a line in SCHEMES. Shapes are static: all random numbers are drawn at once, in the
order of a sequential algorithm, and counts or a loop determine which of them are used.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from bert_jax.objectives.ngram_masking import choose_ngrams, choose_words
from bert_jax.objectives.span_masking import choose_anchored_spans, choose_spans
from bert_jax.objectives.token_rows import ChosenPositions, TokenRow, num_to_choose
from bert_jax.types import Key

if TYPE_CHECKING:
    from bert_jax.objectives.masking import Masking


def choose_tokens(
    key: Key, row: TokenRow, masking: 'Masking', num_predictions: int
) -> ChosenPositions:
    """Choose single tokens, uniformly without replacement (Devlin et al. 2019)."""
    score_T = jnp.where(row.can_choose_T, jax.random.uniform(key, row.input_ids_T.shape), -1.0)
    n_X = num_to_choose(row, masking, num_predictions)
    if row.budget_ids_T is not None:  # keep the n best of each sequence
        order_T = jnp.lexsort((-score_T, row.budget_ids_T))
        budget_ids_T = row.budget_ids_T[order_T]
        nth_T = jnp.arange(len(order_T)) - jnp.searchsorted(budget_ids_T, budget_ids_T)
        score_T = jnp.where(jnp.zeros_like(n_X).at[order_T].set(nth_T) < n_X, score_T, -1.0)
        n_X = jnp.int32(num_predictions)
    score_P, positions_P = jax.lax.top_k(score_T, num_predictions)
    return ChosenPositions(positions_P, jnp.minimum(n_X, jnp.sum(score_P >= 0)))


Choose: TypeAlias = Callable[[Key, TokenRow, 'Masking', int], ChosenPositions]


class Scheme(NamedTuple):
    """An entry of SCHEMES.

    Attributes:
        choose: Function of (key, row, masking, num_predictions).
        needs_words: Whether the vocabulary must mark where words start.
        shares_draws: Whether adjacent chosen tokens are replaced alike: by [MASK], by random tokens
            or not at all.
        options: Config keys that this scheme reads and some other schemes do not.
    """

    choose: Choose
    needs_words: bool = False
    shares_draws: bool = False
    options: tuple[str, ...] = ()


_WORDS = ('masking.word_starts', 'masking.unspaced')
_SPANS = (*_WORDS, 'masking.span_p', 'masking.longest_span')
SCHEMES = {
    'tokens': Scheme(choose_tokens),
    'whole_words': Scheme(choose_words, True, options=_WORDS),
    'spans': Scheme(choose_spans, True, shares_draws=True, options=_SPANS),
    'anchored_spans': Scheme(choose_anchored_spans, True, shares_draws=True, options=_SPANS),
    'ngrams': Scheme(choose_ngrams, True, options=(*_WORDS, 'masking.longest_ngram')),
}

"""Masking schemes: which tokens of an example are predicted.

A scheme chooses single tokens, whole words, spans or n-grams. It is a subclass of `Scheme` and a
line in SCHEMES.
"""

import abc
import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.errors import unknown
from bert_jax.lazy_table import LazyTable
from bert_jax.types import Key


class TokenRow(NamedTuple):
    """One example or packed row, arrays of length T.

    Attributes:
        input_ids_T: int32.
        attention_mask_T: int32.
        can_choose_T: bool, neither special nor padding.
        segment_ids_T: int32, the number of the sequence in a packed row; None if rows are not
            packed.
        is_word_start_T: bool, whether the vocabulary marks a token as the start of a word; None
            unless the scheme needs words.
    """

    input_ids_T: jax.Array
    attention_mask_T: jax.Array
    can_choose_T: jax.Array
    segment_ids_T: jax.Array | None
    is_word_start_T: jax.Array | None


class ChosenPositions(NamedTuple):
    """P distinct positions, int32; the first `number` (int32 scalar) are chosen."""

    positions_P: jax.Array
    number: jax.Array


@dataclasses.dataclass(frozen=True)
class Scheme(abc.ABC):
    """Chooses the tokens of a row that are predicted.

    Every field is an option, read from the key of that name in `config.masking`.

    Attributes:
        rate: Share of the tokens to choose; the scheme defines which tokens count. In the step of
            a run whose rate changes, a traced scalar.
        needs_words: Whether the vocabulary must mark where words start.
        shares_draws: Whether adjacent chosen tokens are replaced alike: by [MASK], by random tokens
            or not at all.
        objective: The objective that must be enabled; None: any that predicts chosen tokens.
        adapts: Whether the choice depends on the predictions of the steps before.
    """

    rate: float | jax.Array

    needs_words: ClassVar[bool] = False
    shares_draws: ClassVar[bool] = False
    objective: ClassVar[str | None] = None
    adapts: ClassVar[bool] = False

    @classmethod
    def options(cls) -> tuple[str, ...]:
        """Return the names of the options."""
        return tuple(field.name for field in dataclasses.fields(cls))

    @abc.abstractmethod
    def choose(self, key: Key, row: TokenRow, num_predictions: int) -> ChosenPositions:
        """Choose at most `num_predictions` tokens of a row.

        Shapes are static: all random numbers are drawn at once, in the order of a sequential
        algorithm, and counts or a loop determine which of them are used.
        """


@dataclasses.dataclass(frozen=True)
class BudgetedScheme(Scheme):
    """A scheme that chooses round(rate · length) tokens, special tokens counted.

    Attributes:
        per_sequence: Whether each sequence of a packed row has its own budget.
    """

    per_sequence: bool

    def budget_ids(self, row: TokenRow) -> jax.Array | None:
        """Return int32 [T]: tokens with the same id share a budget; None: one for the row."""
        return row.segment_ids_T if self.per_sequence else None

    def num_to_choose(self, row: TokenRow, num_predictions: int) -> jax.Array:
        """Return the budget n = min(num_predictions, max(1, round(rate · length))).

        Source: google-research/bert create_pretraining_data.py, create_masked_lm_predictions.

        Returns:
            int32: for the row, or [T] for the sequence of each token.
        """
        mask_T, budget_ids_T = row.attention_mask_T, self.budget_ids(row)
        if budget_ids_T is None:
            length_X = jnp.sum(mask_T)
        else:
            length_X = jax.ops.segment_sum(mask_T, budget_ids_T, len(mask_T) + 1)[budget_ids_T]
        return jnp.clip(jnp.round(self.rate * length_X), 1, num_predictions).astype(jnp.int32)


class RowWords(NamedTuple):
    """The words of a row in order, in T slots; the first `number` slots are used.

    A word ends where the next one starts. Special tokens do not belong to a word and end the word
    before them. The first token of a text starts a word even if the vocabulary marks it as a
    continuation. Unused slots hold (T, T, 0).

    Attributes:
        first_W: int32, first token.
        stop_W: int32, one past the last token.
        left_W: int32, number of words from this one up to the next special token.
        number: int32 scalar, how many words there are.
        index_T: int32, index of each token's word; arbitrary for special tokens and padding.
    """

    first_W: jax.Array
    stop_W: jax.Array
    left_W: jax.Array
    number: jax.Array
    index_T: jax.Array


def find_words(row: TokenRow) -> RowWords:
    """Find the words of a row."""
    length, can_choose_T = len(row.input_ids_T), row.can_choose_T
    assert row.is_word_start_T is not None
    starts_T = row.is_word_start_T | ~jnp.pad(can_choose_T[:-1], (1, 0))
    is_first_T = can_choose_T & starts_T
    continues_T = jnp.pad(can_choose_T & ~starts_T, (0, 1))[1:]
    is_last_T = can_choose_T & ~continues_T
    first_W, last_W = (
        jnp.nonzero(is_end_T, size=length, fill_value=length)[0]
        for is_end_T in (is_first_T, is_last_T)
    )
    # Words from a token on, minus the words after the next special token.
    ahead_T = jax.lax.cumsum(is_first_T.astype(jnp.int32), reverse=True)
    beyond_T = jax.lax.cummax(jnp.where(can_choose_T, 0, ahead_T), reverse=True)
    return RowWords(
        first_W,
        jnp.minimum(last_W + 1, length),
        (ahead_T - beyond_T).at[first_W].get(mode='fill', fill_value=0),
        jnp.sum(is_first_T),
        jnp.cumsum(is_first_T) - 1,
    )


def lowest_ranks(rank_T: jax.Array, num_predictions: int) -> jax.Array:
    """Return the positions of the lowest ranks; equal ranks from left to right."""
    return jnp.argsort(rank_T, stable=True)[:num_predictions]


def draw_lengths(key: Key, probability_L: np.ndarray, shape: tuple[int, ...]) -> jax.Array:
    """Draw numbers from 1 … L with these probabilities, int32 of the given shape."""
    below_L = jnp.asarray(np.cumsum(probability_L)[:-1], jnp.float32)
    return 1 + jnp.sum(jax.random.uniform(key, shape)[..., None] >= below_L, axis=-1)


@dataclasses.dataclass(frozen=True)
class Tokens(BudgetedScheme):
    """Single tokens, uniformly without replacement (Devlin et al. 2019)."""

    def choose(self, key: Key, row: TokenRow, num_predictions: int) -> ChosenPositions:
        score_T = jnp.where(row.can_choose_T, self.scores(key, row), -1.0)
        n_X, budget_ids_T = self.num_to_choose(row, num_predictions), self.budget_ids(row)
        if budget_ids_T is not None:  # keep the n best of each sequence
            order_T = jnp.lexsort((-score_T, budget_ids_T))
            budget_ids_T = budget_ids_T[order_T]
            nth_T = jnp.arange(len(order_T)) - jnp.searchsorted(budget_ids_T, budget_ids_T)
            score_T = jnp.where(jnp.zeros_like(n_X).at[order_T].set(nth_T) < n_X, score_T, -1.0)
            n_X = jnp.int32(num_predictions)
        score_P, positions_P = jax.lax.top_k(score_T, num_predictions)
        return ChosenPositions(positions_P, jnp.minimum(n_X, jnp.sum(score_P >= 0)))

    def scores(self, key: Key, row: TokenRow) -> jax.Array:
        """Draw a number in [0, 1) for each token, float32 [T]; the largest are chosen."""
        return jax.random.uniform(key, row.input_ids_T.shape)


SCHEMES: LazyTable[type[Scheme]] = LazyTable(
    {
        'tokens': Tokens,
        'whole_words': 'bert_jax.objectives.ngram_masking:WholeWords',
        'spans': 'bert_jax.objectives.span_masking:WordSpans',
        'anchored_spans': 'bert_jax.objectives.span_masking:AnchoredSpans',
        'ngrams': 'bert_jax.objectives.ngram_masking:Ngrams',
        'spaced_ngrams': 'bert_jax.objectives.spaced_ngrams:SpacedNgrams',
        'adaptive': 'bert_jax.objectives.adaptive_masking:AdaptiveTokens',
    }
)


def find_scheme(name: str) -> type[Scheme]:
    """Return the masking scheme with this name; raise UserError if there is none."""
    if name not in SCHEMES:
        raise unknown('masking.scheme', name, SCHEMES)
    return SCHEMES[name]

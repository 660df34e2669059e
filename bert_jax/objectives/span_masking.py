"""Masking of spans, as in SpanBERT's paper and as in its code. Local letter: C drawn spans."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.objectives.masking_schemes import (
    ChosenPositions,
    RowWords,
    Scheme,
    TokenRow,
    draw_lengths,
    find_words,
    lowest_ranks,
)
from bert_jax.types import Key


class DrawnSpans(NamedTuple):
    """Spans of whole words in the order in which they were drawn; they may overlap.

    Attributes:
        num_words_C: int32.
        start_C: int32, first token.
        stop_C: int32, one past the last token; equal to `start_C` if no place was long enough.
    """

    num_words_C: jax.Array
    start_C: jax.Array
    stop_C: jax.Array


@dataclasses.dataclass(frozen=True)
class WordSpans(Scheme):
    """Spans of words (Joshi et al. 2020, section 3.1); `rate` applies to the whole row.

    Lengths are geometric, truncated and renormalized; starts are uniform; spans that overlap or
    touch merge. Spans are drawn until the number of tokens to choose is reached; the last span is
    cut off there, even inside a word (facebookresearch/SpanBERT, pretraining/fairseq
    data/masking.py).

    Attributes:
        span_p: Parameter p of the geometric distribution of span lengths.
        longest_span: Maximum length of a span in words.
    """

    span_p: float
    longest_span: int

    needs_words = shares_draws = True

    def choose(self, key: Key, row: TokenRow, num_predictions: int) -> ChosenPositions:
        spans = self.draw(key, find_words(row), row, num_predictions)
        first_T = first_to_cover(spans, len(row.input_ids_T))
        n = num_in_spans(row.can_choose_T, self.rate, num_predictions)
        count = jnp.minimum(n, jnp.sum(first_T < len(spans.start_C)))
        return ChosenPositions(lowest_ranks(first_T, num_predictions), count)

    def draw(self, key: Key, words: RowWords, row: TokenRow, num_predictions: int) -> DrawnSpans:
        """Draw 2 · `num_predictions` spans."""
        spans_key, _ = jax.random.split(key)
        return draw_spans(spans_key, words, self.probabilities(), 2 * num_predictions)

    def probabilities(self) -> np.ndarray:
        """Return p(1 … longest_span) of the geometric distribution p(ℓ) ∝ (1 − p)^(ℓ−1) p."""
        p = (1 - self.span_p) ** np.arange(self.longest_span)
        return np.asarray(p / p.sum())


@dataclasses.dataclass(frozen=True)
class AnchoredSpans(WordSpans):
    """Spans of words as SpanBERT's code chooses them, which differs from the paper.

    A span starts with the word of a token that is drawn uniformly from the tokens not chosen yet,
    so long words start more spans. It ends early at the end of its segment.

    Source: facebookresearch/SpanBERT, pretraining/fairseq data/masking.py,
    PairWithSpanMaskingScheme.
    """

    def draw(self, key: Key, words: RowWords, row: TokenRow, num_predictions: int) -> DrawnSpans:
        """Draw spans; those whose anchor is already chosen are empty."""
        anchor_key, length_key = jax.random.split(key)
        draws, length = 2 * num_predictions, len(row.input_ids_T)
        candidate_T = jnp.nonzero(row.can_choose_T, size=length, fill_value=0)[0]
        number = jnp.sum(row.can_choose_T)
        nth_C = (jax.random.uniform(anchor_key, (draws,)) * number).astype(jnp.int32)
        anchor_C = candidate_T[nth_C]
        word_C = words.index_T[anchor_C]
        num_words_C = jnp.minimum(
            draw_lengths(length_key, self.probabilities(), (draws,)), words.left_W[word_C]
        )
        start_C = words.first_W[word_C]
        stop_C = jnp.where(number > 0, words.stop_W[word_C + num_words_C - 1], start_C)

        def keep(kept_C: jax.Array) -> DrawnSpans:
            return DrawnSpans(num_words_C, start_C, jnp.where(kept_C, stop_C, start_C))

        def update(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            """Decide which spans are kept; each pass settles at least one more, mostly all."""
            kept_C, _ = state
            new_C = first_to_cover(keep(kept_C), length)[anchor_C] >= jnp.arange(draws)
            return new_C, jnp.any(new_C != kept_C)

        everything = (jnp.ones(draws, bool), jnp.bool_(True))
        kept_C, _ = jax.lax.while_loop(lambda state: state[1], update, everything)
        return keep(kept_C)


def num_in_spans(
    can_choose_T: jax.Array, rate: float | jax.Array, num_predictions: int
) -> jax.Array:
    """Return n = min(num_predictions, ceil(rate · length)), special tokens not counted.

    Source: facebookresearch/SpanBERT, pretraining/fairseq data/masking.py, which adds [CLS] and
    [SEP] to its sequences afterwards.
    """
    n = jnp.ceil(rate * jnp.sum(can_choose_T) - 1e-4)  # a rounding error must not add one
    return jnp.clip(n, 0, num_predictions).astype(jnp.int32)


def draw_spans(key: Key, words: RowWords, probability_L: np.ndarray, number: int) -> DrawnSpans:
    """Draw `number` spans: a length in words, then a start.

    The start is uniform over the words from which that many words follow without a special token
    between them. `probability_L` holds the probabilities of the lengths 1 … L.
    """
    length_key, start_key = jax.random.split(key)
    longest, slots = len(probability_L), len(words.first_W)
    num_words_C = draw_lengths(length_key, probability_L, (number,))
    # places_LW[l, w]: possible starts of a span of l + 1 words at word w or before. Its rows are
    # concatenated into one increasing sequence, so that one search serves all lengths.
    fits_LW = words.left_W > jnp.arange(longest)[:, None]
    places_LW = jnp.cumsum(fits_LW, axis=1)
    rows_LW = places_LW + (slots + 1) * jnp.arange(longest)[:, None]
    num_places_C = places_LW[num_words_C - 1, -1]
    nth_C = (jax.random.uniform(start_key, (number,)) * num_places_C).astype(jnp.int32)
    value_C = (slots + 1) * (num_words_C - 1) + jnp.minimum(nth_C, num_places_C - 1)
    index_C = jnp.searchsorted(rows_LW.ravel(), value_C, side='right')
    word_C = index_C - slots * (num_words_C - 1)
    start_C = words.first_W[word_C]
    stop_C = words.stop_W[word_C + num_words_C - 1]
    return DrawnSpans(num_words_C, start_C, jnp.where(num_places_C > 0, stop_C, start_C))


def first_to_cover(spans: DrawnSpans, length: int) -> jax.Array:
    """Return the index of the first span that covers each token, int32 [T]; C if none does.

    A span is the union of two blocks of 2^k tokens, from the largest k that fits. The lowest index
    of each block passes to its two halves, from the longest blocks to single tokens.
    """
    number = len(spans.start_C)
    tokens_C = spans.stop_C - spans.start_C
    longest = max(length - 1, 1).bit_length()
    k_C = jnp.sum(tokens_C[:, None] >= 2 ** jnp.arange(1, longest + 1), axis=1)
    second_C = jnp.where(tokens_C > 0, spans.stop_C - 2**k_C, length)
    first_C = jnp.where(tokens_C > 0, spans.start_C, length)  # beyond the row: dropped
    lowest_KT = jnp.full((longest + 1, length), number)
    for start_C in (first_C, second_C):
        lowest_KT = lowest_KT.at[k_C, start_C].min(jnp.arange(number), mode='drop')
    first_T = lowest_KT[-1]
    for k in reversed(range(longest)):
        later_T = jnp.pad(first_T, (2**k, 0), constant_values=number)[:length]
        first_T = jnp.minimum(lowest_KT[k], jnp.minimum(first_T, later_T))
    return first_T

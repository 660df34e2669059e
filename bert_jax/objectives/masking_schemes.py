"""Masking schemes: which tokens of an example are predicted.

A scheme chooses single tokens, whole words, spans or n-grams. It is a function with the signature
of `Choose` and a line in SCHEMES. Shapes are static and there are no loops over draws: all random
numbers are drawn at once, in the order in which a sequential algorithm would draw them, and
cumulative counts tell which of them are used.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.types import Key

if TYPE_CHECKING:
    from bert_jax.objectives.masking import Masking

_WORD_PASSES = 4  # of choose_words over the remaining words
_OVERLAP_PASSES = 7  # of drop_overlaps; must be odd


class TokenRow(NamedTuple):
    """One example, arrays of length T.

    Attributes:
        input_ids_T: int32.
        attention_mask_T: int32.
        can_choose_T: bool, neither special nor padding.
    """

    input_ids_T: jax.Array
    attention_mask_T: jax.Array
    can_choose_T: jax.Array


class ChosenPositions(NamedTuple):
    """P distinct positions, int32; the first `number` (int32 scalar) are chosen."""

    positions_P: jax.Array
    number: jax.Array


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


class Words(NamedTuple):
    """The words of a row in order, in T slots of which the first `number` are used.

    A word ends where the next one starts. Special tokens do not belong to a word and end the word
    before them. The first token of a text starts a word even if the vocabulary marks it as a
    continuation. Unused slots hold (T, T, 0).

    Attributes:
        first_W: int32, first token.
        stop_W: int32, one past the last token.
        left_W: int32, number of words from this one up to the next special token.
        number: int32 scalar, how many words there are.
        index_T: int32, index of each token's word; arbitrary for special tokens and padding.
        is_last_T: bool, last token of a word.
    """

    first_W: jax.Array
    stop_W: jax.Array
    left_W: jax.Array
    number: jax.Array
    index_T: jax.Array
    is_last_T: jax.Array


def num_to_choose(attention_mask_T: jax.Array, rate: float, num_predictions: int) -> jax.Array:
    """Return n = min(num_predictions, max(1, round(rate · length))), special tokens counted.

    Source: google-research/bert create_pretraining_data.py, create_masked_lm_predictions.
    """
    length = jnp.sum(attention_mask_T)
    return jnp.clip(jnp.round(rate * length), 1, num_predictions).astype(jnp.int32)


def num_in_spans(can_choose_T: jax.Array, rate: float, num_predictions: int) -> jax.Array:
    """Return n = min(num_predictions, ceil(rate · length)), special tokens not counted.

    Source: facebookresearch/SpanBERT, pretraining/fairseq data/masking.py, which adds [CLS] and
    [SEP] to its sequences afterwards.
    """
    n = jnp.ceil(rate * jnp.sum(can_choose_T) - 1e-4)  # a rounding error must not add one
    return jnp.clip(n, 0, num_predictions).astype(jnp.int32)


def choose_tokens(
    key: Key, row: TokenRow, masking: 'Masking', num_predictions: int
) -> ChosenPositions:
    """Choose single tokens, uniformly without replacement (Devlin et al. 2019)."""
    score_T = jnp.where(row.can_choose_T, jax.random.uniform(key, row.input_ids_T.shape), -1.0)
    score_P, positions_P = jax.lax.top_k(score_T, num_predictions)
    n = num_to_choose(row.attention_mask_T, masking.rate, num_predictions)
    return ChosenPositions(positions_P, jnp.minimum(n, jnp.sum(score_P >= 0)))


def choose_words(
    key: Key, row: TokenRow, masking: 'Masking', num_predictions: int
) -> ChosenPositions:
    """Choose whole words in random order, skipping words that exceed the remaining number.

    Source: google-research/bert create_pretraining_data.py with do_whole_word_mask. The remaining
    number shrinks with every pass, so a few passes find all words that fit.
    """
    words = find_words(row.input_ids_T, row.can_choose_T, masking.is_word_start)
    length = len(row.input_ids_T)
    is_used_W = jnp.arange(length) < words.number
    order_W = jnp.argsort(jnp.where(is_used_W, jax.random.uniform(key, (length,)), 2.0))
    tokens_W = (words.stop_W - words.first_W)[order_W]
    left = num_to_choose(row.attention_mask_T, masking.rate, num_predictions)
    taken_W, next_W = jnp.zeros(length, bool), is_used_W
    for _ in range(_WORD_PASSES):
        next_W &= tokens_W <= left
        fits_W = jnp.cumsum(jnp.where(next_W, tokens_W, 0)) <= left
        taken_W |= next_W & fits_W
        left -= jnp.sum(jnp.where(next_W & fits_W, tokens_W, 0))
        next_W &= ~fits_W
    taken_rank_W = jnp.where(taken_W, jnp.arange(length), length)
    rank_W = jnp.zeros(length, jnp.int32).at[order_W].set(taken_rank_W)
    rank_T = jnp.where(row.can_choose_T, rank_W[words.index_T], length)
    count = jnp.sum(jnp.where(taken_W, tokens_W, 0))
    return ChosenPositions(_lowest_ranks(rank_T, num_predictions), count)


def choose_spans(
    key: Key, row: TokenRow, masking: 'Masking', num_predictions: int
) -> ChosenPositions:
    """Choose spans of words (Joshi et al. 2020, section 3.1).

    Lengths are geometric, truncated and renormalized; starts are uniform; spans that overlap or
    touch merge. Spans are drawn until the number of tokens to choose is reached, where the last
    span is cut off, even inside a word (facebookresearch/SpanBERT, pretraining/fairseq
    data/masking.py).
    """
    spans_key, _ = jax.random.split(key)
    words = find_words(row.input_ids_T, row.can_choose_T, masking.is_word_start)
    spans = draw_spans(spans_key, words, span_lengths(masking), 2 * num_predictions)
    first_T = first_to_cover(spans, len(row.input_ids_T))
    n = num_in_spans(row.can_choose_T, masking.rate, num_predictions)
    count = jnp.minimum(n, jnp.sum(first_T < len(spans.start_C)))
    return ChosenPositions(_lowest_ranks(first_T, num_predictions), count)


def choose_ngrams(
    key: Key, row: TokenRow, masking: 'Masking', num_predictions: int
) -> ChosenPositions:
    """Choose n-grams of words, p(n) ∝ 1/n for n ≤ longest_ngram (Lan et al. 2020, section 4.1).

    As in google-research/albert create_pretraining_data.py, an n-gram that overlaps an earlier one
    is skipped, and the last one is shortened by whole words to the number of tokens to choose.
    """
    words = find_words(row.input_ids_T, row.can_choose_T, masking.is_word_start)
    spans = drop_overlaps(draw_spans(key, words, ngram_lengths(masking), 2 * num_predictions))
    first_T = first_to_cover(spans, len(row.input_ids_T))
    positions_P = _lowest_ranks(first_T, num_predictions)
    n = num_to_choose(row.attention_mask_T, masking.rate, num_predictions)
    slot_P = 1 + jnp.arange(num_predictions)
    is_end_P = words.is_last_T[positions_P] & (first_T[positions_P] < len(spans.start_C))
    return ChosenPositions(positions_P, jnp.max(jnp.where(is_end_P & (slot_P <= n), slot_P, 0)))


def span_lengths(masking: 'Masking') -> np.ndarray:
    """Return p(1 … longest_span) of the geometric distribution p(ℓ) ∝ (1 − p)^(ℓ−1) p."""
    p = (1 - masking.span_p) ** np.arange(masking.longest_span)
    return p / p.sum()


def ngram_lengths(masking: 'Masking') -> np.ndarray:
    """Return p(n) ∝ 1/n for n = 1 … longest_ngram."""
    p = 1 / np.arange(1, masking.longest_ngram + 1)
    return p / p.sum()


def find_words(
    input_ids_T: jax.Array, can_choose_T: jax.Array, is_word_start_V: np.ndarray | None
) -> Words:
    """Find the words of a row.

    Args:
        input_ids_T: int32.
        can_choose_T: bool, neither special nor padding.
        is_word_start_V: bool, whether a token of the vocabulary starts a word.
    """
    length = len(input_ids_T)
    after_special_T = ~jnp.pad(can_choose_T[:-1], (1, 0))
    starts_T = jnp.asarray(is_word_start_V)[input_ids_T] | after_special_T
    is_first_T = can_choose_T & starts_T
    continues_T = jnp.pad(can_choose_T & ~starts_T, (0, 1))[1:]
    is_last_T = can_choose_T & ~continues_T
    first_W, last_W = (
        jnp.nonzero(is_edge_T, size=length, fill_value=length)[0]
        for is_edge_T in (is_first_T, is_last_T)
    )
    # Words ahead of a token minus the words beyond the next special token.
    ahead_T = jax.lax.cumsum(is_first_T.astype(jnp.int32), reverse=True)
    beyond_T = jax.lax.cummax(jnp.where(can_choose_T, 0, ahead_T), reverse=True)
    return Words(
        first_W,
        jnp.minimum(last_W + 1, length),
        (ahead_T - beyond_T).at[first_W].get(mode='fill', fill_value=0),
        jnp.sum(is_first_T),
        jnp.cumsum(is_first_T) - 1,
        is_last_T,
    )


def draw_spans(key: Key, words: Words, probability_L: np.ndarray, number: int) -> DrawnSpans:
    """Draw `number` spans: a length in words, then a start.

    The start is uniform over the words from which that many words follow each other without a
    special token between them. `probability_L` holds the probabilities of the lengths 1 … L.
    """
    length_key, start_key = jax.random.split(key)
    longest, slots = len(probability_L), len(words.first_W)
    below_L = jnp.asarray(np.cumsum(probability_L)[:-1], jnp.float32)
    draw_C = jax.random.uniform(length_key, (number,))
    num_words_C = 1 + jnp.sum(draw_C[:, None] >= below_L, axis=1)
    # places_LW[l, w]: possible starts of a span of l + 1 words at word w or before. Its rows are
    # concatenated into one increasing sequence, so that one search serves all lengths.
    fits_LW = words.left_W > jnp.arange(longest)[:, None]
    places_LW = jnp.cumsum(fits_LW, axis=1)
    rows_LW = places_LW + (slots + 1) * jnp.arange(longest)[:, None]
    num_places_C = places_LW[num_words_C - 1, -1]
    nth_C = (jax.random.uniform(start_key, (number,)) * num_places_C).astype(jnp.int32)
    wanted_C = (slots + 1) * (num_words_C - 1) + jnp.minimum(nth_C, num_places_C - 1)
    found_C = jnp.searchsorted(rows_LW.ravel(), wanted_C, side='right')
    word_C = found_C - slots * (num_words_C - 1)
    start_C = words.first_W[word_C]
    stop_C = words.stop_W[word_C + num_words_C - 1]
    return DrawnSpans(num_words_C, start_C, jnp.where(num_places_C > 0, stop_C, start_C))


def drop_overlaps(spans: DrawnSpans) -> DrawnSpans:
    """Empty every span that overlaps an earlier one which is not empty itself.

    The first span is always kept. Each pass decides at least one more span, in practice all that
    depend on decided ones. An odd number of passes may drop one span too many, but never leaves an
    overlap.
    """
    start_C, stop_C = spans.start_C, spans.stop_C
    overlap_CC = (start_C[:, None] < stop_C) & (start_C < stop_C[:, None])
    before_CC = jnp.tril(overlap_CC, -1)
    kept_C = jnp.ones(len(start_C), bool)
    for _ in range(_OVERLAP_PASSES):
        kept_C = ~jnp.any(before_CC & kept_C, axis=1)
    return spans._replace(stop_C=jnp.where(kept_C, stop_C, start_C))


def first_to_cover(spans: DrawnSpans, length: int) -> jax.Array:
    """Return the index of the first span that covers each token, int32 [T]; C if none does."""
    number = len(spans.start_C)
    t_T = jnp.arange(length)
    covers_CT = (spans.start_C[:, None] <= t_T) & (t_T < spans.stop_C[:, None])
    return jnp.min(jnp.where(covers_CT, jnp.arange(number)[:, None], number), axis=0)


def _lowest_ranks(rank_T: jax.Array, num_predictions: int) -> jax.Array:
    """Return the positions of the lowest ranks; equal ranks from left to right."""
    return jnp.argsort(rank_T, stable=True)[:num_predictions]


Choose: TypeAlias = Callable[[Key, TokenRow, 'Masking', int], ChosenPositions]


class Scheme(NamedTuple):
    """An entry of SCHEMES.

    Attributes:
        choose: Function of (key, row, masking, num_predictions).
        needs_words: Whether the vocabulary must mark where words start.
        shares_draws: Whether adjacent chosen tokens share one draw of [MASK], random token or
            original token.
        options: Config keys that only this scheme reads.
    """

    choose: Choose
    needs_words: bool = False
    shares_draws: bool = False
    options: tuple[str, ...] = ()


SCHEMES = {
    'tokens': Scheme(choose_tokens),
    'whole_words': Scheme(choose_words, needs_words=True),
    'spans': Scheme(
        choose_spans,
        needs_words=True,
        shares_draws=True,
        options=('masking.span_p', 'masking.longest_span'),
    ),
    'ngrams': Scheme(choose_ngrams, needs_words=True, options=('masking.longest_ngram',)),
}

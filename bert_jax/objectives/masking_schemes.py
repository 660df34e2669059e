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


class TokenRow(NamedTuple):
    """One example, arrays of length T.

    Attributes:
        input_ids_T: int32.
        attention_mask_T: int32.
        can_choose_T: bool, neither special nor padding.
        segment_ids_T: int32, the number of the sequence in a packed row; 0 if rows are not packed.
        budget_ids_T: int32, tokens with the same number share a number of tokens to choose; None:
            all tokens of the row do.
    """

    input_ids_T: jax.Array
    attention_mask_T: jax.Array
    can_choose_T: jax.Array
    segment_ids_T: jax.Array
    budget_ids_T: jax.Array | None


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


def num_to_choose(row: TokenRow, masking: 'Masking', num_predictions: int) -> jax.Array:
    """Return n = min(num_predictions, max(1, round(rate · length))), special tokens counted.

    Source: google-research/bert create_pretraining_data.py, create_masked_lm_predictions.

    Returns:
        int32: for the row, or [T] for the sequence of each token if every sequence has a budget.
    """
    mask_T, budget_ids_T = row.attention_mask_T, row.budget_ids_T
    if budget_ids_T is None:
        length_X = jnp.sum(mask_T)
    else:
        length_X = jax.ops.segment_sum(mask_T, budget_ids_T, len(mask_T) + 1)[budget_ids_T]
    return jnp.clip(jnp.round(masking.rate * length_X), 1, num_predictions).astype(jnp.int32)


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
    n_X = num_to_choose(row, masking, num_predictions)
    if row.budget_ids_T is not None:  # keep the n best of each sequence
        order_T = jnp.lexsort((-score_T, row.budget_ids_T))
        budget_ids_T = row.budget_ids_T[order_T]
        nth_T = jnp.arange(len(order_T)) - jnp.searchsorted(budget_ids_T, budget_ids_T)
        score_T = jnp.where(jnp.zeros_like(n_X).at[order_T].set(nth_T) < n_X, score_T, -1.0)
        n_X = jnp.int32(num_predictions)
    score_P, positions_P = jax.lax.top_k(score_T, num_predictions)
    return ChosenPositions(positions_P, jnp.minimum(n_X, jnp.sum(score_P >= 0)))


def choose_words(
    key: Key, row: TokenRow, masking: 'Masking', num_predictions: int
) -> ChosenPositions:
    """Choose whole words in random order, skipping words that exceed the remaining number.

    Source: google-research/bert create_pretraining_data.py with do_whole_word_mask.
    """
    words = find_words(row.input_ids_T, row.can_choose_T, masking.is_word_start)
    draws_W = jax.random.uniform(key, (len(row.input_ids_T),))
    lengths_W = jnp.ones(len(row.input_ids_T), jnp.int32)
    rank_W = take_ngrams(draws_W, lengths_W, words, row, masking, 1, num_predictions)
    return _tokens_of(rank_W, words, row, num_predictions)


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
    return _cut_spans(spans, row, masking, num_predictions)


def choose_anchored_spans(
    key: Key, row: TokenRow, masking: 'Masking', num_predictions: int
) -> ChosenPositions:
    """Choose spans of words as the code of SpanBERT does, which differs from its paper.

    A span starts with the word of a token that is drawn uniformly from those not chosen yet, so
    that long words start more spans. It ends early at the end of its segment. Lengths and the
    number of tokens are those of `choose_spans`.

    Source: facebookresearch/SpanBERT, pretraining/fairseq data/masking.py,
    PairWithSpanMaskingScheme.
    """
    anchor_key, length_key = jax.random.split(key)
    draws = 2 * num_predictions  # those whose anchor is already chosen have no effect
    words = find_words(row.input_ids_T, row.can_choose_T, masking.is_word_start)
    length = len(row.input_ids_T)
    place_T = jnp.nonzero(row.can_choose_T, size=length, fill_value=0)[0]
    number = jnp.sum(row.can_choose_T)
    anchor_C = place_T[(jax.random.uniform(anchor_key, (draws,)) * number).astype(jnp.int32)]
    word_C = words.index_T[anchor_C]
    num_words_C = jnp.minimum(
        _draw_lengths(length_key, span_lengths(masking), (draws,)), words.left_W[word_C]
    )
    start_C = words.first_W[word_C]
    stop_C = jnp.where(number > 0, words.stop_W[word_C + num_words_C - 1], start_C)
    covers_CC = jnp.tril((start_C <= anchor_C[:, None]) & (anchor_C[:, None] < stop_C), -1)

    def decide(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        """Each pass decides at least one more span, in practice all but a few."""
        kept_C, _ = state
        new_C = ~jnp.any(covers_CC & kept_C, axis=1)
        return new_C, jnp.any(new_C != kept_C)

    first = (jnp.ones(draws, bool), jnp.bool_(True))
    kept_C, _ = jax.lax.while_loop(lambda state: state[1], decide, first)
    spans = DrawnSpans(num_words_C, start_C, jnp.where(kept_C, stop_C, start_C))
    return _cut_spans(spans, row, masking, num_predictions)


def _cut_spans(
    spans: DrawnSpans, row: TokenRow, masking: 'Masking', num_predictions: int
) -> ChosenPositions:
    """The tokens of spans in the order of the draws, until there are enough."""
    first_T = first_to_cover(spans, len(row.input_ids_T))
    n = num_in_spans(row.can_choose_T, masking.rate, num_predictions)
    count = jnp.minimum(n, jnp.sum(first_T < len(spans.start_C)))
    return ChosenPositions(_lowest_ranks(first_T, num_predictions), count)


def choose_ngrams(
    key: Key, row: TokenRow, masking: 'Masking', num_predictions: int
) -> ChosenPositions:
    """Choose n-grams of words, p(n) ∝ 1/n for n ≤ longest_ngram (Lan et al. 2020, section 4.1).

    One n-gram is drawn for each word of the row. They are tried in random order; one that exceeds
    the remaining number is shortened by words, and skipped if its first word does not fit or if it
    overlaps an earlier one. An n-gram ends with its sequence, but may reach across a [SEP].

    Source: google-research/albert create_pretraining_data.py, create_masked_lm_predictions.
    """
    order_key, length_key = jax.random.split(key)
    words = find_words(row.input_ids_T, row.can_choose_T, masking.is_word_start)
    slots = (len(row.input_ids_T),)
    lengths_W = _draw_lengths(length_key, ngram_lengths(masking), slots)
    draws_W = jax.random.uniform(order_key, slots)
    rank_W = take_ngrams(
        draws_W, lengths_W, words, row, masking, masking.longest_ngram, num_predictions
    )
    return _tokens_of(rank_W, words, row, num_predictions)


def take_ngrams(
    draws_W: jax.Array,
    lengths_W: jax.Array,
    words: Words,
    row: TokenRow,
    masking: 'Masking',
    longest: int,
    num_predictions: int,
) -> jax.Array:
    """Take n-grams in the order of `draws_W` while they fit and do not overlap.

    Args:
        draws_W: float32, by first word.
        lengths_W: int32, number of words by first word.
        words: The words of the row.
        row: The row.
        masking: The settings.
        longest: Maximum of `lengths_W`.
        num_predictions: Maximum number of tokens to take.

    Returns:
        int32 [W], the rank of the n-gram that took each word; W if none did.
    """
    slots = len(draws_W)
    index_W = jnp.arange(slots)
    rank_W = jnp.zeros(slots, jnp.int32).at[jnp.argsort(draws_W)].set(index_W)

    def ahead(values_W: jax.Array) -> jax.Array:
        """[N, W]: the values of the N words from each one on, 0 beyond the last."""
        padded = jnp.pad(values_W, (0, longest - 1))
        return jnp.stack([padded[n : n + slots] for n in range(longest)])

    n_N1 = jnp.arange(longest)[:, None]
    num_tokens_NW = jnp.cumsum(ahead(words.stop_W - words.first_W), axis=0)
    segment_W = row.segment_ids_T.at[words.first_W].get(mode='fill', fill_value=-1)
    is_drawn_NW = (n_N1 < lengths_W) & (index_W < words.number) & (ahead(segment_W) == segment_W)

    def take(state: _Taken) -> _Taken:
        """Take the next n-gram; those before it in the order were skipped for good."""
        left_W = jnp.minimum(state.left_W, state.room)
        num_words_W = jnp.sum(is_drawn_NW & (num_tokens_NW <= left_W), axis=0)
        is_taken_NW = ahead(state.rank_W < slots) & (n_N1 < num_words_W)
        can_take_W = (num_words_W > 0) & ~jnp.any(is_taken_NW, axis=0) & (rank_W > state.rank)
        rank = jnp.min(jnp.where(can_take_W, rank_W, slots))
        num_words = jnp.sum(jnp.where(rank_W == rank, num_words_W, 0))
        first = jnp.sum(jnp.where(rank_W == rank, index_W, 0))
        is_new_W = (index_W >= first) & (index_W < first + num_words)
        num_new = jnp.sum(jnp.where(is_new_W, words.stop_W - words.first_W, 0))
        sequence = jnp.sum(jnp.where(rank_W == rank, budget_W, 0))
        return _Taken(
            jnp.where(is_new_W, rank, state.rank_W),
            state.left_W - jnp.where(budget_W == sequence, num_new, 0),
            state.room - num_new,
            rank,
        )

    number_T = jnp.broadcast_to(num_to_choose(row, masking, num_predictions), (slots,))
    left_W = number_T.at[words.first_W].get(mode='fill', fill_value=0)
    budget_W = segment_W if row.budget_ids_T is not None else jnp.zeros_like(segment_W)
    none = _Taken(
        jnp.full(slots, slots, jnp.int32), left_W, jnp.int32(num_predictions), jnp.int32(-1)
    )
    found = jax.lax.while_loop(
        lambda state: jnp.any(state.left_W > 0) & (state.rank < slots), take, none
    )
    return found.rank_W


class _Taken(NamedTuple):
    """The state of `take_ngrams`.

    Attributes:
        rank_W: The rank of the n-gram that took each word.
        left_W: Number of tokens left to take in the word's sequence or row.
        room: The same for the row, by the maximum number of predictions.
        rank: Rank of the last n-gram.
    """

    rank_W: jax.Array
    left_W: jax.Array
    room: jax.Array
    rank: jax.Array


def _tokens_of(
    rank_W: jax.Array, words: Words, row: TokenRow, num_predictions: int
) -> ChosenPositions:
    """The tokens of the words that `take_ngrams` took."""
    none = len(rank_W)
    rank_T = jnp.where(row.can_choose_T, rank_W[words.index_T], none)
    return ChosenPositions(_lowest_ranks(rank_T, num_predictions), jnp.sum(rank_T < none))


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
    num_words_C = _draw_lengths(length_key, probability_L, (number,))
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


def _draw_lengths(key: Key, probability_L: np.ndarray, shape: tuple[int, ...]) -> jax.Array:
    """Draw from 1 … L with the given probabilities, int32."""
    below_L = jnp.asarray(np.cumsum(probability_L)[:-1], jnp.float32)
    return 1 + jnp.sum(jax.random.uniform(key, shape)[..., None] >= below_L, axis=-1)


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
        options: Config keys that only some schemes read.
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

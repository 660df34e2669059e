"""Which tokens of one example are to be predicted: single tokens, whole words, spans or n-grams.

A scheme is a function (key, row, masking, P) → Choice: P distinct positions, of which the first
`count` are chosen. Shapes are static and nothing is drawn in a loop: all draws are made at once, in
the order in which they would be made one by one, and cumulative counts tell which of them hold.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.objectives.words import Words, find_words

_PASSES = 4  # over the words that are left, see choose_words
_ODD_PASSES = 7  # over n-grams that overlap, see drop_overlaps


class Row(NamedTuple):
    """One example."""

    input_ids_T: jax.Array  # int32
    attention_mask_T: jax.Array  # int32
    can_choose_T: jax.Array  # bool, neither special nor padding


class Choice(NamedTuple):
    """Distinct positions, of which the first `count` are chosen."""

    positions_P: jax.Array  # int32
    count: jax.Array  # int32 []


class Spans(NamedTuple):
    """Runs of whole words in the order in which they were drawn; they may overlap."""

    num_words_C: jax.Array  # int32
    start_C: jax.Array  # int32 first token
    stop_C: jax.Array  # int32 one past the last token; start_C where no place was long enough


def num_to_choose(attention_mask_T, rate: float, num_predictions: int):
    """n = min(num_predictions, max(1, round(rate · length))), [CLS] and [SEP] counted in the
    length.

    Source: google-research/bert create_pretraining_data.py, create_masked_lm_predictions.
    """
    length = jnp.sum(attention_mask_T)
    return jnp.clip(jnp.round(rate * length), 1, num_predictions).astype(jnp.int32)


def num_in_spans(can_choose_T, rate: float, num_predictions: int):
    """n = min(num_predictions, ceil(rate · length)), special tokens not counted in the length.

    Source: facebookresearch/SpanBERT, pretraining/fairseq data/masking.py, whose sequences get
    [CLS] and [SEP] afterwards.
    """
    n = jnp.ceil(rate * jnp.sum(can_choose_T) - 1e-4)  # 1e-4: lest rounding add one
    return jnp.clip(n, 0, num_predictions).astype(jnp.int32)


def choose_tokens(key, row: Row, masking, num_predictions: int) -> Choice:
    """Single tokens, uniformly without replacement (Devlin et al. 2019)."""
    score_T = jnp.where(row.can_choose_T, jax.random.uniform(key, row.input_ids_T.shape), -1.0)
    score_P, positions_P = jax.lax.top_k(score_T, num_predictions)
    n = num_to_choose(row.attention_mask_T, masking.rate, num_predictions)
    return Choice(positions_P, jnp.minimum(n, jnp.sum(score_P >= 0)))


def choose_words(key, row: Row, masking, num_predictions: int) -> Choice:
    """Whole words in random order, as long as they fit into the number of tokens to choose; one
    that is too long for what is left is passed over.

    Source: google-research/bert create_pretraining_data.py with do_whole_word_mask. What is left
    shrinks with each word passed over for the first time, so that a few passes find all that fit.
    """
    words = find_words(row.input_ids_T, row.can_choose_T, masking.is_word_start)
    length = len(row.input_ids_T)
    is_used_W = jnp.arange(length) < words.count
    order_W = jnp.argsort(jnp.where(is_used_W, jax.random.uniform(key, (length,)), 2.0))
    tokens_W = (words.stop_W - words.first_W)[order_W]
    left = num_to_choose(row.attention_mask_T, masking.rate, num_predictions)
    taken_W, next_W = jnp.zeros(length, bool), is_used_W
    for _ in range(_PASSES):
        next_W &= tokens_W <= left
        fits_W = jnp.cumsum(jnp.where(next_W, tokens_W, 0)) <= left
        taken_W |= next_W & fits_W
        left -= jnp.sum(jnp.where(next_W & fits_W, tokens_W, 0))
        next_W &= ~fits_W
    rank_W = (
        jnp.zeros(length, jnp.int32).at[order_W].set(jnp.where(taken_W, jnp.arange(length), length))
    )
    rank_T = jnp.where(row.can_choose_T, rank_W[words.number_T], length)
    return Choice(_in_order(rank_T, num_predictions), jnp.sum(jnp.where(taken_W, tokens_W, 0)))


def choose_spans(key, row: Row, masking, num_predictions: int) -> Choice:
    """Spans of words (Joshi et al. 2020, section 3.1): lengths geometric, cut and renormalized,
    starts uniform; what overlaps or touches merges.

    masking.last_span 'cut': spans are drawn until the number of tokens to choose is reached and the
    last one is cut there, were it inside a word (facebookresearch/SpanBERT, pretraining/fairseq
    data/masking.py). 'whole': spans are whole; how many are drawn is such that the expected number
    of tokens is the one to choose, and lengths have the distribution they are drawn from. One that
    would exceed num_predictions is left out.
    """
    spans_key, stop_key = jax.random.split(key)
    words = find_words(row.input_ids_T, row.can_choose_T, masking.is_word_start)
    spans = draw_spans(spans_key, words, span_lengths(masking), 2 * num_predictions)
    first_T = first_to_cover(spans, len(row.input_ids_T))
    n = num_in_spans(row.can_choose_T, masking.rate, num_predictions)
    if masking.last_span == 'whole':
        n = covered(spans, first_T, num_spans(stop_key, spans, first_T, n, num_predictions))
    positions_P = _in_order(first_T, num_predictions)
    return Choice(positions_P, jnp.minimum(n, jnp.sum(first_T < len(spans.start_C))))


def choose_ngrams(key, row: Row, masking, num_predictions: int) -> Choice:
    """n-grams of words, p(n) ∝ 1/n for n up to masking.longest_ngram (Lan et al. 2020, section
    4.1).

    As in google-research/albert create_pretraining_data.py one that overlaps another before it is
    left out, and the last one is shortened by words to fit into the number of tokens to choose.
    """
    words = find_words(row.input_ids_T, row.can_choose_T, masking.is_word_start)
    spans = drop_overlaps(draw_spans(key, words, ngram_lengths(masking), 2 * num_predictions))
    first_T = first_to_cover(spans, len(row.input_ids_T))
    positions_P = _in_order(first_T, num_predictions)
    n = num_to_choose(row.attention_mask_T, masking.rate, num_predictions)
    slot_P = 1 + jnp.arange(num_predictions)
    is_end_P = words.is_last_T[positions_P] & (first_T[positions_P] < len(spans.start_C))
    return Choice(positions_P, jnp.max(jnp.where(is_end_P & (slot_P <= n), slot_P, 0)))


def span_lengths(masking) -> np.ndarray:
    """p(1 … longest_span) of the geometric distribution p(ℓ) ∝ (1 − p)^(ℓ−1) p, renormalized."""
    p = (1 - masking.span_p) ** np.arange(masking.longest_span)
    return p / p.sum()


def ngram_lengths(masking) -> np.ndarray:
    """p(n) ∝ 1/n for n = 1 … longest_ngram."""
    p = 1 / np.arange(1, masking.longest_ngram + 1)
    return p / p.sum()


def draw_spans(key, words: Words, probability_L: np.ndarray, number: int) -> Spans:
    """`number` spans: first a length in words, then a start, uniform over the words from which that
    many words follow each other without a special token between them."""
    length_key, start_key = jax.random.split(key)
    longest, slots = len(probability_L), len(words.first_W)
    below_L = jnp.asarray(np.cumsum(probability_L)[:-1], jnp.float32)
    draw_C = jax.random.uniform(length_key, (number,))
    num_words_C = 1 + jnp.sum(draw_C[:, None] >= below_L, axis=1)
    # places[l, w]: starts for a length of l + 1 at word w or before. All rows are searched as one.
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
    return Spans(num_words_C, start_C, jnp.where(num_places_C > 0, stop_C, start_C))


def drop_overlaps(spans: Spans) -> Spans:
    """The spans, empty where one overlaps another before it that is not empty itself.

    Which are kept is known of the first; each pass settles at least one more, in practice all that
    depend on settled ones. An odd number of passes can leave out one too many, never one too few.
    """
    start_C, stop_C = spans.start_C, spans.stop_C
    overlap_CC = (start_C[:, None] < stop_C) & (start_C < stop_C[:, None])
    before_CC = jnp.tril(overlap_CC, -1)
    kept_C = jnp.ones(len(start_C), bool)
    for _ in range(_ODD_PASSES):
        kept_C = ~jnp.any(before_CC & kept_C, axis=1)
    return spans._replace(stop_C=jnp.where(kept_C, stop_C, start_C))


def first_to_cover(spans: Spans, length: int) -> jax.Array:
    """int32 [T]: the number of the first span that holds each token; C where none does."""
    number = len(spans.start_C)
    t_T = jnp.arange(length)
    holds_CT = (spans.start_C[:, None] <= t_T) & (t_T < spans.stop_C[:, None])
    return jnp.min(jnp.where(holds_CT, jnp.arange(number)[:, None], number), axis=0)


def covered(spans: Spans, first_T, count) -> jax.Array:
    """Tokens in the first `count` spans together; those in several of them count once."""
    return jnp.sum(first_T < jnp.minimum(count, len(spans.start_C)))


def num_spans(key, spans: Spans, first_T, n, num_predictions: int) -> jax.Array:
    """How many spans to keep so that the expected number of tokens is n.

    With d tokens missing, another span is drawn with probability d / (d + E max(S − d, 0)), S the
    tokens it would add, else it is the end: what p · E max(S − d, 0) is beyond n at the end
    balances the (1 − p) · d of not going on. Since the decision does not look at the next span, the
    lengths of the spans kept have the distribution of all (Wald's identity). S is taken from this
    row's own draws, less the share that is chosen already.
    """
    number = len(spans.start_C)
    size_C = spans.stop_C - spans.start_C
    together_C = jnp.sum(first_T <= jnp.arange(number)[:, None], axis=1)
    before_C = jnp.pad(together_C[:-1], (1, 0))
    missing_C = jnp.maximum(n - before_C, 0)
    new_C = 1 - before_C / len(first_T)
    excess_C = jnp.mean(jnp.maximum(size_C * new_C[:, None] - missing_C[:, None], 0), axis=1)
    goes_on_C = jax.random.uniform(key, (number,)) * (missing_C + excess_C) < missing_C
    goes_on_C &= together_C <= num_predictions
    return jnp.sum(jnp.cumprod(goes_on_C))


def _in_order(rank_T, num_predictions: int) -> jax.Array:
    """The positions of the least ranks, from left to right where ranks are equal."""
    return jnp.argsort(rank_T, stable=True)[:num_predictions]


class Scheme(NamedTuple):
    """How to choose; whether it asks for words; whether a run of adjacent chosen tokens shares one
    draw of its fate."""

    choose: Callable
    by_words: bool
    one_fate: bool


SCHEMES = {
    'tokens': Scheme(choose_tokens, by_words=False, one_fate=False),
    'whole_words': Scheme(choose_words, by_words=True, one_fate=False),
    'spans': Scheme(choose_spans, by_words=True, one_fate=True),
    'ngrams': Scheme(choose_ngrams, by_words=True, one_fate=False),
}

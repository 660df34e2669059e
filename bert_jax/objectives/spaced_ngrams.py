"""Masking of n-grams of words with context around each, as in the code of XLNet.

Local letters: W slots for the words of a row, N n-grams that are drawn.
"""

import dataclasses

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
)
from bert_jax.types import Key


@dataclasses.dataclass(frozen=True)
class SpacedNgrams(Scheme):
    """N-grams from left to right, p(n) ∝ 1/n, with n / rate further tokens around each.

    A random part of these tokens precedes the n-gram, the rest follows it. An n-gram starts with a
    word, ends before the next special token, and is cut where the number of tokens is reached. If
    the row ends first, single tokens are added at random. The number of tokens is round(rate ·
    length), where the length includes special tokens; sequences of a packed row are not separated.

    Source: zihangdai/xlnet data_utils.py, _sample_mask. N-grams of that code have n tokens, because
    it tests the first token of the n-gram instead of the token after it; here they have n words.

    Attributes:
        longest_ngram: Maximum length of an n-gram in words.
    """

    longest_ngram: int

    needs_words = True

    def choose(self, key: Key, row: TokenRow, num_predictions: int) -> ChosenPositions:
        ngram_key, fill_key = jax.random.split(key)
        number = jnp.clip(jnp.round(self.rate * jnp.sum(row.attention_mask_T)), 1, num_predictions)
        number = jnp.minimum(number.astype(jnp.int32), jnp.sum(row.can_choose_T))
        in_ngram_T = self._ngrams(ngram_key, row, number, num_predictions)
        draws_T = jax.random.uniform(fill_key, in_ngram_T.shape)
        score_T = jnp.where(in_ngram_T, 2.0, jnp.where(row.can_choose_T, draws_T, -1.0))
        return ChosenPositions(jax.lax.top_k(score_T, num_predictions)[1], number)

    def _ngrams(self, key: Key, row: TokenRow, number: jax.Array, num_ngrams: int) -> jax.Array:
        """Return which tokens are in an n-gram, bool [T]; at most `number` are."""
        length_key, place_key = jax.random.split(key)
        words, length = find_words(row), len(row.input_ids_T)
        p = 1 / np.arange(1, self.longest_ngram + 1)
        words_N = draw_lengths(length_key, p / p.sum(), (num_ngrams,))
        share_N = jax.random.uniform(place_key, (num_ngrams,))

        def step(
            state: tuple[jax.Array, jax.Array], draw: tuple[jax.Array, jax.Array]
        ) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
            (place, left), (num_words, share) = state, draw
            num_words = jnp.minimum(num_words, jnp.maximum(left, 1))
            context = jnp.floor(num_words / self.rate + 1e-4).astype(jnp.int32)
            before = jnp.floor(share * context).astype(jnp.int32)
            first, stop = _ngram(words, place + before, num_words)
            stop = jnp.minimum(stop, first + left)
            return (stop + context - before, left - (stop - first)), (first, stop)

        _, (first_N, stop_N) = jax.lax.scan(step, (jnp.int32(0), number), (words_N, share_N))
        edges_T = jnp.zeros(length + 1, jnp.int32).at[first_N].add(1).at[stop_N].add(-1)
        in_ngram_T: jax.Array = jnp.cumsum(edges_T)[:length] > 0
        return in_ngram_T


def _ngram(words: RowWords, place: jax.Array, num_words: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the first token of the first word from `place` on, and the end of the n-gram there.

    Both are T if no word starts there.
    """
    slots = len(words.first_W)
    word = jnp.searchsorted(words.first_W, place)
    first = words.first_W.at[word].get(mode='fill', fill_value=slots)
    left = words.left_W.at[word].get(mode='fill', fill_value=0)
    last = word + jnp.minimum(num_words, left) - 1
    stop = words.stop_W.at[last].get(mode='fill', fill_value=slots)
    return first, jnp.where(first < slots, stop, slots)

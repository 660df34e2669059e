"""Noise of BART: five changes to a text that a decoder learns to undo.

Sentences are permuted, spans are hidden by masks or deleted, tokens are inserted, and the text is
rotated, in this order (Lewis et al. 2020, arXiv 1910.13461, section 2.2; fairseq,
data/denoising_dataset.py). Every function changes one text, inside the jitted step. Local letters:
N slots of a text, C drawn spans.
"""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.objectives.corruption import Vocabulary
from bert_jax.objectives.masking_schemes import RowWords, TokenRow, draw_lengths, find_words
from bert_jax.objectives.span_masking import DrawnSpans, first_to_cover
from bert_jax.types import Key

_SMALLEST_PROBABILITY = 1e-7  # of a length of a span, where fairseq cuts off the distribution


class Text(NamedTuple):
    """A text in N slots, without the special tokens around it; mapped over the batch.

    Attributes:
        ids_N: int32; arbitrary behind the text.
        length: int32 scalar, number of tokens.
        sentence_start_N: bool, whether a token starts a sentence; None if nothing reads it.
    """

    ids_N: jax.Array
    length: jax.Array
    sentence_start_N: jax.Array | None = None

    @property
    def is_token_N(self) -> jax.Array:
        """bool [N], False behind the text."""
        return jnp.arange(len(self.ids_N)) < self.length

    def take(self, keep_N: jax.Array) -> 'Text':
        """Close the gaps between the tokens to keep, and forget the sentences."""
        keep_N &= self.is_token_N
        order_N = jnp.argsort(~keep_N, stable=True)
        return Text(self.ids_N[order_N], jnp.sum(keep_N))


class Noised(NamedTuple):
    """What an encoder reads of a text, and what the decoder has to write.

    Attributes:
        source, target: Texts.
        num_cut: int32 scalar, inserted tokens that found no slot in the source.
    """

    source: Text
    target: Text
    num_cut: jax.Array


@dataclasses.dataclass(frozen=True)
class BartNoise:
    """The noise of BART with the switches of fairseq.

    Attributes:
        mask: Share of the words (or tokens) to hide.
        poisson_lambda: λ of the Poisson distribution of the lengths of spans; 0: all lengths are 1.
        replace_length: Masks for a span: 1, −1 for one per token, or 0 to delete it.
        whole_words: Whether spans consist of whole words instead of tokens.
        mask_random: Share of the masks that become random tokens.
        permute_sentences: Share of the sentences that change places among themselves.
        insert: Inserted tokens as a share of the length.
        rotate: Probability that the text starts at another token.
    """

    mask: float
    poisson_lambda: float
    replace_length: int
    whole_words: bool
    mask_random: float
    permute_sentences: float
    insert: float
    rotate: float

    def source_slots(self, slots: int) -> int:
        """Return the slots of the source of a text of N slots.

        One more slot per token that `insert` adds. Where hidden tokens keep their places, the masks
        of empty spans need slots too: their mean number and four standard deviations.
        """
        extra = math.ceil(self.insert * (slots + 2)) if self.insert else 0
        if self.replace_length < 0 and self.mask and self.poisson_lambda:
            empty = self.mask * slots * math.exp(-self.poisson_lambda) / self.poisson_lambda
            extra += math.ceil(empty + 4 * math.sqrt(empty))
        return slots + extra

    def target_slots(self, slots: int) -> int:
        """Return the slots of the target, which is the text itself."""
        return slots

    def __call__(self, key: Key, text: Text, vocabulary: Vocabulary) -> Noised:
        """Make the source of a text of at most N tokens."""
        permute_key, mask_key, insert_key, rotate_key = jax.random.split(key, 4)
        source, extra = text, self.source_slots(len(text.ids_N)) - len(text.ids_N)
        if self.permute_sentences:
            source = permute_sentences(permute_key, source, self.permute_sentences)
        source = Text(jnp.pad(source.ids_N, (0, extra)), text.length)
        num_cut = jnp.int32(0)
        if self.mask:
            source, cut = infill(mask_key, source, vocabulary, self)
            num_cut += cut
        if self.insert:
            number = jnp.ceil(self.insert * (source.length + 2) - 1e-4).astype(jnp.int32)
            number = jnp.where(text.length > 0, number, 0)
            source, cut = insert(insert_key, source, number, vocabulary, self.mask_random)
            num_cut += cut
        if self.rotate:
            source = rotate(rotate_key, source, self.rotate)
        return Noised(source, text, num_cut)


def permute_sentences(key: Key, text: Text, share: float) -> Text:
    """Permute ⌈share · M⌉ of the M sentences, chosen at random, among their places."""
    choice_key, order_key = jax.random.split(key)
    slots = len(text.ids_N)
    assert text.sentence_start_N is not None
    starts_N = text.is_token_N & (text.sentence_start_N | (jnp.arange(slots) == 0))
    sentence_N, number = jnp.cumsum(starts_N) - 1, jnp.sum(starts_N)
    index_N = jnp.arange(slots)
    num_chosen = jnp.ceil(share * number - 1e-4)
    chosen_N = random_ranks(choice_key, index_N < number) < num_chosen
    order_N = jnp.where(chosen_N, jax.random.uniform(order_key, (slots,)), 1 + index_N)
    # The j-th chosen place gets the j-th sentence in a random order of the chosen sentences.
    place_N = jnp.argsort(jnp.where(chosen_N, -1, index_N), stable=True)
    place_N = jnp.zeros_like(index_N).at[jnp.argsort(order_N)].set(place_N)
    rank_N = jnp.where(text.is_token_N, place_N[sentence_N], slots)
    return Text(text.ids_N[jnp.argsort(rank_N, stable=True)], text.length)


def infill(
    key: Key, text: Text, vocabulary: Vocabulary, noise: BartNoise
) -> tuple[Text, jax.Array]:
    """Hide spans; spans of length 0 insert a mask each.

    Spans end before special tokens of the text. Masks of spans that overlap merge; those of spans
    that touch do not.

    Returns:
        The text, and the number of masks that found no slot.
    """
    span_key, random_key, id_key, insert_key = jax.random.split(key, 4)
    spans, num_empty = draw_spans(span_key, _words(text, vocabulary, noise.whole_words), noise)
    slots, number = len(text.ids_N), len(spans.start_C)
    owner_N = first_to_cover(spans, slots)
    is_hidden_N, owner_N = owner_N < number, jnp.minimum(owner_N, number - 1)
    is_random_N = (jax.random.uniform(random_key, (number,)) < noise.mask_random)[owner_N]
    random_N = random_tokens(id_key, slots, vocabulary)
    hidden_N = jnp.where(is_random_N, random_N, vocabulary.mask_id)
    ids_N = jnp.where(is_hidden_N, hidden_N, text.ids_N)
    keep_N = ~is_hidden_N | (noise.replace_length < 0)
    if noise.replace_length > 0:
        keep_N |= spans.start_C[owner_N] == jnp.arange(slots)
    text = Text(ids_N, text.length).take(keep_N)
    return insert(insert_key, text, num_empty, vocabulary, noise.mask_random)


def draw_spans(key: Key, words: RowWords, noise: BartNoise) -> tuple[DrawnSpans, jax.Array]:
    """Draw spans of ⌈mask · W⌉ words together, at starts without replacement.

    Returns:
        The spans from left to right, which may overlap; unused ones are empty.
        The number of spans of length 0, which have no place.
    """
    length_key, start_key = jax.random.split(key)
    slots = len(words.first_W)
    budget = jnp.ceil(noise.mask * words.number - 1e-4).astype(jnp.int32)
    length_C, is_drawn_C = draw_lengths_until(length_key, slots, budget, noise.poisson_lambda)
    is_span_C = is_drawn_C & (length_C > 0)
    num_empty = jnp.sum(is_drawn_C & (length_C == 0))
    length_C = length_C[jnp.argsort(~is_span_C, stable=True)]
    is_word_W = jnp.arange(slots) < words.number
    draw_W = jnp.where(is_word_W, jax.random.uniform(start_key, (slots,)), 2.0)
    is_used_C = jnp.arange(slots) < jnp.sum(is_span_C)
    word_C = jnp.where(is_used_C, jnp.argsort(draw_W), slots)
    order_C = jnp.argsort(word_C)  # from left to right; the unused ones stay behind
    word_C, length_C = jnp.minimum(word_C[order_C], slots - 1), length_C[order_C]
    last_C = word_C + jnp.minimum(length_C, words.left_W[word_C]) - 1
    start_C = words.first_W[word_C]
    stop_C = jnp.where(is_used_C, words.stop_W[last_C], start_C)
    return DrawnSpans(length_C, start_C, stop_C), num_empty


def draw_lengths_until(
    key: Key, number: int, budget: jax.Array, poisson_lambda: float
) -> tuple[jax.Array, jax.Array]:
    """Draw lengths of spans until their sum reaches the budget; the last is cut off there.

    Returns:
        int32 [number], the lengths; bool [number], which of them are used.
    """
    if poisson_lambda:
        length_C = draw_lengths(key, poisson_probabilities(poisson_lambda), (number,)) - 1
    else:
        length_C = jnp.ones(number, jnp.int32)
    total_C = jnp.cumsum(length_C).at[-1].set(jnp.iinfo(jnp.int32).max)
    before_C = jnp.pad(total_C[:-1], (1, 0))
    is_used_C = before_C < budget
    return jnp.minimum(total_C, budget) - jnp.minimum(before_C, budget), is_used_C


def poisson_probabilities(rate: float) -> np.ndarray:
    """Return the probabilities of 0, 1, … of a Poisson distribution, cut off where fairseq does."""
    probabilities = [math.exp(-rate)]
    while probabilities[-1] >= _SMALLEST_PROBABILITY:
        probabilities.append(probabilities[-1] * rate / len(probabilities))
    return np.array(probabilities) / sum(probabilities)


def insert(
    key: Key, text: Text, number: jax.Array, vocabulary: Vocabulary, mask_random: float
) -> tuple[Text, jax.Array]:
    """Insert masks anywhere, ⌈mask_random · number⌉ of them replaced by random tokens.

    Returns:
        The text, and the number of masks that found no slot.
    """
    place_key, id_key = jax.random.split(key)
    slots = len(text.ids_N)
    num_inserted = jnp.minimum(number, slots - text.length)
    length = text.length + num_inserted
    rank_N = random_ranks(place_key, jnp.arange(slots) < length)
    is_new_N = rank_N < num_inserted
    is_random_N = rank_N < jnp.ceil(mask_random * num_inserted - 1e-4)
    new_N = jnp.where(is_random_N, random_tokens(id_key, slots, vocabulary), vocabulary.mask_id)
    old_N = text.ids_N[jnp.maximum(jnp.cumsum(~is_new_N) - 1, 0)]
    return Text(jnp.where(is_new_N, new_N, old_N), length), number - num_inserted


def rotate(key: Key, text: Text, probability: float) -> Text:
    """Begin the text at a random token, with this probability, and append what was before it."""
    whether_key, start_key = jax.random.split(key)
    start = jax.random.randint(start_key, (), 0, text.length + 1)
    start = jnp.where(jax.random.bernoulli(whether_key, probability), start, 0)
    index_N = jnp.arange(len(text.ids_N))
    from_N = jnp.where(text.is_token_N, (index_N + start) % jnp.maximum(text.length, 1), index_N)
    return Text(text.ids_N[from_N], text.length)


def random_ranks(key: Key, can_choose_N: jax.Array) -> jax.Array:
    """Return the rank of each candidate in a random order; others rank behind: int32 [N]."""
    draw_N = jnp.where(can_choose_N, jax.random.uniform(key, can_choose_N.shape), 2.0)
    return jnp.argsort(jnp.argsort(draw_N))


def random_tokens(key: Key, number: int, vocabulary: Vocabulary) -> jax.Array:
    """Draw tokens uniformly from the ids above 0, as fairseq does."""
    return jax.random.randint(key, (number,), 1, len(vocabulary.unigram_counts_V))


def _words(text: Text, vocabulary: Vocabulary, whole_words: bool) -> RowWords:
    """Find the words of a text, or its tokens; special tokens do not belong to any."""
    can_choose_N = text.is_token_N & ~vocabulary.is_special(text.ids_N)
    starts_V = vocabulary.is_word_start_V
    if whole_words and starts_V is not None:
        starts_N = jnp.asarray(starts_V)[text.ids_N]
    else:
        starts_N = jnp.ones_like(can_choose_N)
    return find_words(TokenRow(text.ids_N, text.is_token_N, can_choose_N, None, starts_N))

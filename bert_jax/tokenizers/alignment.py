"""Words are aligned to subwords by character offset."""

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.errors import UserError
from bert_jax.text.scripts import CHARACTER
from bert_jax.tokenizers import Tokenizer, sliding_windows

_CHARACTER = re.compile(CHARACTER)


class Alignment(NamedTuple):
    """The N subwords of a text with W words, without special tokens.

    Every word has at least one subword, and no subword belongs to two words:
    - A subword that covers parts of two words belongs to the first of them.
    - A subword without other characters than spaces (a bare '▁' or 'Ġ') belongs to the word that
      starts after it.
    - If this leaves a word without subwords ('gon' + 'na' as one subword), the text is split before
      this word and tokenized in two parts.
    - A word that the tokenizer drops (control characters, for example) is one unknown token.

    Attributes:
        ids: int32 [N].
        offsets: int32 [N, 2], characters of each subword in the text, end exclusive.
        words: int32 [N], the word of each subword, ascending; −1 for subwords outside words.
        first: int32 [W], the first subword of each word.
        count: int32 [W], the number of subwords of each word.
        num_splits: Number of words before which the text was split (second case).
        num_dropped: Number of words that the tokenizer drops (third case).
    """

    ids: np.ndarray
    offsets: np.ndarray
    words: np.ndarray
    first: np.ndarray
    # NamedTuple's tuple.count is hidden on purpose.
    count: np.ndarray  # type: ignore[assignment]
    num_splits: int
    num_dropped: int

    def windows(self, size: int, overlap: int) -> list[sliding_windows.Window]:
        """Return windows of at most `size` subwords that split no word of at most `size` subwords.

        The prediction for a word is taken from the window whose [first, last) contains the word's
        first subword.
        """
        return sliding_windows.make_windows(len(self.ids), size, overlap, self.split_points(size))

    def split_points(self, size: int) -> list[int]:
        """Return the indices from 0 to N at which windows may start and stop.

        These are the boundaries of words, and multiples of `size` within longer words.
        """
        is_inside = (self.words[1:] == self.words[:-1]) & (self.words[1:] >= 0)
        boundaries = [0, *(np.flatnonzero(~is_inside) + 1).tolist(), len(self.ids)]
        points = (range(start, stop, size) for start, stop in itertools.pairwise(boundaries))
        return [*itertools.chain.from_iterable(points), len(self.ids)]


def align(tokenizer: Tokenizer, text: str, words: Sequence[tuple[int, int]]) -> Alignment:
    """Tokenize a text and align its words to the subwords.

    Args:
        tokenizer: The tokenizer.
        text: The text.
        words: First character and end (exclusive) of each word. Words may touch, and characters
            may lie outside words.

    Raises:
        UserError: A word is empty, overlaps another word or lies outside the text.
    """
    words_W2 = np.array(words, np.int64).reshape(-1, 2)
    _check(text, words_W2)
    splits: set[int] = set()
    while True:
        ids, offsets = _encode(tokenizer, text, sorted(splits))
        owners = _owners(text, offsets, words_W2)
        missing = np.setdiff1d(np.arange(len(words_W2)), owners)
        merged = _merged_with_previous(missing, offsets, words_W2)
        new_splits = {int(words_W2[word - 1, 1]) for word in merged} - splits
        if not new_splits:
            break
        splits |= new_splits
    # Words without a subword become unknown tokens, each after the subwords of the words before it.
    index = np.searchsorted(np.maximum.accumulate(owners), missing)
    unknown_id = tokenizer.role_ids.get('unk', tokenizer.sep_id)  # GPT-2 has one token for both
    ids = np.insert(ids, index, unknown_id)
    offsets = np.insert(offsets, index, words_W2[missing], axis=0)
    owners = np.insert(owners, index, missing)
    counts = np.bincount(owners[owners >= 0], minlength=len(words_W2))
    first = np.searchsorted(np.maximum.accumulate(owners), np.arange(len(words_W2)))
    return Alignment(
        ids=ids,
        offsets=offsets,
        words=owners,
        first=first.astype(np.int32),
        count=counts.astype(np.int32),
        num_splits=len(splits),
        num_dropped=len(missing),
    )


def join_words(
    tokenizer: Tokenizer, text: str, words: Sequence[tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    """Join words that touch and share an added token, or a subword if one is a single character.

    An added token such as '[e1]' may be three words by its punctuation. The single characters are
    Hangul or from scripts written without spaces (text/scripts.py), whose word boundaries are
    unknown. `align` then does not need to split the text between them.

    Args:
        tokenizer: The tokenizer.
        text: The text.
        words: First character and end (exclusive) of each word.
    """
    if not len(words):
        return ()
    is_character_W = np.array([bool(_CHARACTER.fullmatch(text, *word)) for word in words], bool)
    start_W, end_W = np.array(words).T
    (ids_N,), (offsets_N2,) = tokenizer.encode_batch([text], special=True)
    first_N = np.searchsorted(end_W, offsets_N2[:, 0], side='right')
    last_N = np.searchsorted(start_W, offsets_N2[:, 1]) - 1
    is_shared_W = np.zeros(len(words), bool)  # with the word before
    may_join_W = is_character_W | np.append(False, is_character_W[:-1])
    for index in np.flatnonzero(first_N < last_N):
        inside = slice(first_N[index] + 1, last_N[index] + 1)
        is_shared_W[inside] = True
        may_join_W[inside] |= ids_N[index] in tokenizer.added_ids
    is_joined_W = is_shared_W & may_join_W & (start_W == np.append(-1, end_W[:-1]))
    is_end_W = np.append(~is_joined_W[1:], True)
    return tuple(zip(start_W[~is_joined_W].tolist(), end_W[is_end_W].tolist(), strict=True))


def _check(text: str, words_W2: np.ndarray) -> None:
    starts, ends = words_W2[:, 0], words_W2[:, 1]
    is_invalid_W = (starts >= ends) | (ends > len(text)) | (starts < 0)
    is_invalid_W[1:] |= starts[1:] < ends[:-1]
    if is_invalid_W.any():
        index = int(is_invalid_W.argmax())
        start, end = words_W2[index].tolist()
        raise UserError(
            f'word {index} is characters {start} to {end} of a text of {len(text)} characters, but '
            f'words must be in order, not empty and not overlap (text: {text[:40]!r})'
        )


def _encode(tokenizer: Tokenizer, text: str, splits: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Split a text before these characters and tokenize the parts: ids [N], offsets [N, 2]."""
    bounds = [0, *splits, len(text)]
    parts = [text[a:b] for a, b in itertools.pairwise(bounds)]
    encoded = tokenizer.encode_batch(parts, special=True)
    offsets = [part + start for part, start in zip(encoded.offsets, bounds[:-1], strict=True)]
    return np.concatenate(encoded.ids), np.concatenate(offsets).astype(np.int32)


def _owners(text: str, offsets: np.ndarray, words_W2: np.ndarray) -> np.ndarray:
    """The word of each subword, −1 if there is none: int32 [N].

    It is the first word that the subword overlaps or, if the subword is blank, the word that starts
    at its end.
    """
    if not len(words_W2):
        return np.full(len(offsets), -1, np.int32)
    word = np.searchsorted(words_W2[:, 1], offsets[:, 0], side='right')
    starts = np.append(words_W2[:, 0], np.iinfo(np.int64).max)
    is_blank = np.array([not text[start:end].strip() for start, end in offsets], bool)
    next_word = np.searchsorted(words_W2[:, 1], offsets[:, 1], side='right')
    is_before_word = is_blank & (starts[next_word] <= offsets[:, 1])
    owners = np.where(starts[word] < offsets[:, 1], word, np.where(is_before_word, next_word, -1))
    return owners.astype(np.int32)


def _merged_with_previous(
    missing: np.ndarray, offsets: np.ndarray, words_W2: np.ndarray
) -> list[int]:
    """The words without subwords that begin within a subword of an earlier word."""
    return [
        word
        for word in missing.tolist()
        if ((offsets[:, 0] < words_W2[word, 0]) & (offsets[:, 1] > words_W2[word, 0])).any()
    ]

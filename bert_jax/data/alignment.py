"""Which pieces of a tokenized text belong to which of its words, by character offsets."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.data import sliding_windows
from bert_jax.data.tokenizers import Tokenizer
from bert_jax.errors import UserError

Spans = Sequence[tuple[int, int]]


class Alignment(NamedTuple):
    """The N pieces of a text with W words, without special tokens.

    Every word has a piece at least, and no piece belongs to two words:
    - A piece over parts of two words belongs to the first of them.
    - Where a word would be left with nothing because of that ('gon' + 'na' as one piece), the text
      is tokenized in two parts, cut after the word before it.
    - A word of which the tokenizer leaves nothing (control characters, say) is one unknown token.

    ids: int32 [N]. offsets: int32 [N, 2], the characters of each piece in the text, end exclusive.
    words: int32 [N], the word of each piece, ascending, and −1 for pieces of no word.
    first: int32 [W], the first piece of each word. count: int32 [W], how many it has.
    num_cut, num_unseen: how many words of the second and the third kind there are.
    """

    ids: np.ndarray
    offsets: np.ndarray
    words: np.ndarray
    first: np.ndarray
    count: np.ndarray
    num_cut: int
    num_unseen: int

    def cut(self, size: int, overlap: int) -> list[sliding_windows.Window]:
        """Windows of at most `size` pieces that cut no word, but for words of more than `size`
        pieces. Each word is answered for by the one window in whose first … last − 1 its first
        piece is."""
        return sliding_windows.cut(len(self.ids), size, overlap, self.places(size))

    def places(self, size: int) -> list[int]:
        """Positions from 0 to N at which no word is cut, or at which a word of more than `size`
        pieces is cut into parts of `size`."""
        inside = (self.words[1:] == self.words[:-1]) & (self.words[1:] >= 0)
        whole = [0, *(np.flatnonzero(~inside) + 1).tolist(), len(self.ids)]
        parts = (range(a, b, size) for a, b in itertools.pairwise(whole))
        return [*itertools.chain.from_iterable(parts), len(self.ids)]

    def answered(self, window: sliding_windows.Window) -> range:
        """The words a window answers for."""
        start, stop = np.searchsorted(self.first, [window.first, window.last])
        return range(int(start), int(stop))


def align(tokenizer: Tokenizer, text: str, words: Spans) -> Alignment:
    """The pieces of a text whose words are these characters, start and end (exclusive) of each.

    Words may touch and leave characters out. Raises UserError for those that are empty, overlap
    or lie outside the text.
    """
    words_W2 = np.array(words, np.int64).reshape(-1, 2)
    _check(text, words_W2)
    cuts: set[int] = set()
    while True:
        ids, offsets = _encode(tokenizer, text, sorted(cuts))
        owners = _owners(offsets, words_W2)
        missing = np.setdiff1d(np.arange(len(words_W2)), owners)
        covered = _covered(missing, offsets, words_W2)
        more = {int(words_W2[word - 1, 1]) for word in covered} - cuts
        if not more:
            break
        cuts |= more
    ids, offsets, owners = _with_unknown(tokenizer.unk_id, missing, words_W2, ids, offsets, owners)
    counts = np.bincount(owners[owners >= 0], minlength=len(words_W2))
    first = np.searchsorted(np.maximum.accumulate(owners), np.arange(len(words_W2)))
    return Alignment(
        ids,
        offsets,
        owners,
        first.astype(np.int32),
        counts.astype(np.int32),
        len(cuts),
        len(missing),
    )


def _check(text: str, words_W2: np.ndarray):
    starts, ends = words_W2[:, 0], words_W2[:, 1]
    wrong = (starts >= ends) | (ends > len(text)) | (starts < 0)
    wrong[1:] |= starts[1:] < ends[:-1]
    if wrong.any():
        index = int(wrong.argmax())
        start, end = words_W2[index].tolist()
        raise UserError(
            f'word {index} is characters {start} to {end} of a text of {len(text)}: words must '
            f'be in order, not empty and not overlap (text: {text[:40]!r})'
        )


def _encode(tokenizer: Tokenizer, text: str, cuts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Ids and offsets of a text tokenized in parts."""
    bounds = [0, *cuts, len(text)]
    encoded = tokenizer.encode_batch([text[a:b] for a, b in itertools.pairwise(bounds)])
    offsets = [own + start for own, start in zip(encoded.offsets, bounds[:-1], strict=True)]
    return np.concatenate(encoded.ids), np.concatenate(offsets).astype(np.int32)


def _owners(offsets: np.ndarray, words_W2: np.ndarray) -> np.ndarray:
    """int32 [N]: the first word of which a piece has a character, −1 if there is none."""
    if not len(words_W2):
        return np.full(len(offsets), -1, np.int32)
    word = np.searchsorted(words_W2[:, 1], offsets[:, 0], side='right')
    starts = np.append(words_W2[:, 0], np.iinfo(np.int64).max)
    return np.where(starts[word] < offsets[:, 1], word, -1).astype(np.int32)


def _covered(missing: np.ndarray, offsets: np.ndarray, words_W2: np.ndarray) -> list[int]:
    """Those of the words without a piece that share one with the word before them."""
    return [
        word
        for word in missing.tolist()
        if ((offsets[:, 0] < words_W2[word, 0]) & (offsets[:, 1] > words_W2[word, 0])).any()
    ]


def _with_unknown(unk_id: int, missing: np.ndarray, words_W2, ids, offsets, owners):
    """Ids, offsets and owners with an unknown token for each word without a piece."""
    later = np.maximum.accumulate(np.maximum(owners, -1)) if len(owners) else owners
    places = np.searchsorted(later, missing)
    return (
        np.insert(ids, places, unk_id).astype(np.int32),
        np.insert(offsets, places, words_W2[missing], axis=0).astype(np.int32),
        np.insert(owners, places, missing).astype(np.int32),
    )

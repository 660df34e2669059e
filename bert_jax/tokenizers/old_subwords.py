"""Finds the subwords that an old vocabulary has for each token of a new one.

A token is read as the text it stands for, and this text is normalized and split into words and
subwords as the old tokenizer does it. A token that continues a word keeps to tokens that do so.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence

import tokenizers

from bert_jax.tokenizers import byte_bpe, wordpiece
from bert_jax.tokenizers.backend import PIECE_SPACE
from bert_jax.tokenizers.tokenizer import Tokenizer
from bert_jax.types import JsonObject

_BYTE = re.compile('<0x[0-9A-F]{2}>')  # of SentencePiece, for bytes of unknown characters
_END_OF_WORD = '</w>'


def find(new: Tokenizer, old: Tokenizer) -> list[list[int]]:
    """Return old ids for each token of `new`, a tokenizer of the same kind.

    The ids are the id of the token if `old` has it, else the ids of its subwords without unknown
    ones; none if nothing of the token is known.
    """
    ids = {token: index for index, token in enumerate(old.vocab) if token}
    split = _SPLITTERS[old.kind](old, ids)
    return [
        [ids[token]]
        if token in ids
        else [
            index
            for index in (_as_text(old, token) if number in new.added_ids else split(token))
            if index not in old.special_ids
        ]
        for number, token in enumerate(new.vocab)
    ]


def _as_text(old: Tokenizer, text: str) -> list[int]:
    return [*map(int, old.encode_batch([text]).ids[0])]


Split = Callable[[str], Sequence[int]]


class _Words:
    """The parts of a tokenizer: text → words → ids."""

    def __init__(self, old: Tokenizer):
        """Take a tokenizer apart; it then inserts no space before a text."""
        settings = json.loads(old.to_json())
        _clear_prefix(settings['pre_tokenizer'])
        self._backend = tokenizers.Tokenizer.from_str(json.dumps(settings))

    def split(self, text: str) -> list[str]:
        """Normalize a text and split it into words."""
        normalizer, splitter = self._backend.normalizer, self._backend.pre_tokenizer
        text = normalizer.normalize_str(text) if normalizer else text
        if not splitter:
            return [text] if text else []
        return [word for word, _ in splitter.pre_tokenize_str(text)]

    def ids(self, words: Sequence[str]) -> list[int]:
        """Return the ids of the subwords of each word."""
        return [piece.id for word in words for piece in self._backend.model.tokenize(word)]


def _clear_prefix(step: JsonObject | None) -> None:
    """Set the `add_prefix_space` of each ByteLevel step of a pre-tokenizer to false."""
    for inner in (step or {}).get('pretokenizers', [step or {}]):
        if inner.get('type') == 'ByteLevel':
            inner['add_prefix_space'] = False


def _wordpiece(old: Tokenizer, ids: Mapping[str, int]) -> Split:
    words = _Words(old)

    def split(token: str) -> list[int]:
        found = words.split(token.removeprefix(wordpiece.CONTINUATION))
        if not token.startswith(wordpiece.CONTINUATION):
            return words.ids(found)
        first = [wordpiece.CONTINUATION + word for word in found[:1]]
        return [*_longest_first(first, ids), *words.ids(found[1:])]

    return split


def _longest_first(words: Sequence[str], ids: Mapping[str, int]) -> list[int]:
    """Split words that start with ##, longest match first; [] if a character is unknown."""
    subwords: list[int] = []
    for word in words:
        rest = word.removeprefix(wordpiece.CONTINUATION)
        while rest:
            names = (wordpiece.CONTINUATION + rest[:size] for size in range(len(rest), 0, -1))
            name = next((name for name in names if name in ids), None)
            if name is None:
                return []
            subwords.append(ids[name])
            rest = rest[len(name) - len(wordpiece.CONTINUATION) :]
    return subwords


def _byte_bpe(old: Tokenizer, _: Mapping[str, int]) -> Split:
    words = _Words(old)

    def split(token: str) -> list[int]:
        text = byte_bpe.decode(token)
        # Bytes of an incomplete character have no text to normalize.
        return words.ids([token] if text is None else words.split(text))

    return split


def _sentence_piece(old: Tokenizer, _: Mapping[str, int]) -> Split:
    words, space = _Words(old), PIECE_SPACE

    def split(token: str) -> list[int]:
        text = token.replace(space, ' ').strip()
        if _BYTE.fullmatch(token) or not text:
            return []
        found = words.split(text)
        first = [word.removeprefix(space) for word in found[:1]]
        if token.startswith(space):
            first = [space + word for word in first]
        return words.ids([*filter(None, first), *found[1:]])

    return split


def _characters(old: Tokenizer, _: Mapping[str, int]) -> Split:
    return lambda token: _as_text(old, token.removesuffix(_END_OF_WORD))


_SPLITTERS: Mapping[str, Callable[[Tokenizer, Mapping[str, int]], Split]] = {
    'wordpiece': _wordpiece,
    'bytebpe': _byte_bpe,
    'unigram': _sentence_piece,
    'sentencepiece-bpe': _sentence_piece,
    'bpe': _characters,
}

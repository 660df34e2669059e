"""SentencePiece's normalization rules, applied as SentencePiece does.

SentencePiece applies the longest rule at each place of a text. The `Precompiled` normalizer of the
tokenizers library applies the shortest rule at the start of each grapheme of at most five bytes and
drops the rest of the grapheme, such as the tones of decomposed Vietnamese. In longer graphemes,
such as decomposed Korean syllables, it only applies rules for single characters.
"""

import base64
import itertools
import json
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import sentencepiece
import tokenizers

from bert_jax.errors import UserError
from bert_jax.types import JsonObject

_PRIVATE = range(0x100000, 0x10FFFE)  # private-use characters, placeholders during a replacement


class Step(Protocol):
    """A step of a normalizer."""

    def normalize_str(self, text: str) -> str:
        """Return the normalized text."""


class Rules:
    """The rules of a precompiled charsmap, a custom normalizer for the tokenizers library."""

    def __init__(self, charsmap: bytes):
        """Read the rules from the bytes in a .model or, as base64, in a tokenizer.json.

        Raises:
            UserError: The bytes are damaged.
        """
        longest_text(charsmap)
        normalizer_spec = _field(2, charsmap)
        self._rules = sentencepiece.SentencePieceNormalizer(
            model_proto=_field(3, normalizer_spec),
            add_dummy_prefix=False,
            escape_whitespaces=False,
            remove_extra_whitespaces=False,
        )

    def normalize_str(self, text: str) -> str:
        """Return the normalized text."""
        return str(self._rules.Normalize(text))

    def normalize(self, text: tokenizers.NormalizedString) -> None:
        """Normalize a text in place; new characters have the offsets of those they replace.

        The methods of `text` change single characters, or a string wherever it occurs. To replace
        only the places at which a rule applies, these get a placeholder first.
        """
        before = text.normalized
        after, starts = self._rules.Normalize(before, with_offsets=True)
        if after == before:
            return
        used = {*before, *after}
        unused = (chr(code) for code in _PRIVATE if chr(code) not in used)
        removed = next(unused)
        placeholders: dict[str, str] = {}
        characters = [removed] * len(before)
        for start, places in itertools.groupby(range(len(after)), starts.__getitem__):
            new = ''.join(after[place] for place in places)
            if len(new) > 1:
                new = placeholders.get(new) or placeholders.setdefault(new, next(unused))
            characters[start] = new
        remaining = iter(characters)
        text.map(lambda _: next(remaining))
        text.filter(lambda character: character != removed)
        for new, placeholder in placeholders.items():
            text.replace(placeholder, new)


def as_normalizer(steps: Sequence[Step]) -> tokenizers.normalizers.Normalizer:
    """A normalizer of the tokenizers library that applies some steps."""
    custom = tokenizers.normalizers.Normalizer.custom
    return tokenizers.normalizers.Sequence(
        [custom(step) if isinstance(step, Rules) else step for step in steps]
    )


def build(step: JsonObject) -> Step:
    """Build a step of the normalizer of a tokenizer.json, with exact rules."""
    if step['type'] == 'Precompiled':
        return Rules(base64.b64decode(step['precompiled_charsmap']))
    model = {'type': 'WordLevel', 'vocab': {}, 'unk_token': ''}
    backend = tokenizers.Tokenizer.from_str(json.dumps({'model': model, 'normalizer': step}))
    built: Step = backend.normalizer
    return built


def longest_text(charsmap: bytes) -> int:
    """Return the characters of the longest text by which a rule replaces another.

    The bytes are the size of a trie, the trie, and the texts of the rules, each with a zero at its
    end. Each uint32 of the trie is a node (https://github.com/s-yata/darts-clone): the children of
    a node are at the exclusive or of its index, its offset and their byte, and its value, the place
    of a text, at that of its index and its offset.

    Raises:
        UserError: A search in the rules could leave them, which SentencePiece does not check.
    """
    size = int.from_bytes(charsmap[:4], 'little')
    trie, texts = charsmap[4 : 4 + size], charsmap[4 + size :]
    if size % 4 or not 0 < size == len(trie) or not texts.endswith(b'\0'):
        raise UserError('the normalization rules are damaged')
    nodes = np.frombuffer(trie, '<u4').astype(np.int64)
    first = np.arange(len(nodes)) ^ (nodes >> 10 << (nodes >> 6 & 8))
    is_inner = nodes >> 31 == 0
    is_inside = (first | 255) < len(nodes)
    has_value = is_inner & is_inside & (nodes >> 8 & 1 == 1)
    values = nodes[first[has_value]] & 2**31 - 1
    if not is_inside[is_inner].all() or not (values < len(texts)).all():
        raise UserError('the normalization rules are damaged')
    try:
        return max(map(len, texts.decode('utf-8').split('\0')))
    except UnicodeDecodeError:
        raise UserError('the normalization rules are damaged') from None


def _field(number: int, value: bytes) -> bytes:
    """A field of a protobuf message that has bytes as its value."""
    size, rest = b'', len(value)
    while rest > 127:
        size += bytes([rest & 127 | 128])
        rest >>= 7
    return bytes([number << 3 | 2]) + size + bytes([rest]) + value

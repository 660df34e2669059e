"""Encodes texts without offsets, and remembers the ids of their parts (mostly words)."""

import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from bert_jax.tokenizers.backend import Backend, encodable
from bert_jax.types import JsonObject

CACHED_IDS = 2**20  # bounds the memory of the cache (about 100 MB)
_TEXTS_AT_ONCE = 5_000  # bounds the memory of the parts of these texts

_ODD_SPACES = re.compile(r'^\s|\s$|\s\s|[^\S ]')
_BEFORE_SPACE = re.compile('(?= )')
_SENTENCEPIECE_SPLITS = [
    [split, 'Metaspace'] for split in ('WhitespaceSplit', 'CharDelimiterSplit')
]
_SENTENCEPIECE_STEPS = {'Replace', 'NFKD', 'StripAccents', 'Lowercase', 'Precompiled'}
_BYTE_BPE_STEPS = {'Lowercase', 'NFC', 'NFD', 'StripAccents'}

Splitter = Callable[[str], list[str]]


class CachedEncoder:
    """Encodes texts without offsets, several times faster than the `tokenizers` library alone."""

    def __init__(self, backend: Backend, split: Splitter):
        """Create an encoder; `split` divides a text into parts that are encoded separately."""
        self._backend, self._split = backend, split
        self._cache: dict[str, bytes] = {}
        self._cached_ids = 0

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of all texts, int32 [N], and their number in each text, int64."""
        ids, lengths = bytearray(), np.empty(len(texts), np.int64)
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            parts = [self._split(text) for text in texts[start : start + _TEXTS_AT_ONCE]]
            self._remember({part for text_parts in parts for part in text_parts})
            lookup = self._cache.__getitem__
            encoded = [b''.join(map(lookup, text_parts)) for text_parts in parts]
            lengths[start : start + len(parts)] = list(map(len, encoded))
            ids += b''.join(encoded)
        return np.frombuffer(ids, np.int32), lengths // 4

    def _remember(self, parts: set[str]) -> None:
        """Cache the ids of all parts, as the bytes of int32 arrays."""
        if self._cached_ids > CACHED_IDS:
            self._cache.clear()
            self._cached_ids = 0
        unseen = list(parts.difference(self._cache))
        for start in range(0, len(unseen), 10_000):
            batch = unseen[start : start + 10_000]
            encoded = self._backend.encode_batch_fast([encodable(part) for part in batch])
            for part, encoding in zip(batch, encoded, strict=True):
                self._cache[part] = np.array(encoding.ids, np.int32).tobytes()
                self._cached_ids += len(encoding) + 1


def splitter(
    settings: JsonObject, added: Iterable[JsonObject], normalize: Callable[[str], str]
) -> Splitter:
    """Return a function that splits a text into parts that can be encoded separately.

    BERT's cleaning works on single characters, and its pre-tokenizer splits at every space.
    SentencePiece and byte-level BPE also split before every space, but may treat repeated spaces or
    other whitespace differently; texts with such whitespace are not split, nor are the texts of
    other tokenizers, nor texts with an added token that reaches beyond a part.

    Args:
        settings: The contents of the tokenizer.json.
        added: The added tokens that are recognized in a text, as in tokenizer.json.
        normalize: Returns the normalized text.
    """
    steps = {step['type'] for step in _flatten(settings['normalizer'], 'normalizers')}
    splits = _flatten(settings['pre_tokenizer'], 'pretokenizers')
    kinds = [split['type'] for split in splits]
    if kinds == ['BertPreTokenizer'] and steps == {'BertNormalizer'}:
        split: Splitter = _split_at_any_space
    elif kinds == ['ByteLevel'] and steps <= _BYTE_BPE_STEPS and splits[0].get('use_regex', True):
        split = _split_before_spaces
    elif (
        kinds in _SENTENCEPIECE_SPLITS
        and steps <= _SENTENCEPIECE_STEPS
        and splits[1].get('prepend_scheme') == 'always'
    ):
        split = _split_at_spaces
    else:
        return _no_split
    keeps_spaces = split is _split_before_spaces
    wide = [token for token in added if _is_wide(token, normalize, keeps_spaces)]
    if any(token['normalized'] for token in wide):  # other strings may become the token
        return _no_split
    return _unless_present([token['content'] for token in wide], split) if wide else split


def _is_wide(token: JsonObject, normalize: Callable[[str], str], keeps_spaces: bool) -> bool:
    """Whether an added token contains a space or absorbs the space of the next part."""
    forms = token['content'] + (normalize(token['content']) if token['normalized'] else '')
    return bool(re.search(r'\s', forms)) or (keeps_spaces and token['rstrip'])


def _unless_present(contents: Sequence[str], split: Splitter) -> Splitter:
    pattern = re.compile('|'.join(map(re.escape, contents)))
    return lambda text: [text] if pattern.search(text) else split(text)


def _flatten(part: JsonObject | None, sequence: str) -> list[JsonObject]:
    """The steps of a normalizer or pre-tokenizer, whether or not it is a sequence."""
    return [] if part is None else part.get(sequence, [part])


def _no_split(text: str) -> list[str]:
    return [text]


def _split_at_any_space(text: str) -> list[str]:
    return text.split(' ')


def _split_before_spaces(text: str) -> list[str]:
    return [text] if _ODD_SPACES.search(text) else _BEFORE_SPACE.split(text)


def _split_at_spaces(text: str) -> list[str]:
    return [text] if _ODD_SPACES.search(text) else text.split(' ')

"""A tokenizer of the tokenizers library that normalizes as SentencePiece does."""

import contextlib
import functools
import json
import re
from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np
import tokenizers

from bert_jax import errors
from bert_jax.text import scripts
from bert_jax.types import JsonObject

BYTE_SPACE = 'Ġ'  # stands for a space in the tokens of byte-level BPE
PIECE_SPACE = '▁'  # stands for a space in the pieces of SentencePiece

Item = TypeVar('Item')


class Backend:
    """Encodes texts with the tokenizers library and SentencePiece's normalization.

    Attributes:
        library: The tokenizer of the library.
        has_rules: Whether its normalizer has the rules of a SentencePiece model, which the library
            applies otherwise (see `charsmap`).
    """

    def __init__(self, settings: JsonObject, literal: bool = False):
        """Read the settings, the contents of a tokenizer.json.

        Args:
            literal: Whether special tokens in a text are ordinary text.
        """
        # No special tokens are added, and `_trim_spaces` trims offsets.
        self._trims = _trims_spaces(settings.get('post_processor'))
        self.library = read(settings | {'post_processor': None, 'padding': None}, literal)
        vocab = self.library.get_vocab() if self._trims else {}
        self._space_ids = [i for token, i in vocab.items() if not token.strip(BYTE_SPACE)]
        steps = list(_flatten(settings['normalizer']))
        self.has_rules = any(step['type'] == 'Precompiled' for step in steps)
        self._has_warned = False
        if not self.has_rules:
            return
        from bert_jax.tokenizers import charsmap  # of SentencePiece models alone

        self._steps = [charsmap.build(step) for step in steps]
        self._without_normalizer = tokenizers.Tokenizer(self.library.model)  # not copied
        self._without_normalizer.pre_tokenizer = self.library.pre_tokenizer
        added = [token for token in settings['added_tokens'] if not (literal and token['special'])]
        # The library finds added tokens before or after it normalizes the text.
        before, after = (
            [token['content'] for token in added if token['normalized'] == normalized]
            for normalized in (False, True)
        )
        self._before, self._after = _any_of(before), _any_of(self._normalize(after))

    @functools.cached_property
    def _custom(self) -> tokenizers.Tokenizer:
        """The tokenizer with SentencePiece's rules.

        It is slow, because the threads of the library wait for each other in a custom normalizer.
        """
        from bert_jax.tokenizers import charsmap

        custom = tokenizers.Tokenizer.from_str(self.library.to_str())
        custom.encode_special_tokens = self.library.encode_special_tokens
        custom.normalizer = charsmap.as_normalizer(self._steps)
        return custom

    def encode_with_offsets(self, texts: list[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Encode texts: ids, int32 [N], and offsets, int32 [N, 2], of each text."""
        encoded = [
            (np.array(e.ids, np.int32), np.array(e.offsets, np.int32).reshape(-1, 2))
            for e in self._encode_batch(texts)
        ]
        if self._trims:
            for (ids, offsets), text in zip(encoded, texts, strict=True):
                _trim_spaces(offsets, text)
                is_space = np.isin(ids, self._space_ids)  # perhaps inserted before a character
                offsets[is_space, 1] = offsets[is_space, 0]
        return encoded

    def _encode_batch(self, texts: list[str]) -> list[tokenizers.Encoding]:
        if not self.has_rules:
            return self.library.encode_batch(texts, add_special_tokens=False)
        normalize = self.library.normalizer.normalize_str
        is_normalized = [
            normalize(text) == exact
            for text, exact in zip(texts, self._normalize(texts), strict=True)
        ]
        if not (all(is_normalized) or self._has_warned):
            self._has_warned = True
            errors.warn(
                'with this SentencePiece vocabulary transformers drops characters of decomposed '
                f'text, which are kept here: {texts[is_normalized.index(False)][:60]!r}'
            )
        is_same = [
            flag and not self._before.search(text)
            for flag, text in zip(is_normalized, texts, strict=True)
        ]
        if all(is_same):
            return self.library.encode_batch(texts, add_special_tokens=False)
        same = self.library.encode_batch(_choose(texts, is_same, True), add_special_tokens=False)
        other = self._custom.encode_batch(_choose(texts, is_same, False), add_special_tokens=False)
        return _merge(is_same, same, other)

    def encode_batch_fast(self, texts: list[str]) -> list[tokenizers.Encoding]:
        """Encode texts without offsets."""
        if not self.has_rules:
            return self.library.encode_batch_fast(texts, add_special_tokens=False)
        normalized = self._normalize(texts)
        is_plain = [
            not (self._before.search(text) or self._after.search(exact))
            for text, exact in zip(texts, normalized, strict=True)
        ]
        plain = self._without_normalizer.encode_batch_fast(
            _choose(normalized, is_plain, True), add_special_tokens=False
        )
        if all(is_plain):
            return plain
        return _merge(is_plain, plain, self._encode_batch(_choose(texts, is_plain, False)))

    def _normalize(self, texts: list[str]) -> list[str]:
        for step in self._steps:
            texts = [step.normalize_str(text) for text in texts]
        return texts


def encodable(text: str) -> str:
    """Replace lone surrogates (from broken JSON, not encodable as UTF-8) by U+FFFD."""
    return scripts.replace_surrogates(text)[0]


def read(settings: JsonObject, literal: bool = False) -> tokenizers.Tokenizer:
    """Create a tokenizer of the library from the contents of a tokenizer.json."""
    with library_errors():
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(settings))
    tokenizer.encode_special_tokens = literal
    return tokenizer


def _trims_spaces(post_processor: JsonObject | None) -> bool:
    """Whether a post-processor of byte-level BPE removes spaces from the offsets."""
    step = post_processor or {}
    if 'processors' in step:
        return any(map(_trims_spaces, step['processors']))
    return step.get('type') in ('ByteLevel', 'RobertaProcessing') and step['trim_offsets']


def _trim_spaces(offsets: np.ndarray, text: str) -> None:
    """Remove the spaces around tokens from their offsets [N, 2], in place.

    The library counts the Ġ of a token instead, even those that do not stand for a space of the
    text, because the pre-tokenizer removed the space and inserted the Ġ.
    """
    is_space = np.frombuffer(text.encode('utf-32-le'), np.uint32) == ord(' ')
    place = np.arange(len(text) + 1)
    next_start = np.append(np.where(is_space, len(text), place[:-1]), len(text))
    next_start = np.minimum.accumulate(next_start[::-1])[::-1]
    last_end = np.maximum.accumulate(np.append(0, np.where(is_space, 0, place[1:])))
    start, end = offsets.T
    offsets[:, 0] = np.minimum(next_start[start], end)
    offsets[:, 1] = np.maximum(last_end[end], offsets[:, 0])


@contextlib.contextmanager
def library_errors(work: str = 'read it') -> Iterator[None]:
    """Turn an error of the tokenizers library into a UserError; also a decorator.

    The library raises bare Exceptions, and PanicExceptions, which are BaseExceptions.

    Args:
        work: what the library cannot do, for the message.
    """
    try:
        yield
    except (errors.UserError, OSError, UnicodeDecodeError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != 'PanicException':
            raise
        reason = ' '.join(str(error).split())
        message = f'the tokenizers library cannot {work}: {reason:.200}'
        raise errors.UserError(message) from error


def _flatten(normalizer: JsonObject | None) -> Iterator[JsonObject]:
    """Yield the steps of a normalizer of a tokenizer.json, in order."""
    if normalizer is None:
        return
    if normalizer['type'] != 'Sequence':
        yield normalizer
        return
    for step in normalizer['normalizers']:
        yield from _flatten(step)


def _any_of(contents: list[str]) -> re.Pattern[str]:
    return re.compile('|'.join(map(re.escape, contents)) or '(?!)')


def _choose(texts: list[str], flags: list[bool], flag: bool) -> list[str]:
    return [text for text, other in zip(texts, flags, strict=True) if other == flag]


def _merge(flags: list[bool], if_true: Iterable[Item], if_false: Iterable[Item]) -> list[Item]:
    """Merge items in the order of their flags."""
    items = {True: iter(if_true), False: iter(if_false)}
    return [next(items[flag]) for flag in flags]

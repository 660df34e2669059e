"""Measures which words of a text become one word when accents are stripped.

BERT's lowercasing also strips nonspacing marks: German müsste becomes musste, and words of
Vietnamese or Hindi lose their tones or vowel signs (कु becomes क).
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from tokenizers import normalizers, pre_tokenizers

from bert_jax import errors

_MEASURED = 2**22  # characters of a long text that are measured
_WARN_FROM = 0.005  # 0.02 % in English, 0.7 % in Estonian, 5 % in Latvian, 12 % in Gujarati
_ASCII_WORD = re.compile('[a-z0-9]+')


class MergedWords(NamedTuple):
    """Words that stripping accents makes equal to another word.

    Attributes:
        share: their share of the distinct lowercased words.
        examples: up to four pairs of equal words.
    """

    share: float
    examples: tuple[tuple[str, str], ...]


def measure(texts: Sequence[str]) -> MergedWords:
    """Measure the words of texts; of long texts, those of paragraphs at regular distances."""
    step = 1 + sum(map(len, texts)) // _MEASURED
    keep, strip = (
        normalizers.BertNormalizer(lowercase=True, strip_accents=is_stripped)
        for is_stripped in (False, True)
    )
    splitter = pre_tokenizers.BertPreTokenizer()
    words: dict[str, dict[str, None]] = {}  # stripped → words, in a fixed order
    for chunk in dict.fromkeys(chunk for text in texts[::step] for chunk in text.split()):
        if chunk.isascii():
            for word in _ASCII_WORD.findall(chunk.lower()):
                words.setdefault(word, {})[word] = None
        else:
            for word, _ in splitter.pre_tokenize_str(keep.normalize_str(chunk)):
                if any(map(str.isalnum, word)):
                    words.setdefault(strip.normalize_str(word), {})[word] = None
    number = sum(map(len, words.values()))
    pairs = [tuple(group)[:2] for group in words.values() if len(group) > 1]
    return MergedWords((number - len(words)) / max(1, number), tuple(pairs[:4]))  # type: ignore[arg-type]


def warn(texts: Sequence[str]) -> None:
    """Warn if stripping the accents of a text makes many of its words equal."""
    merged = measure(texts)
    if merged.share >= _WARN_FROM:
        examples = ', '.join(f'{first} = {second}' for first, second in merged.examples)
        errors.warn(
            'lowercase=True strips accents and vowel signs, as in BERT; here this makes '
            f'{merged.share:.1%} of the distinct words equal to another word ({examples}); '
            'strip_accents=False keeps them'
        )

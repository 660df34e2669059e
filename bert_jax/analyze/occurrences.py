"""Occurrences of words in texts: marked as [[word]], searched for, or given by characters."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax import files
from bert_jax.analyze.layers import Layer
from bert_jax.analyze.measures import isotropy
from bert_jax.errors import UserError
from bert_jax.inference.predictor import Predictor
from bert_jax.inference.streams import stream_words
from bert_jax.inference.vectors import width
from bert_jax.labels import word_spans
from bert_jax.types import JsonObject, JsonRecord

_MARKED = re.compile(r'\[\[(.{1,200}?)\]\]')  # bounded, so that unclosed marks take linear time


class Occurrence(NamedTuple):
    """An occurrence of a word in a text.

    Attributes:
        text: the text, without marks.
        span: first character and end (exclusive) of the word.
        label: sense, language or another group of the occurrence; '' if unknown.
    """

    text: str
    span: tuple[int, int]
    label: str = ''

    @property
    def word(self) -> str:
        """The word as spelled in the text."""
        return self.text[slice(*self.span)]

    def context(self, width: int) -> str:
        """The word in brackets, with up to `width` characters on either side."""
        start, end = self.span
        before, after = self.text[:start], self.text[end:]
        before = before if len(before) <= width else '…' + before[-width:]
        after = after if len(after) <= width else after[:width] + '…'
        return f'{before}[{self.word}]{after}'


def find_marked(text: str, place: str, label: str = '') -> Occurrence:
    """The occurrence of the only word that is marked as [[word]] in a text."""
    number = len(_MARKED.findall(text))
    if number != 1:
        raise UserError(f'{place}: {number} words are marked as [[word]], must be one')
    before, word, after = _MARKED.split(text)
    return Occurrence(before + word + after, (len(before), len(before) + len(word)), label)


def find_word(text: str, word: str, label: str = '') -> list[Occurrence]:
    """All occurrences of a word in a text, ignoring case."""
    pattern = re.compile(rf'(?<!\w){re.escape(word)}(?!\w)', re.IGNORECASE)
    return [Occurrence(text, match.span(), label) for match in pattern.finditer(text)]


def from_json(record: JsonObject, which: int, place: str) -> Occurrence:
    """The first (`which` = 0) or second (1) word of a pair in a JSON object.

    Texts are in 'text' and 'text2' or, as in WiC of SuperGLUE, in 'sentence1' and 'sentence2'.
    Words are given by 'marks', by 'start1' and 'end1' ('start2' …), or by 'word' and 'word2'.
    """
    number, suffix = which + 1, '2' if which else ''
    keys = (f'text{suffix}', f'sentence{number}', 'text')
    text = next((record[key] for key in keys if key in record), None)
    if not isinstance(text, str):
        raise UserError(f'{place}: "text{suffix}" is missing or not a string')
    marks = record.get('marks')
    if f'start{number}' in record:
        marks = {which: (record[f'start{number}'], record.get(f'end{number}'))}
    if marks is not None:
        try:
            start, end = map(int, marks[which])
        except (TypeError, ValueError, LookupError):
            raise UserError(f'{place}: "marks" is not [[start, end], [start, end]]') from None
        if not 0 <= start < end <= len(text):
            raise UserError(
                f'{place}: mark {start}:{end} is outside the text of {len(text)} characters'
            )
        return Occurrence(text, (start, end))
    word = record.get(f'word{suffix}', record.get('word'))
    matches = find_word(text, word) if isinstance(word, str) and word else []
    if not matches:
        raise UserError(f'{place}: {word!r} is not a word of its sentence {text[:60]!r}')
    return matches[0]


def parse_json(line: str, place: str) -> JsonRecord:
    """Parse a line that is a JSON object."""
    try:
        record = files.parse_json(line)
    except ValueError as error:
        raise UserError(f'{place} is not valid JSON: {error}') from None
    if not isinstance(record, dict):
        raise UserError(f'{place} is not a JSON object')
    return record


def encode(
    predictor: Predictor, occurrences: Sequence[Occurrence], layers: tuple[Layer, ...]
) -> tuple[np.ndarray, list[isotropy.Scale]]:
    """Compute the vectors of occurrences, and the scale of each layer for z-scores.

    Returns:
        float32 [N, K, D], for K layers; and for each layer the scale over all words of all texts.
    """
    located = [(o.text, (*word_spans.split_words(o.text), o.span)) for o in occurrences]
    moments = [isotropy.moments(width(predictor, layers)) for _ in layers]
    vectors = []
    for states_WKD in stream_words(predictor, located, layer=layers):
        vectors.append(states_WKD[-1])
        for layer, layer_moments in enumerate(moments):
            layer_moments.add(states_WKD[:-1, layer])
    return np.stack(vectors), [layer_moments.scale() for layer_moments in moments]

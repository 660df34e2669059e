"""Words in their texts: marked as [[word]], searched for, or given by characters."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.analyze.layers import Layer
from bert_jax.data.labeled import word_spans
from bert_jax.errors import UserError
from bert_jax.evaluation import isotropy
from bert_jax.inference.predictor import Predictor
from bert_jax.inference.word_states import stream_words

_MARKED = re.compile(r'\[\[(.+?)\]\]')


class Occurrence(NamedTuple):
    """A word in a text.

    Attributes:
        text: the text, without marks.
        span: first character and end (exclusive) of the word.
        label: its sense, language or another group; '' if unknown.
    """

    text: str
    span: tuple[int, int]
    label: str = ''

    @property
    def word(self) -> str:
        """The word as it is written."""
        return self.text[slice(*self.span)]

    def context(self, width: int) -> str:
        """The word in brackets with about `width` characters on either side."""
        start, end = self.span
        before, after = self.text[:start], self.text[end:]
        before = before if len(before) <= width else '…' + before[-width:]
        after = after if len(after) <= width else after[:width] + '…'
        return f'{before}[{self.word}]{after}'


def find_marked(text: str, place: str, label: str = '') -> Occurrence:
    """The word of a text that is marked as [[word]]."""
    found = _MARKED.findall(text)
    if len(found) != 1:
        raise UserError(f'{place}: {len(found)} words are marked as [[word]], must be one')
    before, word, after = _MARKED.split(text)
    return Occurrence(before + word + after, (len(before), len(before) + len(word)), label)


def find_word(text: str, word: str, label: str = '') -> list[Occurrence]:
    """All places of a word in a text; case does not matter."""
    pattern = re.compile(rf'(?<!\w){re.escape(word)}(?!\w)', re.IGNORECASE)
    return [Occurrence(text, match.span(), label) for match in pattern.finditer(text)]


def from_json(given: Mapping[str, Any], which: int, place: str) -> Occurrence:
    """The first or second word of an object, where `which` is 0 or 1.

    Texts are in 'text' and 'text2', or, as in WiC of SuperGLUE, in 'sentence1' and 'sentence2'.
    Words are given by 'marks', by 'start1' and 'end1' (2), or as 'word' and 'word2'.
    """
    number, suffix = which + 1, '2' if which else ''
    names = (f'text{suffix}', f'sentence{number}', 'text')
    text = next((given[name] for name in names if name in given), None)
    if not isinstance(text, str):
        raise UserError(f'{place}: "text{suffix}" is missing or not a string')
    marks = given.get('marks')
    if f'start{number}' in given:
        marks = {which: (given[f'start{number}'], given.get(f'end{number}'))}
    if marks is not None:
        try:
            start, end = map(int, marks[which])
        except (TypeError, ValueError, LookupError):
            raise UserError(f'{place}: "marks" is not [[start, end], [start, end]]') from None
        if not 0 <= start < end <= len(text):
            raise UserError(f'{place}: mark {start}:{end} is outside the text of {len(text)}')
        return Occurrence(text, (start, end))
    word = given.get(f'word{suffix}', given.get('word'))
    found = find_word(text, word) if isinstance(word, str) and word else []
    if not found:
        raise UserError(f'{place}: {word!r} is not a word of its sentence {text[:60]!r}')
    return found[0]


def parse_json(line: str, place: str) -> Mapping[str, Any]:
    """The JSON object of a line."""
    try:
        given = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f'{place} is not valid JSON: {error}') from None
    if not isinstance(given, dict):
        raise UserError(f'{place} is not a JSON object')
    return given


def encode(
    predictor: Predictor, occurrences: Sequence[Occurrence], layers: tuple[Layer, ...]
) -> tuple[np.ndarray, list[isotropy.Scale]]:
    """The vectors of words, and the distribution of the words of their texts.

    Returns:
        float32 [N, K, D], for K layers; and for each layer the scale over all words of all texts.
    """
    located = [(o.text, (*word_spans.split_words(o.text), o.span)) for o in occurrences]
    size = predictor.architecture.hidden_size
    moments = [isotropy.moments(size) for _ in layers]
    vectors = []
    for states_WKD in stream_words(predictor, located, layer=layers):
        vectors.append(states_WKD[-1])
        for layer, own in enumerate(moments):
            own.add(states_WKD[:-1, layer])
    return np.stack(vectors), [own.scale() for own in moments]

"""Fields of raw input, given as JSON objects, and spans in answers."""

import json
from typing import Any

from bert_jax.errors import UserError
from bert_jax.labels import word_spans
from bert_jax.labels.records import InvalidRecord
from bert_jax.types import JsonRecord, RecordView


def require(record: RecordView, name: str, key: str) -> Any:
    """Return record[key]. Raises UserError, with the name of the input, if the key is missing."""
    if key not in record:
        known = ', '.join(sorted(record.keys() - {'id'})) or 'no keys'
        raise UserError(f'{name}: key {key!r} is missing; the input has {known}')
    return record[key]


def require_text(record: RecordView, name: str, key: str) -> str:
    """Return the text record[key]. Raises UserError if it is missing or not a string."""
    value = require(record, name, key)
    if not isinstance(value, str):
        raise UserError(f'{name}: {key!r} is {json.dumps(value)[:40]}, not a string')
    return value


def require_list(record: RecordView, name: str, key: str) -> list[str]:
    """Return the texts record[key]. Raises UserError unless it is a list of strings, not empty."""
    value = require(record, name, key)
    is_list = isinstance(value, list | tuple) and len(value) > 0
    if not is_list or not all(isinstance(text, str) for text in value):
        raise UserError(f'{name}: {key!r} must be a list of at least one string')
    return list(value)


def require_texts(record: RecordView, name: str) -> tuple[str, ...]:
    """Return 'text' and, if present, 'text2'. Raises UserError without 'text'."""
    keys = ('text', 'text2') if 'text2' in record else ('text',)
    return tuple(require_text(record, name, key) for key in keys)


def require_words(
    record: RecordView, name: str, splitter: str
) -> tuple[str, word_spans.WordOffsets]:
    """Return a text and the (start, end) characters of its words.

    The words come from 'words' or 'tokens', a list of strings, or else from splitting 'text' with
    `splitter` (SPLITTERS in labels/word_spans.py).

    Raises:
        UserError: no such key, or a value that is not a list of words or a text.
    """
    key = next((key for key in ('words', 'tokens') if key in record), 'text')
    try:
        text, words = word_spans.parse_text(require(record, name, key))
    except InvalidRecord as error:
        raise UserError(f'{name}: {key!r}: {error}') from None
    if (words is None) != (key == 'text'):
        raise UserError(f"{name}: give a text as 'text', a list of words as 'words'")
    return text, word_spans.SPLITTERS[splitter](text) if words is None else words


def describe_span(text: str, start: int, end: int, **more: object) -> JsonRecord:
    """Return a span of characters for a record: 'start', 'end', 'text', and more."""
    return {'start': start, 'end': end, 'text': text[start:end], **more}

"""Reads rows from JSON: one object per line, or a list of objects."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.labels import label_studio
from bert_jax.labels.records import InvalidRecord, Record, Row, make_record
from bert_jax.labels.text_lines import is_blank, numbered_lines
from bert_jax.text import text_files


def read_json_lines(path: str, data: ConfigDict) -> Iterator[Record]:
    """Yield the JSON objects of a file with one object per line."""
    for number, line in numbered_lines(path, data):
        if not is_blank(line):
            for row in _rows(_parse(line)):
                yield make_record(path, number, row, text=line)


def read_json_list(path: str, data: ConfigDict) -> Iterator[Record]:
    """Yield the objects of a JSON list (the file or its key 'data'), or one object per line.

    The line number of a place is the number of the object, from 1.
    """
    objects = load_json(path, data)
    if isinstance(objects, dict):
        objects = objects.get('data')
    if not isinstance(objects, list):
        raise UserError(f'{path} is not a JSON list of objects; set data.format')
    for number, value in enumerate(objects, start=1):
        for row in _rows(value):
            yield make_record(path, number, row)


def load_json(path: str, data: ConfigDict) -> Any:
    """Return the value in a JSON file; a list of values if each line has one.

    Raises:
        UserError: the file is not valid JSON.
    """
    try:
        return _loads(text_files.read_text(path, data.encoding, option='data.encoding'))
    except (ValueError, RecursionError) as error:
        lines = (line for _, line in numbered_lines(path, data))
        values = [_parse(line) for line in lines if not is_blank(line)]
        if values and isinstance(values[0], dict):
            return values
        raise UserError(f'{path} is not valid JSON: {error}; set data.format') from None


def _parse(line: str) -> object:
    try:
        return _loads(line)
    except (ValueError, RecursionError):
        return InvalidRecord('the line is not valid JSON')


def _loads(text: str) -> object:
    """Parse JSON; NaN and Infinity, with which some programs mark missing values, become null."""
    return json.loads(text, parse_constant=lambda _: None)


def _rows(value: object) -> Iterable[Row | InvalidRecord]:
    """The row of an object, or the rows of a task of Label Studio.

    [text, {…}], as spaCy's examples were kept before version 3, is an object with that text.
    """
    match value:
        case [str() as text, dict() as annotations]:
            value = {'text': text} | annotations
    if isinstance(value, dict):
        return label_studio.rows_of(value) if label_studio.is_task(value) else (Row(value),)
    if isinstance(value, InvalidRecord):
        return (value,)
    return (_NOT_AN_OBJECT,)


_NOT_AN_OBJECT = InvalidRecord('not a JSON object; data.format=json reads a list of objects')

"""Reads tables as input of predict.py: the rows become lines of its tasks."""

import json
import os
from collections.abc import Iterator, Sequence

from ml_collections import ConfigDict

from bert_jax.errors import UserError, warn
from bert_jax.labels.formats import FORMATS, expand_globs, matching_files
from bert_jax.labels.records import InvalidRecord, ReadingReport, Record, Remark, Row
from bert_jax.storage import paths
from bert_jax.text import text_files
from bert_jax.types import JsonObject

_FORMATS = ('csv', 'tsv', 'jsonl', 'json', 'parquet')
# Tasks whose lines are texts, never JSON → the fields that a line has, separated by tabs.
_TEXT_TASKS = {
    'fill_mask': ('text',),
    'pseudo_likelihood': ('text',),
    'likelihood_bound': ('text',),
    'generate': ('text',),
    'embed': ('text',),
    'search': ('text',),
    'terms': ('text',),
    'pairs': ('text', 'text2'),
}
_NEEDS_TEXT = ('classify', 'tag', 'parse', 'spans', 'write')  # or words


def text_fields(task: str, unit: str) -> Sequence[str]:
    """Return the fields of a line of text; () for tasks whose lines may be JSON objects."""
    return () if unit != 'text' else _TEXT_TASKS.get(task, ())


def format_of(path: str, fields: Sequence[str]) -> str:
    """Return the format of a table by the suffix of its name; '' if it is read line by line.

    Tasks without `fields` read JSON lines themselves.
    """
    if paths.path(path).is_dir():  # of save_to_disk
        path = next(iter(matching_files(path)), path)
    suffix = os.path.splitext(text_files.uncompressed_name(path))[1].lower()
    names = [name for name in _FORMATS if suffix in FORMATS[name].suffixes]
    return names[0] if names and (fields or names[0] != 'jsonl') else ''


def format_read(path: str, task: str, unit: str, input_format: str) -> str:
    """Return the format of a table whose rows `read_lines` reads; '' if lines are read."""
    return format_of(path, text_fields(task, unit)) if input_format == 'auto' else ''


def read_lines(
    path: str, file_format: str, task: str, fields: Sequence[str], data: ConfigDict
) -> Iterator[str]:
    """Yield the rows of a table as lines: a text, a JSON list of several, or a JSON object.

    Args:
        path: The table.
        file_format: Its format, see `format_of`.
        task: The task of predict.py.
        fields: See `text_fields`.
        data: The `data` settings of the training, whose `columns` name the fields.

    Raises:
        UserError: The table or a row cannot be read, or lacks a column of the task.
    """
    if file_format != 'parquet':
        with text_files.open_text(path, data.encoding, option='--encoding'):
            pass  # the readers would name data.encoding, which predict.py does not have
    report = ReadingReport()
    number, read = 0, FORMATS[file_format].read
    for record in (record for file in expand_globs([path]) for record in read(file, data)):
        row = record.content
        if isinstance(row, Remark):
            report.add(str(row), record.place)
            continue
        if isinstance(row, InvalidRecord):
            raise UserError(f'{record.place}: {row}')
        number += 1
        _check_columns(path, row, fields or ('text',) * (task in _NEEDS_TEXT), data)
        yield _text(record, fields, data) if fields else json.dumps(_object(record, data))
    if not number:
        raise UserError(f'{path} has no rows')
    for line in report.lines():
        warn(line)


def _check_columns(path: str, row: Row, fields: Sequence[str], data: ConfigDict) -> None:
    for field in fields:
        column = data.columns[field] or field
        if column not in row and not (field == 'text' and {'words', 'tokens'} & {*row.values}):
            raise UserError(
                f'{path} has no column {column!r}, but the columns '
                f'{", ".join(map(repr, row.values))}: rename one, or write one text a line, '
                'without a header, to a .txt file'
            )


def _text(record: Record, fields: Sequence[str], data: ConfigDict) -> str:
    try:
        texts = [record.content.text(data.columns[field] or field) for field in fields]
    except InvalidRecord as error:
        raise UserError(f'{record.place}: {error}') from None
    return texts[0] if len(texts) == 1 else json.dumps(texts)  # a text may have tabs


def _object(record: Record, data: ConfigDict) -> JsonObject:
    """The values of a row by column, by the field that a column has in training, and its id."""
    row = record.content
    columns = {field: name for field, name in data.columns.items() if isinstance(name, str)}
    values = {field: row[name] for field, name in columns.items() if name and name in row}
    values_by_key: JsonObject = {'id': record.default_id} | row.values | values
    return values_by_key

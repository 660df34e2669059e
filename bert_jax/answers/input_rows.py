"""The input of `predict`: lines of text, lines of JSON and tables, all read as rows of fields."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ml_collections import ConfigDict

from bert_jax.errors import UserError, warn
from bert_jax.files import parse_json
from bert_jax.labels.formats import FORMATS, expand_globs, matching_files
from bert_jax.labels.records import InvalidRecord, ReadingReport, Record, Remark, Row
from bert_jax.storage import paths
from bert_jax.text import scripts, text_files
from bert_jax.types import JsonObject, JsonRecord

_TABLES = ('csv', 'tsv', 'jsonl', 'json', 'parquet')
# Fields that may stand for a text in rows of fine-tuned models.
_TEXT_FIELDS = ('words', 'tokens', 'premise')


class Fields(NamedTuple):
    """The fields of a row.

    Attributes:
        names: in the order of the tab-separated columns of a line; a line is not split for one.
        least: how many of them a line has at least.
        list_name: a list of the further columns of a line; '': there are none.
        only_texts: whether a row has texts under these names and nothing else. Otherwise a line may
            be a JSON object with any fields.
        required: columns without which a table is refused.
    """

    names: Sequence[str]
    least: int = 1
    list_name: str = ''
    only_texts: bool = False
    required: Sequence[str] = ()


TEXT = Fields(('text',), only_texts=True, required=('text',))


class InputRow(NamedTuple):
    """A row of the input.

    Attributes:
        place: 'texts.txt, line 3' or 'table.csv:3', for messages.
        values: its values by field; 'id' names it in records.
        source: the lines of CoNLL-U that it was read from.
        number: its number in the input, from 0.
    """

    place: str
    values: JsonObject
    source: Sequence[str] = ()
    number: int = 0


def texts_of(rows: Iterable[InputRow]) -> list[str]:
    """Return the texts of rows."""
    return [row.values['text'] for row in rows]


def read(
    path: str, input_format: str, fields: Fields, data: ConfigDict, task: str
) -> Iterator[InputRow]:
    """Yield the rows of a file; '-' is stdin.

    Args:
        path: the file.
        input_format: 'text' or 'jsonl': what every line is; 'auto': a table by the name of the
            file, else a line that starts with { may be JSON.
        fields: the fields of a row.
        data: the `data` settings of the training, whose `columns` name the fields in tables, with
            the encoding of this file.
        task: the task, for messages.

    Raises:
        UserError: the file or a row cannot be read, or lacks a field.
    """
    if input_format == 'auto' and (table := table_format(path, fields)):
        yield from _read_table(path, table, fields, data)
        return
    is_json = {'text': False, 'jsonl': True}.get(input_format)
    for number, line in enumerate(read_lines(path, data.encoding), 1):
        place, default_id = f'{shown(path)}, line {number}', f'input {number}'
        if line.startswith('{') and not fields.only_texts if is_json is None else is_json:
            values = _parse_object(line, place)
            values |= {'id': default_id if values.get('id') is None else values['id']}
        else:
            values = {'id': default_id} | _split(line, place, fields, task)
        yield InputRow(place, _texts_only(place, values, fields) if fields.only_texts else values)


def shown(path: str) -> str:
    """Return the name of a file in messages."""
    return 'stdin' if path == '-' else path


def read_lines(path: str, encoding: str = 'utf-8') -> Iterator[str]:
    """Yield the lines of a plain or compressed file, or of stdin for '-', without line ends.

    A byte order mark is skipped.

    Raises:
        UserError: the file cannot be read, is empty, or has bytes that are not in the encoding.
    """
    text_files.check_encoding(encoding, '--encoding')
    file, number = '/dev/stdin' if path == '-' else path, 0
    lines = text_files.read_lines(file, encoding, option='--encoding')
    for number, line in enumerate(lines, start=1):
        if scripts.has_surrogates(line):
            raise UserError(
                f'{shown(path)}, line {number}: not valid {encoding}; set --encoding, such as '
                'latin-1'
            )
        yield line
    if not number:
        raise UserError(f'{shown(path)} is empty')


def _parse_object(line: str, place: str) -> JsonRecord:
    try:
        values = parse_json(line)
    except ValueError as error:
        raise UserError(
            f'{place} is not valid JSON: {error}; set --input_format=text if it is a text'
        ) from error
    if not isinstance(values, dict):
        raise UserError(f'{place} is not a JSON object')
    if scripts.has_surrogates(json.dumps(values, ensure_ascii=False)):
        raise UserError(f'{place} has half of a surrogate pair, which is not valid text')
    return values


def _split(line: str, place: str, fields: Fields, task: str) -> JsonRecord:
    """Return the columns of a line by field."""
    names = fields.names
    if fields.list_name:
        first, *others = line.split('\t')
        return {names[0]: first, fields.list_name: others}
    values = line.split('\t') if len(names) > 1 else [line]
    if fields.least == len(names) > 1 and len(values) != fields.least:
        columns = '<tab>'.join(name.upper().rstrip('2') for name in names)
        raise UserError(f'{place} is not {columns}; it has {len(values)} column(s)')
    if len(values) > len(names):
        raise UserError(
            f'{place} has {len(values)} columns; give {task} at most {len(names)}, separated by a '
            'tab'
        )
    return dict(zip(names, values, strict=False))


def _texts_only(place: str, values: Mapping[str, object], fields: Fields) -> JsonRecord:
    """Return the texts of a row that has nothing else."""
    for name in fields.names:
        if not isinstance(values.get(name), str):
            raise UserError(f'{place}: {name!r} is missing or not a string')
    return {name: values[name] for name in ('id', *fields.names)}


def table_format(path: str, fields: Fields) -> str:
    """Return the format of a table by the suffix of its name; '' if it is read line by line.

    The lines of a .jsonl file are JSON objects, unless rows have only texts.
    """
    if paths.bring(path).is_dir():  # of save_to_disk
        path = next(iter(matching_files(path)), path)
    suffix = os.path.splitext(text_files.uncompressed_name(path))[1].lower()
    names = [name for name in _TABLES if suffix in FORMATS[name].suffixes]
    return names[0] if names and (fields.only_texts or names[0] != 'jsonl') else ''


def _read_table(
    path: str, file_format: str, fields: Fields, data: ConfigDict
) -> Iterator[InputRow]:
    if file_format != 'parquet':
        with text_files.open_text(path, data.encoding, option='--encoding'):
            pass  # the readers would name data.encoding, which predict does not have
    report, number = ReadingReport(), 0
    for record in _records(path, file_format, data, report):
        number += 1
        _check_columns(path, record.content, fields, data)
        if fields.only_texts:
            values = _texts(record, fields, data)
            used = (_column(name, record.content, data) for name in fields.names)
            report.note_columns(record.content.values, used)
        else:
            values = _values(record, fields, data)
        values |= {'id': record.default_id if values.get('id') is None else values['id']}
        yield InputRow(record.place, values)
    if not number:
        raise UserError(f'{path} has no rows')
    for line in report.lines():
        warn(line)


def _records(
    path: str, file_format: str, data: ConfigDict, report: ReadingReport
) -> Iterator[Record]:
    """Yield the rows of a table; count what is none, such as a row without values."""
    read_file = FORMATS[file_format].read
    for record in (record for file in expand_globs([path]) for record in read_file(file, data)):
        if isinstance(record.content, Remark):
            report.add(str(record.content), record.place)
        elif isinstance(record.content, InvalidRecord):
            raise UserError(f'{record.place}: {record.content}')
        else:
            yield record


def _check_columns(path: str, row: Row, fields: Fields, data: ConfigDict) -> None:
    for field in fields.required:
        is_text = field == 'text' and not fields.only_texts
        if _column(field, row, data) in row or (is_text and {*_TEXT_FIELDS} & {*row.values}):
            continue
        raise UserError(
            f'{path} has no column {(data.columns.get(field) or field)!r}, but the columns '
            f'{", ".join(map(repr, row.values))}: rename one, or write one text a line, '
            'without a header, to a .txt file'
        )


def _column(field: str, row: Row, data: ConfigDict) -> str:
    """Return the column of a field: as in training if the row has it, else of the same name."""
    named = data.columns.get(field)
    return named if named and named in row else field


def _texts(record: Record, fields: Fields, data: ConfigDict) -> JsonRecord:
    try:
        row = record.content
        return {name: row.text(_column(name, row, data)) for name in fields.names}
    except InvalidRecord as error:
        raise UserError(f'{record.place}: {error}') from None


def _values(record: Record, fields: Fields, data: ConfigDict) -> JsonRecord:
    """The values of a row by column and by the field that a column has in training."""
    row = record.content
    columns = {field: name for field, name in data.columns.items() if isinstance(name, str)}
    renamed = {field: row[name] for field, name in columns.items() if name and name in row}
    values: JsonRecord = row.values | renamed | _lists(row, fields, data)
    if scripts.has_surrogates(json.dumps(values, ensure_ascii=False, default=str)):
        raise UserError(f'{record.place} has half of a surrogate pair, which is not valid text')
    return values


def _lists(row: Row, fields: Fields, data: ConfigDict) -> JsonRecord:
    """The choices, or the query and its documents, that training reads from several columns."""
    query, *documents = data.columns.texts or ('',)
    values: JsonRecord = {}
    if choices := _texts_of_columns(row, data.columns.choices):
        values['choices'] = choices
    if fields.list_name and query in row and (texts := _texts_of_columns(row, documents)):
        values |= {fields.names[0]: row[query], fields.list_name: texts}
    return values


def _texts_of_columns(row: Row, columns: Sequence[str]) -> list[object]:
    """The values of columns, some of which may have lists; [] if the row lacks a column."""
    if not all(column in row for column in columns):
        return []
    found = (row[column] for column in columns)
    return [text for value in found for text in (value if isinstance(value, list) else [value])]

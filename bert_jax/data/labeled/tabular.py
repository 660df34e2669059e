"""Reads rows of CSV, TSV and JSON files, and plain text files labeled by their names."""

import csv
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

from bert_jax.data import text_files
from bert_jax.data.labeled.records import InvalidRecord, Record, Row, make_record
from bert_jax.errors import UserError, unknown

SAMPLES = pathlib.Path(__file__).parent.parent / 'samples'

# Where the class is in 'aclImdb/train/pos/12_9.txt' or 'polarity/rt-polarity.pos'.
LABEL_FROM = {
    'suffix': lambda path: path.suffix.removeprefix('.'),
    'stem': lambda path: path.stem,
    'folder': lambda path: path.parent.name,
}


def expand_globs(patterns: tuple[str, ...]) -> list[str]:
    """The files that match; 'sample:NAME' is a file of bert_jax/data/samples/.

    Raises:
        UserError: a pattern that matches no file.
    """
    paths: list[str] = []
    for pattern in patterns:
        where = pattern
        if pattern.startswith('sample:'):
            where = str(SAMPLES / pattern.removeprefix('sample:'))
        matching = text_files.matching_files(where)
        if not matching:
            raise UserError(f'no file matches {pattern!r}')
        paths += matching
    return paths


def numbered_lines(path: str, data: ConfigDict) -> Iterator[tuple[int, str]]:
    """The lines of a file, numbered from 1, without their ends."""
    return enumerate(text_files.read_lines(path, data.encoding), start=1)


def read_table(path: str, data: ConfigDict) -> Iterator[Record]:
    """The rows of a CSV or TSV file."""
    header = None
    for number, fields in _fields(path, data):
        if isinstance(fields, InvalidRecord):
            yield make_record(path, number, fields)
            continue
        if not fields or (len(fields) == 1 and not fields[0].strip()):
            continue
        if header is None:
            header = fields if data.header else [str(i) for i in range(len(fields))]
            if len(set(header)) < len(header):
                raise UserError(
                    f'{path}: two columns have the same name in {", ".join(header)}; rename one, '
                    'or set data.header=False if this is not a header'
                )
            if data.header:
                continue
        content: Row | InvalidRecord = Row(dict(zip(header, fields, strict=False)))
        if len(fields) != len(header):
            content = InvalidRecord(f'{len(fields)} columns instead of {len(header)}')
        yield make_record(path, number, content, text='\t'.join(fields))


def _fields(path: str, data: ConfigDict) -> Iterator[tuple[int, list[str] | InvalidRecord]]:
    """The fields of each row with the number of its last line."""
    separator = data.separator or {'csv': ',', 'tsv': '\t'}[data.format]
    if data.quotes not in ('auto', 'yes', 'no'):
        raise UserError(f'data.quotes is {data.quotes!r}; set it to auto, yes or no')
    if data.quotes == 'no' or (data.quotes == 'auto' and data.format == 'tsv'):
        for number, line in numbered_lines(path, data):
            yield number, line.split(separator)
        return
    csv.field_size_limit(2**31 - 1)
    with text_files.open_text(path, data.encoding, newline='') as file:
        reader = csv.reader(file, delimiter=separator)
        while True:
            fields: list[str] | InvalidRecord
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                fields = InvalidRecord(str(error))
            yield reader.line_num, fields


def read_json_lines(path: str, data: ConfigDict) -> Iterator[Record]:
    """The JSON objects of a file, one per line."""
    for number, line in numbered_lines(path, data):
        if line.strip():
            yield make_record(path, number, _json_row(line), text=line)


def read_json_list(path: str, data: ConfigDict) -> Iterator[Record]:
    """The objects of a JSON list; places have the number of the object, from 1, as line number."""
    try:
        objects = json.loads(text_files.read_text(path, data.encoding))
    except ValueError as error:
        raise UserError(f'{path} is not valid JSON: {error}; set data.format') from None
    if not isinstance(objects, list):
        raise UserError(f'{path} is not a JSON list of objects; set data.format')
    for number, value in enumerate(objects, start=1):
        yield make_record(path, number, _row(value))


def _json_row(line: str) -> Row | InvalidRecord:
    try:
        return _row(json.loads(line))
    except ValueError:
        return InvalidRecord('the line is not valid JSON')


def _row(value: Any) -> Row | InvalidRecord:
    return Row(value) if isinstance(value, dict) else InvalidRecord('not a JSON object')


def read_text_lines(path: str, data: ConfigDict) -> Iterator[Record]:
    """The lines of a file as texts with the class of the file."""
    label = _label(path, data.label_from)
    for number, line in numbered_lines(path, data):
        if line.strip():
            yield make_record(path, number, Row({'text': line.strip(), 'label': label}), text=line)


def read_whole_text(path: str, data: ConfigDict) -> Iterator[Record]:
    """The file as one text with its class."""
    text, label = text_files.read_text(path, data.encoding), _label(path, data.label_from)
    record = make_record(path, 1, Row({'text': text.strip(), 'label': label}), text=text)
    yield record._replace(default_id='/'.join(pathlib.Path(path).parts[-2:]))


def _label(path: str, label_from: str) -> str:
    if label_from not in LABEL_FROM:
        raise unknown('data.label_from', label_from, LABEL_FROM)
    file = pathlib.Path(path)
    return LABEL_FROM[label_from](file.with_suffix('') if file.suffix == '.gz' else file)

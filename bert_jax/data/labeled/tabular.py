"""Files of rows: CSV, TSV and JSON lines, and what the other formats need to read lines."""

import csv
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from bert_jax.data import text_files
from bert_jax.errors import UserError

SAMPLES = pathlib.Path(__file__).parent.parent / 'samples'


class BadRow(Exception):
    """Why a row is no example. `misplaced`: it can be read, but its offsets do not fit its text."""

    def __init__(self, reason: str, misplaced: bool = False):
        super().__init__(reason)
        self.misplaced = misplaced


class MissingColumn(BadRow):
    def __init__(self, name: str, known):
        listed = ', '.join(map(str, known))
        super().__init__(f'no column {name!r}; there are: {listed}')


class Unit(NamedTuple):
    """What one or a few examples are made of, or why nothing can be.

    place: 'file:line', for messages. name: the same in short, for the example's id.
    groups: what data.group may name, and the value here; of a Row, its columns.
    """

    place: str
    name: str
    content: Any
    groups: dict[str, str] = {}


def matching(patterns: tuple[str, ...]) -> list[str]:
    """The files that globs name; 'sample:NAME' is one of the samples of bert_jax.

    Raises:
        UserError: nothing matches.
    """
    paths = []
    for pattern in patterns:
        where = pattern
        if pattern.startswith('sample:'):
            where = str(SAMPLES / pattern.removeprefix('sample:'))
        found = text_files.matching_files(where)
        if not found:
            raise UserError(f'no file matches {pattern!r}')
        paths += found
    return paths


def check_text(text: str):
    """Raises BadRow if a text holds undecodable bytes or halves of surrogate pairs."""
    if text_files.has_surrogates(text):
        raise BadRow('characters that are none: is data.encoding right?')


def unit(path: str, number: int, content) -> Unit:
    """The unit of a line, after a check of its text if it is one."""
    try:
        if isinstance(content, str):
            check_text(content)
    except BadRow as error:
        content = error
    return Unit(f'{path}:{number}', f'{os.path.basename(path)}:{number}', content)


class Row:
    """Values by column: by name, or by number from 0 (negative from the end) in a file without a
    header; 'a.b' is key b of object a in JSON."""

    def __init__(self, values: dict):
        self.values = values

    def __contains__(self, name: str) -> bool:
        try:
            self[name]
        except MissingColumn:
            return False
        return True

    def __getitem__(self, name: str):
        if name in self.values:
            return self.values[name]
        if name.removeprefix('-').isdigit() and -len(self.values) <= int(name) < len(self.values):
            return list(self.values.values())[int(name)]
        head, dot, rest = name.partition('.')
        if dot and isinstance(self.values.get(head), dict):
            return Row(self.values[head])[rest]
        raise MissingColumn(name, self.values)

    def text(self, name: str) -> str:
        """A string; numbers and truth values as JSON writes them. Raises BadRow for another."""
        value = self[name]
        if isinstance(value, str):
            check_text(value)
            return value
        if isinstance(value, bool | int | float):
            return json.dumps(value)
        raise BadRow(f'column {name!r} holds {json.dumps(value)[:40]}, not a text')


def table(path: str, data) -> Iterator[Unit]:
    """The rows of a CSV or TSV file."""
    header = None
    for number, fields in _fields(path, data):
        if isinstance(fields, BadRow):
            yield unit(path, number, fields)
            continue
        if not fields or (len(fields) == 1 and not fields[0].strip()):
            continue
        if header is None:
            header = fields if data.header else [str(i) for i in range(len(fields))]
            if len(set(header)) < len(header):
                raise UserError(f'{path}: two columns of one name in {", ".join(header)}')
            if data.header:
                continue
        if len(fields) != len(header):
            yield unit(path, number, BadRow(f'{len(fields)} columns, not {len(header)}'))
            continue
        row = unit(path, number, '\t'.join(fields))
        if not isinstance(row.content, BadRow):
            row = row._replace(content=Row(dict(zip(header, fields, strict=True))))
        yield row


def json_lines(path: str, data) -> Iterator[Unit]:
    """The objects of a file of JSON lines."""
    for number, line in enumerate(text_files.read_lines(path, data.encoding), start=1):
        if not line.strip():
            continue
        found = unit(path, number, line)
        if not isinstance(found.content, BadRow):
            try:
                found = found._replace(content=_json_row(json.loads(line)))
            except ValueError:
                found = found._replace(content=BadRow('no JSON'))
        yield found


def json_list(path: str, data) -> Iterator[Unit]:
    """The objects of a JSON list; the line of a place is the object's number from 1."""
    try:
        objects = json.loads(text_files.read_text(path, data.encoding))
    except ValueError as error:
        raise UserError(f'{path} is no JSON: {error}') from None
    if not isinstance(objects, list):
        raise UserError(f'{path} holds no JSON list of objects')
    for number, values in enumerate(objects, start=1):
        yield unit(path, number, _json_row(values))


def _json_row(values) -> Row | BadRow:
    return Row(values) if isinstance(values, dict) else BadRow('no JSON object')


def _fields(path: str, data) -> Iterator[tuple[int, list[str] | BadRow]]:
    """The number of its last line and the fields of each row; quotes mean something by
    `data.quotes`, and in 'auto' do so in CSV alone."""
    separator = data.separator or {'csv': ',', 'tsv': '\t'}[data.format]
    if data.quotes not in ('auto', 'yes', 'no'):
        raise UserError(f'data.quotes is {data.quotes!r}: none of auto, yes, no')
    if data.quotes == 'no' or (data.quotes == 'auto' and data.format == 'tsv'):
        for number, line in enumerate(text_files.read_lines(path, data.encoding), start=1):
            yield number, line.split(separator)
        return
    csv.field_size_limit(2**31 - 1)
    with text_files.open_text(path, data.encoding, newline='') as file:
        reader = csv.reader(file, delimiter=separator)
        while True:
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                fields = BadRow(str(error))
            yield reader.line_num, fields

"""Records of a file (rows, sentences, questions) and a report of the unusable ones."""

import collections
import json
import os
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from bert_jax.errors import UserError, nearest
from bert_jax.storage.names import is_number
from bert_jax.text import scripts
from bert_jax.types import JsonObject

_MAX_PLACES = 3
_FIELD = re.compile(r'\{([^{}]+)\}')  # of a template that joins columns


def columns_of(name: str) -> list[str]:
    """Return the columns that a name of columns has: itself, or those that a template joins."""
    return _FIELD.findall(name) or [name]


def printable(text: str, limit: int = 200) -> str:
    """Shorten text of a file and replace unprintable characters, for a one-line message."""
    characters = (char if char.isprintable() else '�' for char in text[:limit])
    return ''.join(characters) + ' …' * (len(text) > limit)


class InvalidRecord(Exception):
    """A record that cannot become an example.

    Attributes:
        misplaced: whether the record is readable, but its offsets do not fit its text.
    """

    def __init__(self, reason: str, misplaced: bool = False):
        super().__init__(printable(reason))
        self.misplaced = misplaced


class SkippedRecord(InvalidRecord):
    """A record that is left out on purpose; it is counted under the message of this error."""


class Remark(SkippedRecord):
    """Something to count that is not a record, such as a row without any value."""


class MissingColumn(InvalidRecord):
    """A record lacks the column `name`.

    Attributes:
        name: the column.
        known: the columns that the record has, for a message.
        advice: the column that may be meant, for a message; '' if `name` is like none.
    """

    def __init__(self, name: str, known: Iterable[str]):
        names = list(map(str, known))
        close = nearest(name, names)
        self.name, self.known = name, printable(', '.join(names))
        self.advice = f'; did you mean {printable(close)}?' if close else ''
        super().__init__(f'no column {name!r}{self.advice}; the columns are {self.known}')


class Record(NamedTuple):
    """A part of a file from which one or more examples are built.

    Attributes:
        place: 'file:line', for messages.
        default_id: id of the examples if the file has no ids; a short form of `place`.
        content: a `Row` or a value specific to the format; an `InvalidRecord` if unusable.
        groups: value of `data.group` → group of this record; empty for a `Row`, which has columns.
    """

    place: str
    default_id: str
    content: Any
    groups: dict[str, str] = {}


def check_text(text: str) -> None:
    """Raise InvalidRecord for undecodable bytes and for halves of surrogate pairs.

    Undecodable bytes are read as lone surrogates; JSON can contain them as escapes.
    """
    if scripts.has_surrogates(text):
        raise InvalidRecord(
            'the text cannot be decoded; set data.encoding to the encoding of the file'
        )


def make_record(path: str, line_number: int, content: object, text: str = '') -> Record:
    """The record of a line; its content is an InvalidRecord if `text` fails `check_text`."""
    try:
        check_text(text)
    except InvalidRecord as error:
        content = error
    return Record(f'{path}:{line_number}', f'{os.path.basename(path)}:{line_number}', content)


def scalar_text(value: object, name: str) -> str:
    """Return a value of JSON as a string; numbers and booleans are written as JSON.

    Args:
        value: the value.
        name: what it is, for the message.

    Raises:
        InvalidRecord: the value is a list, object, null or undecodable text.
    """
    if isinstance(value, str):
        check_text(value)
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise InvalidRecord(f'{name} is {json.dumps(value)[:40]}, not a string')


def text_of(value: object) -> object:
    """Return `value['text']` if there is one, as in rows of XML elements, else the value."""
    return value.get('text', value) if isinstance(value, dict) else value


class Row:
    """Values by column name.

    A name can also be the index of a column as a string, negative from the end; 'a.b' is key b of
    the JSON object in column a, or of each object if column a has a list. '{a}: {b}' joins columns:
    the texts replace the names, null is '', and white space around the result is removed.
    """

    def __init__(self, values: JsonObject):
        self.values = values

    def __contains__(self, name: str) -> bool:
        try:
            self[name]
        except MissingColumn:
            return False
        return True

    def __getitem__(self, name: str) -> Any:
        if name in self.values:
            return self.values[name]
        if is_number(name.removeprefix('-')) and -len(self.values) <= int(name) < len(self.values):
            return list(self.values.values())[int(name)]
        if '{' in name:
            return self._join(name)
        head, dot, rest = name.partition('.')
        inner = self.values.get(head) if dot else None
        if isinstance(inner, dict):
            return Row(inner)[rest]
        if isinstance(inner, list) and all(isinstance(item, dict) for item in inner):
            return [Row(item)[rest] for item in inner]
        raise MissingColumn(name, self.values)

    def with_values(self, changes: JsonObject) -> 'Row':
        """Return this row with other values in some columns."""
        return Row(self.values | changes)

    def _join(self, template: str) -> str:
        def text(match: re.Match[str]) -> str:
            return '' if self[match[1]] is None else self.text(match[1])

        template = template.replace('\\n', '\n').replace('\\t', '\t')  # as a shell gives them
        return _FIELD.sub(text, template).strip()

    def text(self, name: str) -> str:
        """Return a value as a string; numbers and booleans are written as JSON.

        Raises:
            InvalidRecord: the value is a list, object, null or undecodable text.
        """
        return scalar_text(text_of(self[name]), f'column {name!r}')


class ObservedRow(Row):
    """A row that notes which of its columns are read.

    Attributes:
        used: names of columns; those that are read are added.
    """

    def __init__(self, values: JsonObject, used: set[str]):
        super().__init__(values)
        self.used = used

    def with_values(self, changes: JsonObject) -> Row:
        return ObservedRow(self.values | changes, self.used)

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if name not in self.values and is_number(name.removeprefix('-')):
            name = list(self.values)[int(name)]
        self.used.add(name if name in self.values else name.partition('.')[0])
        return value


class ReadingReport(collections.Counter[str]):
    """Counts of skipped, repaired and unusable records, by reason.

    Attributes:
        places: reason → the first few places where it occurred.
        columns: the columns that rows have, in order; the values mean nothing.
        used_columns: the columns that were read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[str, list[str]] = collections.defaultdict(list)
        self.columns: dict[str, object] = {}
        self.used_columns: set[str] = set()

    def add(self, reason: str, place: str) -> None:
        """Count a record at this place."""
        self[reason] += 1
        if len(self.places[reason]) < _MAX_PLACES:
            self.places[reason].append(place)

    def add_invalid(self, error: InvalidRecord, place: str) -> None:
        """Count an unusable record."""
        self.add('misplaced' if error.misplaced else 'malformed', f'{place}: {error}')

    def note_columns(self, columns: Iterable[str], used: Iterable[str]) -> None:
        """Note the columns of a file, and those that are read; 'a.b' is a part of column a."""
        self.columns |= dict.fromkeys(columns)
        self.used_columns |= {name.partition('.')[0] for name in used}

    def merge(self, other: 'ReadingReport') -> None:
        """Add the counts and places of another report."""
        self.update(other)
        self.columns |= other.columns
        self.used_columns |= other.used_columns
        for reason, places in other.places.items():
            self.places[reason] = (self.places[reason] + places)[:_MAX_PLACES]

    def check_shares(self, records: int, data: ConfigDict) -> None:
        """Raise UserError if more records were unusable than the config's `data` allows."""
        lists = '; '.join(self.places.get('columns_read_as_lists', []))
        hint = f'; columns read as lists: {lists}; data.lists=no reads them as text' * bool(lists)
        for reason in ('malformed', 'misplaced'):
            limit = data[f'{reason}_fraction']
            if self[reason] > limit * records:
                raise UserError(
                    f'{self[reason]} of {records} records are {reason}: '
                    f'{"; ".join(self.places[reason])} (raise data.{reason}_fraction={limit:g} to '
                    f'skip more){hint}'
                )

    def lines(self) -> list[str]:
        """Return a line for the log for each reason."""
        lines = []
        for reason, count in sorted((+self).items()):
            places = self.places.get(reason, []) + ['…'] * (count > _MAX_PLACES)
            shown = f' ({"; ".join(places)})' if reason in self.places else ''
            lines.append(f'{reason.replace("_", " ")}: {count:,}{shown}')
        if unused := [name for name in self.columns if name not in self.used_columns]:
            lines.append(f'columns that are not used: {printable(", ".join(unused))}')
        return lines

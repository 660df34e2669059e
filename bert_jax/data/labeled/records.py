"""The records of a file (rows, sentences, questions) and a report of those that were unusable."""

import collections
import json
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from bert_jax.data import text_files
from bert_jax.errors import UserError

_MAX_PLACES = 3


def printable(text: str, limit: int = 200) -> str:
    """Make text of a file fit to be shown in a message of one line."""
    shown = ''.join(char if char.isprintable() else '�' for char in text[:limit])
    return shown + ' …' * (len(text) > limit)


class InvalidRecord(Exception):
    """A record that cannot become an example.

    Attributes:
        misplaced: the record is readable, but its offsets do not fit its text.
    """

    def __init__(self, reason: str, misplaced: bool = False):
        super().__init__(printable(reason))
        self.misplaced = misplaced


class SkippedRecord(InvalidRecord):
    """A record left out on purpose; the message is the reason under which it is counted."""


class MissingColumn(InvalidRecord):
    """A record without a column of this name."""

    def __init__(self, name: str, known: Iterable):
        self.name, self.known = name, printable(', '.join(map(str, known)))
        super().__init__(f'no column {name!r}; the columns are {self.known}')


class Record(NamedTuple):
    """The content of one or several examples.

    Attributes:
        place: 'file:line', for messages.
        default_id: a short form of the place, the id of examples that have none.
        content: a `Row`, or what the reader of the format yields; an `InvalidRecord` if unusable.
        groups: possible values of `data.group` → group of this record. A `Row` uses its columns.
    """

    place: str
    default_id: str
    content: Any
    groups: dict[str, str] = {}


def check_text(text: str) -> None:
    """Raise InvalidRecord for undecodable bytes and for halves of surrogate pairs.

    Undecodable bytes are read as lone surrogates; JSON can contain them as escapes.
    """
    if text_files.has_surrogates(text):
        raise InvalidRecord(
            'the text cannot be decoded; set data.encoding to the encoding of the file'
        )


def make_record(path: str, line_number: int, content: Any, text: str = '') -> Record:
    """The record of a line; its content is an InvalidRecord if `text` fails `check_text`."""
    try:
        check_text(text)
    except InvalidRecord as error:
        content = error
    return Record(f'{path}:{line_number}', f'{os.path.basename(path)}:{line_number}', content)


def text_of(value: Any) -> Any:
    """The text of an object that has one, as XML elements have; other values as they are."""
    return value.get('text', value) if isinstance(value, dict) else value


class Row:
    """Values by column name.

    A column can also be given by its index as a string, negative from the end; 'a.b' is key b of
    the JSON object in column a, or of each object of a list there.
    """

    def __init__(self, values: dict[str, Any]):
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
        if name.removeprefix('-').isdigit() and -len(self.values) <= int(name) < len(self.values):
            return list(self.values.values())[int(name)]
        head, dot, rest = name.partition('.')
        inner = self.values.get(head) if dot else None
        if isinstance(inner, dict):
            return Row(inner)[rest]
        if isinstance(inner, list) and all(isinstance(item, dict) for item in inner):
            return [Row(item)[rest] for item in inner]
        raise MissingColumn(name, self.values)

    def text(self, name: str) -> str:
        """A value as a string; numbers and booleans are written as JSON.

        Raises:
            InvalidRecord: a list, object, null or undecodable text.
        """
        value = text_of(self[name])
        if isinstance(value, str):
            check_text(value)
            return value
        if isinstance(value, bool | int | float):
            return json.dumps(value)
        raise InvalidRecord(f'column {name!r} is {json.dumps(value)[:40]}, not a string')


class ReadingReport(collections.Counter[str]):
    """Counts of what happened to the records, by reason.

    Attributes:
        places: reason → the first few places where it happened.
    """

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[str, list[str]] = collections.defaultdict(list)

    def add(self, reason: str, place: str) -> None:
        """Count a record at this place."""
        self[reason] += 1
        if len(self.places[reason]) < _MAX_PLACES:
            self.places[reason].append(place)

    def add_invalid(self, error: InvalidRecord, place: str) -> None:
        """Count an unusable record."""
        self.add('misplaced' if error.misplaced else 'malformed', f'{place}: {error}')

    def merge(self, other: 'ReadingReport') -> None:
        """Add the counts and places of another report."""
        self.update(other)
        for reason, places in other.places.items():
            self.places[reason] = (self.places[reason] + places)[:_MAX_PLACES]

    def check_shares(self, records: int, data: ConfigDict) -> None:
        """Raise UserError if more records were unusable than the config's `data` allows."""
        for reason in ('malformed', 'misplaced'):
            limit = data[f'{reason}_fraction']
            if self[reason] > limit * records:
                raise UserError(
                    f'{self[reason]} of {records} records are {reason}: '
                    f'{"; ".join(self.places[reason])} (raise data.{reason}_fraction={limit:g} to '
                    'leave out more)'
                )

    def lines(self) -> list[str]:
        """One line for the log for each reason."""
        lines = []
        for reason, count in sorted(self.items()):
            places = '; '.join(self.places.get(reason, ()))
            more = '; …' if count > _MAX_PLACES else ''
            if count:
                shown = f' ({places}{more})' if places else ''
                lines.append(f'{reason.replace("_", " ")}: {count:,}{shown}')
        return lines

"""Reads rows of CSV and TSV files.

A file that Python's csv module reads in strict mode has the rows that the module finds. In other
files a stray quote invalidates only its own row, not all rows up to the next quote.
"""

import collections
import csv
import itertools
import re
from collections.abc import Iterator

from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.labels import cells
from bert_jax.labels.records import (
    InvalidRecord,
    Record,
    Remark,
    Row,
    SkippedRecord,
    check_text,
    columns_of,
    make_record,
    printable,
)
from bert_jax.labels.text_lines import numbered_lines
from bert_jax.text import text_files

_SEPARATOR_LINE = re.compile('"?sep=(.)"?', re.IGNORECASE)  # first line of files for Excel
_QUOTED = re.compile('"(?:[^"]|"")*""(?:[^"]|"")*"')  # a field with a doubled quote
_MANY_LINES = 10  # this many lines that look like rows are hardly the text of one field

# The number of the first line, and the fields; a Remark is about the row of this line.
NumberedRow = tuple[int, list[str] | InvalidRecord]


def read_table(path: str, data: ConfigDict, file_format: str) -> Iterator[Record]:
    """Yield the rows of a file in format 'csv' or 'tsv'; see `cells.with_lists` for their lists."""
    records = _records(path, data, file_format)
    return records if data.lists == 'no' else cells.with_lists(path, records)


def _records(path: str, data: ConfigDict, file_format: str) -> Iterator[Record]:
    """Yield the rows of a file; all values are texts."""
    names: list[str] = []
    header = None
    num_optional = data.optional_columns
    for number, fields in _rows(path, data, file_format):
        if isinstance(fields, InvalidRecord):
            if not names and not isinstance(fields, Remark):
                raise UserError(f'{path}:{number}: {fields}')
            yield make_record(path, number, fields)
            continue
        if not any(field.strip() for field in fields):
            if len(fields) > 1:
                yield make_record(path, number, Remark('empty_rows'))
            continue
        if not names:
            names, has_header = _column_names(path, fields, data)
            if has_header:
                header = fields
                continue
        content: Row | InvalidRecord = Row(dict(zip(names, fields, strict=False)))
        if fields == header:
            content = SkippedRecord('repeated_headers')
        elif abs(len(fields) - len(names)) > num_optional:
            content = _uneven(fields, names, data)
        elif len(fields) < len(names):
            content = Row(dict(zip(names, [*fields, *[''] * num_optional], strict=False)))
        yield make_record(path, number, content, text='\t'.join(fields))


def _uneven(fields: list[str], names: list[str], data: ConfigDict) -> InvalidRecord:
    """The fault of a row with more or fewer columns than the table."""
    difference = abs(len(fields) - len(names))
    hint = f'; set data.optional_columns={difference} if the last are optional'
    if data.quotes == 'auto' and any(field.startswith('"') for field in fields):
        hint = '; data.quotes=yes reads quoted fields'
    return InvalidRecord(f'{len(fields)} columns instead of {len(names)}{hint}')


def read_column_names(path: str, data: ConfigDict, file_format: str) -> list[str]:
    """Return the names of the columns of a file; [] if it is empty."""
    for _, fields in _rows(path, data, file_format):
        if isinstance(fields, list) and any(fields):
            return _column_names(path, fields, data)[0]
    return []


def describe_header(data: ConfigDict) -> str:
    """Describe where the names of columns come from, for messages."""
    if data.header is None and columns_by_number(data.columns):
        return 'no header because data.columns has numbers; set data.header=True to read a header'
    return 'no header' if data.header is False else 'the first row is the header'


def columns_by_number(columns: ConfigDict) -> set[str]:
    """Return the columns of a table that the config gives by number."""
    values = [value for key, value in columns.items() if key not in ('word', 'tag')]  # of CoNLL
    names = itertools.chain.from_iterable([v] if isinstance(v, str) else v for v in values)
    joined = itertools.chain.from_iterable(map(columns_of, names))
    parts = itertools.chain.from_iterable(re.split('[:+]', name) for name in joined)
    return {part for part in parts if re.fullmatch(r'-?\d+', part)}


def _column_names(path: str, fields: list[str], data: ConfigDict) -> tuple[list[str], bool]:
    """The names of the columns, and whether the first row, `fields`, is the header.

    If `data.header` is unset, the first row is a header unless the config gives columns by numbers
    that are not names in this row.
    """
    numbers, has_header = columns_by_number(data.columns), data.header
    if has_header is None:
        has_header = numbers <= set(fields)
    if not has_header:
        return [str(number) for number in range(len(fields))], False
    names = [field.strip() or f'[{number}]' for number, field in enumerate(fields)]
    try:
        check_text(''.join(names))
    except InvalidRecord as error:
        raise UserError(f'{path}:1: {error}') from None
    if len(set(names)) < len(names):
        raise UserError(
            f'{path}: two columns have the same name in {printable(", ".join(names))}; rename one, '
            'or set data.header=False if this is not a header'
        )
    return names, True


def _dialect(path: str, data: ConfigDict, file_format: str) -> tuple[str, bool, int]:
    """The separator of a file, whether quotes may enclose fields, and the number of lines to skip.

    In TSV, quotes are text unless all names of the header are quoted. A line 'sep=;' is skipped.
    """
    head = (line for _, line in itertools.islice(numbered_lines(path, data), 2))
    first, second, *_ = *head, '', ''
    separator_line = _SEPARATOR_LINE.fullmatch(first)
    default = separator_line[1] if separator_line else {'csv': ',', 'tsv': '\t'}[file_format]
    separator = data.separator.replace('\\t', '\t') or default
    header = (second if separator_line else first).split(separator)
    quoted = all(len(field) > 2 and field[0] == field[-1] == '"' for field in header)
    if data.quotes != 'auto' or file_format == 'csv':
        quoted = data.quotes != 'no'
    return separator, quoted, int(separator_line is not None)


def _rows(path: str, data: ConfigDict, file_format: str) -> Iterator[NumberedRow]:
    """Yield the fields of each row with the number of its first line."""
    separator, quoted, num_skipped = _dialect(path, data, file_format)
    if not quoted and not data.escape:
        for number, line in itertools.islice(numbered_lines(path, data), num_skipped, None):
            fields = line.split(separator)
            if data.quotes == 'auto' and '""' in line and any(map(_QUOTED.fullmatch, fields)):
                yield number, Remark('doubled_quotes_kept_because_data.quotes_is_not_yes')
            yield number, fields
        return
    if len(separator) != 1 or len(data.escape) > 1:
        raise UserError(
            f'data.separator is {separator!r} and data.escape is {data.escape!r}; with quotes or '
            'escapes, set one character each'
        )
    csv.field_size_limit(2**31 - 1)  # `_RewindableLines` enforces data.field_limit instead
    with text_files.open_text(path, data.encoding, newline='', option='data.encoding') as file:
        lines, width = _RewindableLines(file, data.field_limit), 0
        for _ in range(num_skipped):
            next(lines)
        reader = csv.reader(
            lines,
            delimiter=separator,
            escapechar=data.escape or None,
            quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
            strict=True,
        )
        while True:
            row_line = lines.start_row()
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                is_long = isinstance(error, _LongField)
                like_rows = _look_like_rows(lines.of_row[1:], separator, width)
                if is_long and (data.quotes == 'yes' or not like_rows):
                    raise UserError(f'{path}:{row_line}: {error}') from None
                if data.quotes == 'yes' and len(lines.of_row) > 1:
                    raise UserError(
                        f'{path}:{row_line}: {_describe(error, lines)}; close it, or set '
                        'data.quotes=auto to leave out the row'
                    ) from None
                yield row_line, InvalidRecord(_describe(error, lines))
                lines.rewind_to_second()
                continue
            width = width or len(fields)
            if data.quotes == 'auto' and _look_like_rows(lines.of_row[1:-1], separator, width):
                yield row_line, Remark('quoted_fields_whose_lines_look_like_rows')
            yield row_line, fields


def _look_like_rows(lines: list[str], separator: str, width: int) -> bool:
    """Whether the lines of a field may be rows that follow a stray quote."""
    if len(lines) < _MANY_LINES or width < 2:
        return False
    return sum(line.count(separator) == width - 1 for line in lines) > 0.9 * len(lines)


def _describe(error: csv.Error, lines: '_RewindableLines') -> str:
    if 'end of data' in str(error):
        return 'the quote that opens a field here is never closed'
    if len(lines.of_row) > 1:
        return f'the quote that opens a field here is not closed before line {lines.number}'
    return (
        'text follows the quote that closes a field; double a quote inside a field, or set '
        'data.quotes=no or data.escape'
    )


class _LongField(csv.Error):
    """A row with line breaks exceeds the limit."""


class _RewindableLines:
    """Lines for csv.reader that can be rewound to the second line of the current row.

    Attributes:
        of_row: the lines of the current row.
        number: the number of the last line of `of_row`.
    """

    def __init__(self, lines: Iterator[str], limit: int):
        self._lines, self._limit = lines, limit
        self._rewound: collections.deque[str] = collections.deque()
        self._size = 0  # characters of the row without its first line
        self.of_row: list[str] = []
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self._size > self._limit:
            raise _LongField(
                f'the field whose quote opens here exceeds data.field_limit={self._limit:,} '
                'characters; close the quote, raise the limit, or set data.quotes=no'
            )
        line = self._rewound.popleft() if self._rewound else next(self._lines)
        self._size += len(line) if self.of_row else 0
        self.of_row.append(line)
        self.number += 1
        return line

    def start_row(self) -> int:
        """Begin a row; return the number of its first line."""
        self.of_row, self._size = [], 0
        return self.number + 1

    def rewind_to_second(self) -> None:
        """Yield all lines of this row except the first again."""
        self._rewound.extendleft(reversed(self.of_row[1:]))
        self.number -= len(self.of_row) - 1

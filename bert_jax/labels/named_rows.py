"""Reads rows of CSV, TSV and JSON files whose columns the user can rename with `--columns`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from bert_jax.errors import UserError, unknown
from bert_jax.labels.data_keys import make_config
from bert_jax.labels.formats import FORMATS, expand_globs, format_of
from bert_jax.labels.records import InvalidRecord, MissingColumn, Record, Remark

_FORMATS = ('jsonl', 'csv', 'tsv', 'json')


class Columns(NamedTuple):
    """The columns of a kind of file.

    Attributes:
        required: field → default name of its column.
        optional: the same for fields that are '' if the file lacks the column.
    """

    required: Mapping[str, str]
    optional: Mapping[str, str]

    def renamed(self, changes: Iterable[str]) -> 'Columns':
        """Return these columns after changes such as 'good=acceptable'.

        A column that is named in a change must be in the file.

        Raises:
            UserError: a change is not FIELD=COLUMN, or its field is unknown.
        """
        required, known = dict(self.required), {**self.required, **self.optional}
        for change in changes:
            field, equals, column = change.partition('=')
            if not equals or not column:
                raise UserError(f'--columns: {change!r} is not FIELD=COLUMN')
            if field not in known:
                raise unknown('field of --columns', field, known)
            required[field] = column
        optional = {field: name for field, name in self.optional.items() if field not in required}
        return Columns(required, optional)


def read(patterns: Sequence[str], columns: Columns) -> Iterator[dict[str, str]]:
    """Yield the rows of files as field → text, with the key 'place' for 'file:line'.

    Args:
        patterns: files or globs; .csv, .tsv, .json, else an object per line; plain or compressed.

    Raises:
        UserError: no file, no row, a missing column, or a row that cannot be read.
    """
    data = make_config()
    is_empty = True
    for path in expand_globs(patterns):
        reader = FORMATS[format_of(path, data, _FORMATS, 'pairs')].read
        for record in reader(path, data):
            if isinstance(record.content, Remark):
                continue
            is_empty = False
            yield {'place': record.place} | _fields(record, columns)
    if is_empty:
        raise UserError(f'{", ".join(patterns)} has no rows')


def _fields(record: Record, columns: Columns) -> dict[str, str]:
    """The text of each field of a record."""
    row = record.content
    try:
        if isinstance(row, InvalidRecord):
            raise row
        texts = {field: row.text(name) for field, name in columns.required.items()}
        for field, name in columns.optional.items():
            texts[field] = row.text(name) if name in row else ''
        return texts
    except MissingColumn as error:
        (field,) = (field for field, name in columns.required.items() if name == error.name)
        raise UserError(
            f'{record.place}: {error}; name the column with --columns {field}=COLUMN'
        ) from None
    except InvalidRecord as error:
        raise UserError(f'{record.place}: {error}') from None

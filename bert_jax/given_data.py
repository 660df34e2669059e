"""Data given as objects of Python, kept as the files that a command line reads.

A file is named by a digest of its contents: a run that is called again with the same data finds it,
and other data are another file.
"""

import contextlib
import datetime
import decimal
import hashlib
import itertools
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from bert_jax import errors
from bert_jax.errors import UserError
from bert_jax.labels import arrow_rows
from bert_jax.labels.records import InvalidRecord
from bert_jax.storage import disk_folder, paths, temporary
from bert_jax.storage.path import Path
from bert_jax.text import text_files
from bert_jax.text.sources import SOURCES, with_kind
from bert_jax.types import JsonRecord

# Names of files; or the texts themselves: a list, or a table with a column of texts.
Texts: TypeAlias = str | os.PathLike[str] | Iterable[Any]
# Names of files; or the rows themselves: a list of dictionaries or tuples, a dictionary of columns,
# a table of pandas, polars or pyarrow, or a data set of Hugging Face.
Rows: TypeAlias = str | os.PathLike[str] | Iterable[Any]

_LOOKED_AT = 8  # texts that are compared with the names of files


def text_sources(texts: Texts, folder: Path, column: str = 'text') -> tuple[str, ...]:
    """Return the specs of the sources that read some texts.

    Args:
        texts: a source ('text:books/*.txt;language=en'), a file or a folder; paths; documents; or a
            table with documents in `column`.
        folder: where documents are kept.
        column: see `texts`.

    Raises:
        UserError: a file or a column does not exist, or a document is not a string.
    """
    if isinstance(texts, str):
        return (_text_source(texts),)
    if isinstance(texts, os.PathLike):
        return (with_kind(os.fspath(texts)),)
    given: Any = texts
    columns = _column_names(given)
    if columns is not None:
        if column not in columns:
            raise UserError(
                f'no column {column!r} with texts; the columns are {", ".join(columns)}'
            )
        given = given[column]
    first, documents = _peek(given)
    if first and all(isinstance(one, os.PathLike) for one in first):
        return tuple(with_kind(os.fspath(path)) for path in documents)
    for one in first:
        if isinstance(one, str) and len(one) < 256 and os.path.exists(one):
            raise UserError(
                f'the texts hold {one!r}, the name of a file; give files as pathlib.Path, or as '
                "one source such as 'text:books/*.txt'"
            )
    path = _keep(
        ({'text': _document(number, text)} for number, text in enumerate(documents, 1)),
        folder,
        'text',
    )
    return (f'jsonl:{path}',)


def labeled_files(
    rows: Rows, folder: Path, name: str, columns: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return the files that hold some rows.

    Args:
        rows: see `Rows`.
        folder: where rows are kept.
        name: of the split, such as 'train'.
        columns: names for the values of rows that are tuples; (): there may be none.

    Raises:
        UserError: a row cannot be written, or there is no row.
    """
    if isinstance(rows, str | os.PathLike):
        return (os.fspath(rows),)
    rows = _read(rows)
    names, found = _column_names(rows), rows
    if names is not None:
        found = _rows_of_table(rows, names)
    if not isinstance(found, Iterable):
        raise UserError(f'the data are of type {type(rows).__name__}, which has no rows')
    first, found = _peek(found)
    if first and all(isinstance(one, os.PathLike) for one in first):
        return tuple(map(os.fspath, found))
    decode = _class_names(rows)
    made = (_row(name, number, row, columns) for number, row in enumerate(found, 1))
    return (str(_keep(map(decode, made), folder, name)),)


def splits_of(data: Any) -> dict[str, Any] | None:
    """Return the splits of a `DatasetDict` or of {'train': …, 'dev': …}; None for other data."""
    names = {'train': 'train', 'validation': 'dev', 'dev': 'dev', 'test': 'test'}
    if not isinstance(data, Mapping) or 'train' not in data:
        return None
    if unknown := data.keys() - names.keys():
        raise UserError(
            f'the data have splits {", ".join(map(str, data))}; leave {min(map(str, unknown))!r} '
            'out: known are train, validation or dev, and test'
        )
    if {'validation', 'dev'} <= data.keys():
        raise UserError("the data have the splits 'validation' and 'dev', which are the same")
    return {names[name]: split for name, split in data.items()}


def num_values(rows: Rows) -> int:
    """Return the number of values of the first row if rows are tuples, else 0."""
    if isinstance(rows, list | tuple) and rows and isinstance(rows[0], tuple):
        return len(rows[0])
    return 0


def _text_source(text: str) -> str:
    """Return the source that a string names."""
    if text.partition(';')[0].strip().partition(':')[0] in SOURCES:
        return text
    location = text.partition(';')[0]
    if '\n' not in text and (os.path.isdir(location) or text_files.matching_files(location)):
        return with_kind(text)
    raise UserError(
        f"{text[:60]!r} is neither a file nor a source such as 'text:books/*.txt'; give texts as a "
        'list of strings'
    )


def _peek(values: Iterable[Any]) -> tuple[list[Any], Iterable[Any]]:
    """Return the first values, and all values."""
    iterator = iter(values)
    first = list(itertools.islice(iterator, _LOOKED_AT))
    return first, itertools.chain(first, iterator)


def _column_names(table: Any) -> list[str] | None:
    """Return the columns of a table; None for other objects."""
    if isinstance(table, Mapping):
        names = list(table)
    elif hasattr(table, 'column_names'):  # pyarrow, datasets
        if table.column_names is None:  # a stream whose first row was not read
            return None
        names = list(table.column_names)
    elif hasattr(table, 'columns'):  # pandas, polars
        names = list(table.columns)
    else:
        return None
    shown = list(map(str, names))
    if len(set(shown)) < len(shown):
        raise UserError(f'the columns {", ".join(shown)} are not distinct; rename them')
    return shown


def _read(rows: Any) -> Any:
    """Return a table that gives its rows: without laziness, and without a format for its values."""
    for method in ('collect', 'read_all', 'to_table'):  # polars; readers and data sets of pyarrow
        if callable(getattr(rows, method, None)):
            return getattr(rows, method)()
    if not hasattr(rows, 'with_format'):
        return rows
    # A transformation (`set_transform`) is part of the data; other formats hide their values.
    has_own = (getattr(rows, 'format', None) or {}).get('type') == 'custom'
    return rows if has_own else rows.with_format(None)


def _rows_of_table(table: Any, names: list[str]) -> Iterator[JsonRecord]:
    if hasattr(table, 'with_format'):  # datasets
        return iter(table)
    if isinstance(table, Mapping):
        columns = [list(column) for column in table.values()]
        lengths = dict(zip(names, map(len, columns), strict=True))
        if len(set(lengths.values())) > 1:
            raise UserError(f'the columns differ in length: {lengths}')
        rows: Iterable[Any] = zip(*columns, strict=True)
    elif hasattr(table, 'itertuples'):  # pandas
        rows = table.itertuples(index=False, name=None)
    elif hasattr(table, 'iter_rows'):  # polars
        rows = table.iter_rows()
    else:  # pyarrow
        batches = table.to_batches() if hasattr(table, 'to_batches') else [table]
        rows = (row.values() for batch in batches for row in arrow_rows.rows_of(batch))
    return (dict(zip(names, row, strict=True)) for row in rows)


def _class_names(table: Any) -> Any:
    """Return a function of a row that replaces numbers of classes, as `datasets` has, by names.

    The rows are those of a Parquet file of the table: see `arrow_rows.read_rows`.
    """
    features: Any = getattr(table, 'features', None)
    declared: Mapping[str, Any] = features.to_dict() if hasattr(features, 'to_dict') else {}
    if hasattr(table, 'schema') and hasattr(table.schema, 'metadata'):  # pyarrow
        declared = arrow_rows.declared_features(table.schema)

    def decode(row: JsonRecord) -> JsonRecord:
        try:
            return {
                name: arrow_rows.with_class_names(value, declared.get(name))
                for name, value in row.items()
            }
        except InvalidRecord as error:
            raise UserError(f'a row of the data has {error}') from None

    return decode if declared else lambda row: row


def _document(number: int, text: object) -> str:
    if not isinstance(text, str):
        raise UserError(f'text {number} is {text!r:.60}, not a string')
    return text


def _row(split: str, number: int, row: object, columns: tuple[str, ...]) -> JsonRecord:
    if isinstance(row, tuple):
        if not columns:
            raise UserError(
                f'row {number} of {split} is a tuple; give this problem dictionaries with the '
                'names of columns (docs/labeled_data.md)'
            )
        if len(row) != len(columns):
            raise UserError(
                f'row {number} of {split} has {len(row)} values, not {len(columns)}: '
                f'{", ".join(columns)}'
            )
        row = dict(zip(columns, row, strict=True))
    if not isinstance(row, Mapping):
        raise UserError(f'row {number} of {split} is {row!r:.60}, not a dictionary')
    return {
        str(name): _plain(value, f'row {number} of {split}, column {name!r}')
        for name, value in row.items()
    }


def _plain(value: Any, place: str) -> Any:
    """Return a value as JSON has it, as the reader of Parquet does."""
    if type(value).__name__ in ('NAType', 'NaTType'):  # of pandas; the latter is also a date
        return None
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if math.isinf(value):
            raise UserError(f'{place} is {value}, which is not a number that a file can hold')
        return None if math.isnan(value) else float(value)
    if hasattr(value, 'tolist'):  # NumPy
        return _plain(value.tolist(), place)
    if isinstance(value, Mapping):
        return {str(name): _plain(one, place) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, place) for one in value]
    if isinstance(value, bytes):
        return value.decode('utf-8', 'surrogateescape')
    if isinstance(value, datetime.date | datetime.time | decimal.Decimal):
        return str(value)
    raise UserError(
        f'{place} has a value of type {type(value).__name__}; use strings, numbers, booleans, '
        'lists or dictionaries'
    )


def _keep(rows: Iterable[JsonRecord], folder: Path, name: str) -> Path:
    """Write rows into FOLDER/NAME-DIGEST.jsonl, unless it exists, and return its path."""
    digest, number = hashlib.sha256(), 0
    with contextlib.ExitStack() as stack:
        with errors.writing(folder):  # not what follows: errors of `rows` are the caller's
            scratch = stack.enter_context(temporary.beside(paths.local(folder / name)))
        partial = scratch / name
        with open(partial, 'wb') as file:
            for number, row in enumerate(rows, start=1):  # noqa: B007  (the number of rows)
                line = json.dumps(row).encode() + b'\n'
                digest.update(line)
                file.write(line)
        if not number:
            raise UserError(f'the data of {name} are empty')
        path = folder / f'{name}-{digest.hexdigest()[:12]}.jsonl'
        if not path.exists():
            disk_folder.sync(partial)
            paths.publish(partial, path)
    return path

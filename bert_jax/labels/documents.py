"""Reads the texts that are searched: a folder of files, or one text a line or row."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.labels import formats, retrieval_sets
from bert_jax.labels.records import InvalidRecord, ReadingReport, Record, Remark, printable
from bert_jax.storage import paths
from bert_jax.storage.path import Path
from bert_jax.text import scripts, text_files

_TABLES = tuple(
    name
    for name in (*formats.TABLES, *formats.LISTS)
    if name != 'xml'  # its lines are read
)
_ID_COLUMNS = ('id', '_id')
TEXT_COLUMN = 'text'


class SearchedDocument(NamedTuple):
    """A text, and the name under which it is found."""

    id: str
    text: str


def read(name: str, column: str, data: ConfigDict, report: ReadingReport) -> list[SearchedDocument]:
    """Read the documents of a file or a folder.

    Args:
        name: a table (.csv, .tsv, .jsonl, .json, .parquet), whose rows are documents; another file,
            whose lines are; a folder in BEIR's layout; or another folder, whose files are.
        column: the column of the text in a table. The ids are in the column id or _id, or the
            numbers of the lines.
        data: how tables are read, the config's `data`.
        report: what is left out is counted here.

    Raises:
        UserError: nothing to read, a row without the column, a column of what is not a table, an
            unreadable row or line, or an id that occurs twice.
    """
    path = paths.bring(name)
    file_format = '' if path.is_dir() else _format_of(name)
    if column != TEXT_COLUMN and not file_format:
        raise UserError(f'--column={column} has no effect: {name} is not a table; leave it out')
    if path.is_dir() and retrieval_sets.is_retrieval_set(path):
        texts = retrieval_sets.read_documents(path, report)
        found = [SearchedDocument(*item) for item in texts.items()]
    elif path.is_dir():
        found = list(_read_folder(path, data.encoding, report))
    elif file_format:
        found = list(_read_table(name, file_format, column, data, report))
    else:
        found = list(_read_lines(name, data.encoding, report))
    if not found:
        raise UserError(f'{name} has no texts{_reasons(report)}')
    _check_ids(name, found)
    return found


def digest(documents: Sequence[SearchedDocument]) -> str:
    """SHA-256 of ids and texts."""
    hasher = hashlib.sha256()
    for part in (part for document in documents for part in document):
        content = part.encode('utf-8', 'surrogatepass')
        hasher.update(f'{len(content)} '.encode() + content)
    return hasher.hexdigest()


def _format_of(name: str) -> str:
    """The format of a table by the suffix of its name; '' for other files."""
    suffix = os.path.splitext(text_files.uncompressed_name(name))[1].lower()
    return next((one for one in _TABLES if suffix in formats.FORMATS[one].suffixes), '')


def _read_folder(folder: Path, encoding: str, report: ReadingReport) -> Iterator[SearchedDocument]:
    """Yield each file of a folder and its subfolders; its id is its path in the folder."""
    for path in text_files.matching_files(f'{folder}/**'):
        name = path.removeprefix(f'{folder}/')
        try:
            text = text_files.read_text(path, encoding, option='--encoding').strip()
        except UserError as error:
            report.add('files that are not text', printable(str(error)))
            continue
        if scripts.has_surrogates(text):
            report.add('files that are not text', f'{path} is not valid {encoding}')
        elif not text:
            report.add('empty files', path)
        else:
            yield SearchedDocument(name, text)


def _read_table(
    name: str, file_format: str, column: str, data: ConfigDict, report: ReadingReport
) -> Iterator[SearchedDocument]:
    """Yield the rows of a table."""
    for record in formats.FORMATS[file_format].read(name, data):
        if isinstance(record.content, Remark):
            report.add(str(record.content), record.place)
            continue
        document = _of_row(record, column)
        if document.text.strip():
            yield document
        else:
            report.add('rows without text', record.place)


def _of_row(record: Record, column: str) -> SearchedDocument:
    row = record.content
    try:
        if isinstance(row, InvalidRecord):
            raise row
        if column not in row:
            columns = ', '.join(map(repr, row.values))
            raise UserError(
                f'{record.place}: no column {printable(column)!r}; set --column to one of '
                f'{printable(columns)}'
            )
        given = next((name for name in _ID_COLUMNS if name in row and name != column), '')
        return SearchedDocument(row.text(given) if given else record.default_id, row.text(column))
    except InvalidRecord as error:
        raise UserError(f'{record.place}: {error}') from None


def _read_lines(name: str, encoding: str, report: ReadingReport) -> Iterator[SearchedDocument]:
    """Yield the lines of a file; the id of a line is its number."""
    for number, line in enumerate(text_files.read_lines(name, encoding, option='--encoding'), 1):
        if scripts.has_surrogates(line):
            raise UserError(
                f'{name}, line {number}: not valid {encoding}; set --encoding, such as latin-1'
            )
        if line.strip():
            yield SearchedDocument(str(number), line.strip())
        else:
            report.add('blank lines', f'{name}, line {number}')


def _check_ids(name: str, documents: Sequence[SearchedDocument]) -> None:
    seen: set[str] = set()
    for document in documents:
        if document.id in seen:
            raise UserError(f'{name}: the id {printable(document.id)!r} occurs twice')
        seen.add(document.id)


def _reasons(report: ReadingReport) -> str:
    return f' ({"; ".join(report.lines())})' if +report else ''

"""Reads the examples of files record by record and counts unusable records."""

import collections
import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from bert_jax.errors import UserError, join_first, unknown
from bert_jax.labels import (
    annotations,
    formats,
    records,
    tabular,
    text_lines,
    word_lists,
    word_rows,
)
from bert_jax.labels.builder import ExampleBuilder
from bert_jax.labels.examples import Example
from bert_jax.labels.splitting import GroupedExample, text_name
from bert_jax.storage import paths as storage
from bert_jax.text import text_files

# (content of a record, id, builder) → the examples of the record.
Reader = Callable[[Any, str, ExampleBuilder], Sequence[Example]]

_NAMED = (*formats.TABLES, *formats.LISTS)  # formats whose columns people name
_OBSERVED = 1000  # rows of a file that show which columns there are and which are used


def read_files(
    patterns: tuple[str, ...],
    data: ConfigDict,
    kind: str,
    readers: Mapping[str, Reader],
    report: records.ReadingReport,
    labeled: bool = True,
    may_hide_labels: bool = False,
) -> list[GroupedExample]:
    """Read the examples of files.

    Args:
        patterns: globs.
        data: the config's `data`.
        kind: the kind of problem, for messages.
        readers: format → function that builds the examples of a record.
        report: counts are added to it.
        labeled: False if labels may be missing, as in a test file or in text to predict on.
        may_hide_labels: whether labels that are all −1 in a file are unknown, as benchmarks publish
            their test files.

    Raises:
        UserError: an unknown format or column, an unreadable file, no examples, or more unusable
            records than allowed.
    """
    text_files.check_encoding(data.encoding, 'data.encoding')
    counts = records.ReadingReport()  # of these files alone
    contexts = _contexts(data, counts) if data.contexts else {}
    builder = ExampleBuilder(data, counts, labeled, contexts, may_hide_labels)
    statuses = annotations.statuses(data, readers.values())
    examples: list[GroupedExample] = []
    num_records, paths = 0, formats.expand_globs(patterns)
    for path in paths:
        file_format = formats.format_of(path, data, tuple(readers), kind)
        in_file: list[GroupedExample] = []
        read = functools.partial(_read_records, path, file_format, data, readers)
        builder.start_file(read)
        for record in read():
            num_records += not isinstance(record.content, records.Remark)
            with _count_unusable(counts, record, data, None if in_file else (path, file_format)):
                if isinstance(record.content, records.InvalidRecord):
                    raise record.content
                example_id = record.default_id
                if isinstance(record.content, records.Row):
                    if file_format in _NAMED and len(in_file) < _OBSERVED:
                        record = record._replace(content=builder.observed(record.content))
                    annotations.check_accepted(record.content, statuses, labeled)
                    if data.columns.id:
                        example_id = record.content.text(data.columns.id)
                built = readers[file_format](record.content, example_id, builder)
                built = [_with_given_id(example, example_id, record, data) for example in built]
                group = _group(record, data.group) or (text_name(built) if len(built) > 1 else '')
                in_file += [GroupedExample(example, group) for example in built]
        if file_format in formats.TABLES and data.header is None:
            _check_first_label(in_file)
        examples += in_file
    counts.check_shares(num_records, data)
    if paths and not any(status.st_size for status in storage.statuses(paths).values()):
        raise UserError(f'{join_first(paths)}: the file is empty')
    if paths and not examples:
        details = '; '.join([_describe_format(file_format, data, paths[0]), *counts.lines()])
        raise UserError(f'no examples in {", ".join(paths[:3])} ({details}); set data.format')
    report.merge(counts)
    return examples


def _read_records(
    path: str, file_format: str, data: ConfigDict, readers: Mapping[str, Reader]
) -> Iterator[records.Record]:
    found = formats.FORMATS[file_format].read(path, data)
    has_words = readers[file_format] is word_lists.build_tagging  # as lists, or one in a row
    return word_rows.sentences(found, data) if has_words and data.columns.sentence else found


def _with_given_id(
    example: Example, example_id: str, record: records.Record, data: ConfigDict
) -> Example:
    """The example, with the integer of JSON that is its id, if it is one."""
    if example.id != example_id or not data.columns.id:
        return example
    given = record.content[data.columns.id] if isinstance(record.content, records.Row) else None
    if isinstance(given, int) and not isinstance(given, bool):
        return example._replace(id=given)
    return example


@contextlib.contextmanager
def _count_unusable(
    report: records.ReadingReport,
    record: records.Record,
    data: ConfigDict,
    new_file: tuple[str, str] | None,
) -> Iterator[None]:
    """Count the record if the block fails on it; raise UserError for a mistake in the config.

    A missing column is a mistake in the config if the file has no usable records so far. Then
    `new_file` is its path and format, otherwise None.
    """
    try:
        yield
    except records.SkippedRecord as error:
        report.add(str(error), record.place)
    except records.MissingColumn as error:
        if new_file:
            path, file_format = new_file
            other = next((char for char in ';|' if char in error.known), '')
            is_likely = other and file_format in formats.TABLES
            hint = f'; set data.separator={other!r}' if is_likely else ''
            raise UserError(
                f'{_config_key(error.name, data)} names column {error.name!r}, but {path} has '
                f'columns {error.known} ({_describe_format(file_format, data)}){error.advice}{hint}'
            ) from None
        report.add_invalid(error, record.place)
    except records.InvalidRecord as error:
        report.add_invalid(error, record.place)
    except UserError as error:
        raise UserError(f'{record.place}: {error}') from None


def _describe_format(file_format: str, data: ConfigDict, path: str = '') -> str:
    """Describe how a file is read, for messages; with the names of its columns if given `path`."""
    if file_format not in formats.TABLES:
        return f'format {file_format}'
    names = ', '.join(tabular.read_column_names(path, data, file_format)) if path else ''
    description = f'format {file_format}, {tabular.describe_header(data)}'
    return f'{description}: {records.printable(names)}' if names else description


def _check_first_label(examples: Sequence[GroupedExample]) -> None:
    """Raise UserError if the first row looks like a header: no other row has its class."""
    labels = collections.Counter(getattr(grouped.example, 'label', None) for grouped in examples)
    first = getattr(examples[0].example, 'label', None) if examples else None
    if isinstance(first, str) and labels[first] == 1 and len(examples) > 2 * len(labels):
        raise UserError(
            f'{examples[0].example.id} is the only row of class {first!r}; set data.header=True if '
            'it is a header, else data.header=False'
        )


def _config_key(column: str, data: ConfigDict) -> str:
    """Return the config key whose value is or contains this column ('START:END', 'a.b')."""
    values = {f'data.columns.{key}': value for key, value in data.columns.items()}
    for key, value in values.items():
        names = {value} if isinstance(value, str) else set(value)
        parts = {part for name in names for part in records.columns_of(name)}
        if column in names | parts or any(column in re.split('[:+.]', name) for name in names):
            return key
    return 'data.group'


def _group(record: records.Record, name: str) -> str:
    if not name:
        return ''
    if isinstance(record.content, records.Row):
        return record.content.text(name)
    if name not in record.groups:
        raise unknown('data.group', name, record.groups)
    return record.groups[name]


def _contexts(data: ConfigDict, report: records.ReadingReport) -> dict[str, str]:
    """Read the file `data.contexts`: id → text."""
    contexts = {}
    for path in formats.expand_globs((data.contexts,)):
        for number, line in text_lines.numbered_lines(path, data):
            context_id, tab, text = line.partition('\t')
            if tab:
                contexts[context_id] = text
            else:
                report.add('malformed', f'{path}:{number}: the line is not ID<tab>TEXT')
    return contexts

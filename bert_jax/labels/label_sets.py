"""Builds examples with several classes or several numbers from rows."""

import json
from collections.abc import Iterator
from typing import Any

from bert_jax.errors import UserError
from bert_jax.labels import cells
from bert_jax.labels.builder import ExampleBuilder, is_minus_1, parse_float
from bert_jax.labels.examples import LabelSetExample, NumbersExample
from bert_jax.labels.records import InvalidRecord, Record, Row, SkippedRecord, scalar_text

_FLAGS = {'0': False, '0.0': False, 'false': False, '1': True, '1.0': True, 'true': True}


def build_multi_label(row: Row, example_id: str, builder: ExampleBuilder) -> list[LabelSetExample]:
    """The classes are a list, a separated text, or the columns of `columns.labels` that have 1."""
    _check_columns(builder)
    names = _read_flags(row, builder) if builder.columns.labels else _read_list(row, builder)
    if names is None:
        return [LabelSetExample(example_id, builder.texts(row), None)]
    if builder.data.skip_labels and {*names} & {*builder.data.skip_labels}:
        raise SkippedRecord('skipped_by_label')
    classes = tuple(dict.fromkeys(builder.new_labels.get(name, name) for name in names))
    builder.counts['repeated_labels'] += len(names) - len(classes)
    builder.counts['examples_without_a_label'] += not classes
    return [LabelSetExample(example_id, builder.texts(row), classes)]


def build_multi_regression(
    row: Row, example_id: str, builder: ExampleBuilder
) -> list[NumbersExample]:
    """The numbers are in the columns of `columns.labels`, or in an object in `columns.label`."""
    _check_columns(builder)
    if columns := tuple(builder.columns.labels):
        if _is_unlabeled(row, builder):
            return [NumbersExample(example_id, builder.texts(row), None)]
        values = {column: row[column] for column in columns}
    else:
        if not builder.has_label(row, builder.columns.label):
            return [NumbersExample(example_id, builder.texts(row), None)]
        values = row[builder.columns.label]
        if not isinstance(values, dict) or not values:
            raise InvalidRecord(
                f'column {builder.columns.label!r} is {json.dumps(values)[:40]}, not an object of '
                'numbers; or name a column for each target in data.columns.labels'
            )
    numbers = tuple(
        (
            builder.new_labels.get(name, name),
            parse_float(scalar_text(value, f'target {name!r}').strip()),
        )
        for name, value in values.items()
    )
    return [NumbersExample(example_id, builder.texts(row), numbers)]


def _check_columns(builder: ExampleBuilder) -> None:
    columns = builder.columns
    if columns.labels and columns.label not in ('label', ''):
        raise UserError(
            f'data.columns.label is {columns.label!r} and data.columns.labels is '
            f'{tuple(columns.labels)}; set one of them'
        )


def _is_unlabeled(row: Row, builder: ExampleBuilder) -> bool:
    """Whether a row of a file that may be unlabeled has none of `columns.labels`, or only -1."""
    columns = tuple(builder.columns.labels)
    if not builder.labeled and not any(column in row for column in columns):
        return True
    return builder.is_unknown([str(row[column]) for column in columns], (), _hides_numbers)


def _hides_numbers(records: Iterator[Record], builder: ExampleBuilder) -> bool:
    columns = builder.columns.labels
    return all(is_minus_1(record.content[column]) for record in records for column in columns)


def _read_flags(row: Row, builder: ExampleBuilder) -> list[str] | None:
    """Return the columns that have 1, or None if the row is unlabeled."""
    columns = tuple(builder.columns.labels)
    if not builder.labeled and not any(column in row for column in columns):
        return None
    if all(is_minus_1(row[column]) for column in columns):
        builder.without_label()
        return None
    names = []
    for column in columns:
        text = row.text(column).strip()
        if text.lower() not in _FLAGS:
            raise InvalidRecord(f'column {column!r} is {text[:40]!r}, not 0 or 1')
        if _FLAGS[text.lower()]:
            names.append(column)
    return names


def _read_list(row: Row, builder: ExampleBuilder) -> list[str] | None:
    """Return the classes of `columns.label`, or None if the row is unlabeled."""
    column = builder.columns.label
    if not builder.has_label(row, column):
        return None
    value = row[column]
    names = _split(value, column, builder)
    if builder.is_unknown(names, value if isinstance(value, list) else [value], _hides_lists):
        return None
    if not names and not builder.labeled and builder.once_per_file(_are_empty):
        builder.counts['hidden_labels'] += 1
        return None
    return names


def _split(value: object, column: str, builder: ExampleBuilder) -> list[str]:
    """Return the classes in a value.

    Raises:
        InvalidRecord: null, an empty class, or numbers that say which classes apply.
    """
    names = _names(value, column, builder)
    if not all(names):
        raise InvalidRecord(f'column {column!r} is {json.dumps(value)[:40]}: a label is empty')
    if all(name.lower() in _FLAGS for name in names) and (
        len({*names}) < len(names) or (len(names) > 1 and builder.once_per_file(_are_flags))
    ):
        raise InvalidRecord(
            f'column {column!r} is {json.dumps(value)[:40]}, a 0 or 1 for each class without its '
            'name; write the names of the classes, or a column for each class and '
            'data.columns.labels'
        )
    return names


def _names(value: object, column: str, builder: ExampleBuilder) -> list[str]:
    """Return the items of a list, or of a text with separators or of a list."""
    if value is None:
        raise InvalidRecord(f'column {column!r} is null; write [] or an empty text for no label')
    if isinstance(value, str) and builder.reads_lists:
        value = _list_in(value, column)
    value = cells.without_flags(cells.without_choices(value))
    if isinstance(value, list):
        _check_numbers(value, column)
        return [scalar_text(item, f'a label of column {column!r}').strip() for item in value]
    text, separator = scalar_text(value, f'column {column!r}').strip(), _separator(builder)
    return [name.strip() for name in text.split(separator)] if text else []


def _check_numbers(items: list[Any], column: str) -> None:
    """Raise InvalidRecord if an item of a list of classes is a boolean or a fraction."""
    for item in items:
        if isinstance(item, bool) or (isinstance(item, float) and not item.is_integer()):
            raise InvalidRecord(
                f'column {column!r} has {json.dumps(item)} in a list of classes; write the names'
            )


def _are_flags(records: Iterator[Record], builder: ExampleBuilder) -> bool:
    """Whether all rows of a file have one number of labels, all of them 0 or 1."""
    column, lengths = builder.columns.label, set[int]()
    for record in records:
        try:
            names = _names(record.content[column], column, builder)
        except InvalidRecord:
            continue
        lengths.add(len(names))
        if len(lengths) > 1 or any(name.lower() not in _FLAGS for name in names):
            return False
    return True


def _list_in(text: str, column: str) -> object:
    """Return the list that a text is, such as "['a', 'b']"; other texts as they are."""
    found = cells.read_list(text)
    text = text.strip()
    if found is None and text.startswith('[') and text.endswith(']'):
        raise InvalidRecord(
            f'column {column!r} has {text[:40]!r}, which cannot be read as a list; write its items '
            'in quotes, or set data.lists=no'
        )
    return text if found is None else found


def _separator(builder: ExampleBuilder) -> str:
    separator = str(builder.data.label_separator).replace('\\t', '\t')
    if not separator:
        raise UserError('data.label_separator is empty; set it to the text between two classes')
    return separator


def _hides_lists(records: Iterator[Record], builder: ExampleBuilder) -> bool:
    """Whether the only label of each row of a file is -1."""
    column = builder.columns.label
    try:
        lists = [_split(record.content[column], column, builder) for record in records]
    except InvalidRecord:
        return False
    return all(len(names) == 1 and is_minus_1(names[0]) for names in lists)


def _are_empty(records: Iterator[Record], builder: ExampleBuilder) -> bool:
    """Whether no row of a file that may be unlabeled has a class."""
    column = builder.columns.label
    return not any(column in one.content and one.content[column] for one in records)

"""Builds multiple-choice examples from rows."""

import collections
import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from bert_jax.errors import UserError
from bert_jax.labels import word_spans
from bert_jax.labels.builder import ExampleBuilder, is_minus_1, parse_int
from bert_jax.labels.examples import MultipleChoiceExample
from bert_jax.labels.records import InvalidRecord, Record, Row, printable, scalar_text

# What a label may be (`data.choice_label`).
_READINGS = {
    'index': 'the index of a choice',
    'column': 'the name of the column of a choice',
    'text': 'the text of a choice',
}


class _Choices(NamedTuple):
    """The choices of a row, and the names of their columns; no names for a column with a list."""

    texts: tuple[str, ...]
    columns: tuple[str, ...]


def build_multiple_choice(
    row: Row, example_id: str, builder: ExampleBuilder
) -> list[MultipleChoiceExample]:
    """The label is an index from `data.first_choice`, the name of a column, or the choice.

    What it is, is decided once for each file, unless `data.choice_label` says so. An integer of
    JSON is always an index.
    """
    choices = _choices(row, builder)
    label = builder.label(row, builder.columns.label)
    premise, _ = word_spans.parse_text(row[builder.columns.text])
    if label is None:
        return [MultipleChoiceExample(example_id, premise, choices.texts, None)]
    reading = builder.data.choice_label
    if not reading:
        is_index = _is_json_integer(row, label, builder)
        reading = 'index' if is_index else builder.once_per_file(_decide_reading)
    index = _index(reading, label, choices, builder)
    if index is None and is_minus_1(label):
        builder.without_label()
    elif index is None:
        raise InvalidRecord(_describe_unusable(reading, label, choices, builder))
    return [MultipleChoiceExample(example_id, premise, choices.texts, index)]


def _choices(row: Row, builder: ExampleBuilder) -> _Choices:
    columns = tuple(builder.columns.choices)
    if not columns:
        raise UserError('data.columns.choices is empty; set it to the columns of the choices')
    values = tuple(row[column] for column in columns)
    if len(columns) == 1 and isinstance(values[0], list):
        values, columns = tuple(values[0]), ()
    texts = tuple(scalar_text(value, 'a choice') for value in values)
    if not all(text.strip() for text in texts):
        raise InvalidRecord('a choice is empty')
    return _Choices(texts, columns)


def _is_json_integer(row: Row, label: str, builder: ExampleBuilder) -> bool:
    value = row[builder.columns.label]
    return isinstance(value, int) and not isinstance(value, bool) and label == str(value)


def _index(reading: str, label: str, choices: _Choices, builder: ExampleBuilder) -> int | None:
    """The choice that a label stands for; None if it is not a label of this reading."""
    if reading != 'index':
        names = choices.columns if reading == 'column' else choices.texts
        names = tuple(name.strip() for name in names)
        return names.index(label) if label in names else None
    try:
        index = parse_int(label) - builder.data.first_choice
    except InvalidRecord:
        return None
    return index if 0 <= index < len(choices.texts) else None


def _decide_reading(records: Iterator[Record], builder: ExampleBuilder) -> str:
    """What the labels of a file are: the reading that fits the most rows.

    Raises:
        UserError: several readings fit all rows, or most rows, and differ.
    """
    fits: collections.Counter[str] = collections.Counter()
    conflicts: dict[tuple[str, str], str] = {}  # the first place where two readings differ
    num_labels = 0
    for record in records:
        try:
            choices = _choices(record.content, builder)
            label = builder.label(record.content, builder.columns.label)
        except InvalidRecord:
            continue
        if label is None or _is_json_integer(record.content, label, builder):
            continue
        num_labels += 1
        found = {name: _index(name, label, choices, builder) for name in _READINGS}
        fitting = [name for name, index in found.items() if index is not None]
        fits.update(fitting)
        for pair in itertools.combinations(fitting, 2):
            if found[pair[0]] != found[pair[1]]:
                conflicts.setdefault(pair, f'{record.place}: the label {printable(label, 40)!r}')
    usable = [name for name in _READINGS if fits[name] == num_labels]
    usable = usable or [name for name in _READINGS if fits[name] > num_labels / 2]
    for (first, second), place in conflicts.items():
        if first in usable and second in usable:
            raise UserError(
                f'{place} may be {_READINGS[first]} or {_READINGS[second]}, and so may the labels '
                f'of the whole file; set data.choice_label={first} or data.choice_label={second}'
            )
    return max(usable, key=lambda name: fits[name], default='index')


def _describe_unusable(reading: str, label: str, choices: _Choices, builder: ExampleBuilder) -> str:
    if reading != 'index':
        return f'label {label[:40]!r} is not {_READINGS[reading]}, as other labels of the file'
    if re.fullmatch(r'-?\d+(\.0*)?', label):
        return (
            f'choice {label} of {len(choices.texts)} choices, counted from '
            f'data.first_choice={builder.data.first_choice}'
        )
    return (
        f'label {label[:40]!r} is not the index, the column or the text of a choice; '
        "data.rename_labels=('A=0', 'B=1', …) turns names into indices"
    )

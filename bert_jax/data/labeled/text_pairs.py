"""Builds classification, regression, prompt and multiple-choice examples from rows."""

import json
from typing import Any

from bert_jax.data.labeled import word_spans
from bert_jax.data.labeled.builder import ExampleBuilder, parse_float
from bert_jax.data.labeled.examples import (
    DistilledExample,
    MultipleChoiceExample,
    PromptExample,
    TextExample,
)
from bert_jax.data.labeled.records import InvalidRecord, Row
from bert_jax.errors import UserError


def build_classification(
    row: Row, example_id: str, builder: ExampleBuilder
) -> list[TextExample] | list[DistilledExample]:
    label, column = builder.label(row, builder.columns.label), builder.columns.probabilities
    if column and column in row:
        pairs = _probabilities(row[column], column)
        return [DistilledExample(example_id, builder.texts(row), label, pairs)]
    return [TextExample(example_id, builder.texts(row), label)]


def _probabilities(value: Any, column: str) -> tuple[tuple[str, float], ...]:
    is_valid = isinstance(value, dict) and all(
        isinstance(number, int | float) and 0 <= number <= 1 for number in value.values()
    )
    if not is_valid or not value:
        raise InvalidRecord(
            f'column {column!r} is {json.dumps(value)[:40]}, not an object of probabilities'
        )
    return tuple((label, float(number)) for label, number in value.items())


def build_regression(row: Row, example_id: str, builder: ExampleBuilder) -> list[TextExample]:
    label = builder.label(row, builder.columns.label)
    score = None if label is None else parse_float(label)
    return [TextExample(example_id, builder.texts(row), score)]


def build_prompt(row: Row, example_id: str, builder: ExampleBuilder) -> list[PromptExample]:
    """The fields are the columns `data.columns.fields`; if there are none, 'text' and 'text2'."""
    label = builder.label(row, builder.columns.label)
    names = tuple(builder.columns.fields)
    if names:
        texts = tuple(word_spans.parse_text(row[name])[0] for name in names)
    else:
        texts = builder.texts(row)
        names = ('text', 'text2')[: len(texts)]
    return [PromptExample(example_id, names, texts, label)]


def build_prompt_regression(
    row: Row, example_id: str, builder: ExampleBuilder
) -> list[PromptExample]:
    (example,) = build_prompt(row, example_id, builder)
    score = None if example.label is None else parse_float(str(example.label))
    return [example._replace(label=score)]


def build_multiple_choice(
    row: Row, example_id: str, builder: ExampleBuilder
) -> list[MultipleChoiceExample]:
    """The label is an index from `data.first_choice`, the name of a column, or the choice."""
    columns = tuple(builder.columns.choices)
    if not columns:
        raise UserError('data.columns.choices is empty; set it to the columns of the choices')
    choices = tuple(row[column] for column in columns)
    if len(columns) == 1 and isinstance(choices[0], list):
        choices, columns = tuple(choices[0]), ()
    if not all(isinstance(choice, str) and choice.strip() for choice in choices):
        raise InvalidRecord('a choice is empty or not a string')
    label = builder.label(row, builder.columns.label)
    premise, _ = word_spans.parse_text(row[builder.columns.text])
    index = None if label is None else _choice_index(builder, label, choices, columns)
    return [MultipleChoiceExample(example_id, premise, choices, index)]


def _choice_index(
    builder: ExampleBuilder, label: str, choices: tuple[str, ...], columns: tuple[str, ...]
) -> int:
    for names in (columns, choices):
        if label in names:
            return names.index(label)
    first = builder.data.first_choice
    index = int(parse_float(label)) - first
    if not 0 <= index < len(choices):
        raise InvalidRecord(
            f'choice {label} of {len(choices)} choices, counted from data.first_choice={first}'
        )
    return index

"""Builds classification, regression and prompt examples from rows."""

import json

from bert_jax.labels import cells
from bert_jax.labels.builder import ExampleBuilder, parse_float
from bert_jax.labels.examples import DistilledExample, PromptExample, TextExample
from bert_jax.labels.records import InvalidRecord, Row


def build_classification(
    row: Row, example_id: str, builder: ExampleBuilder
) -> list[TextExample] | list[DistilledExample]:
    label_column, column = builder.columns.label, builder.columns.probabilities
    row = cells.with_one_class(row, label_column)
    label = builder.label(row, label_column)
    if column and column in row:
        pairs = _probabilities(row[column], column)
        return [DistilledExample(example_id, builder.texts(row), label, pairs)]
    return [TextExample(example_id, builder.texts(row), label)]


def _probabilities(value: object, column: str) -> tuple[tuple[str, float], ...]:
    pairs = [*value.items()] if isinstance(value, dict) else []
    if not pairs or not all(isinstance(p, int | float) and 0 <= p <= 1 for _, p in pairs):
        raise InvalidRecord(
            f'column {column!r} is {json.dumps(value)[:40]}, not an object of probabilities'
        )
    return tuple((label, float(number)) for label, number in pairs)


def build_regression(row: Row, example_id: str, builder: ExampleBuilder) -> list[TextExample]:
    label = builder.label(row, builder.columns.label)
    score = None if label is None else parse_float(label)
    return [TextExample(example_id, builder.texts(row), score)]


def build_prompt(row: Row, example_id: str, builder: ExampleBuilder) -> list[PromptExample]:
    """The fields are the columns `data.columns.fields`; if there are none, 'text' and 'text2'."""
    label_column = builder.columns.label
    row = cells.with_one_class(row, label_column)
    label = builder.label(row, label_column)
    names = tuple(builder.columns.fields)
    if names:
        texts = tuple(builder.text(row[name], name) for name in names)
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

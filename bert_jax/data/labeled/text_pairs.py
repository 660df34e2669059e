"""Texts with a class, a score, or choices, from rows."""

from bert_jax.data.labeled import word_spans as word_places
from bert_jax.data.labeled.builder import Maker, number_of
from bert_jax.data.labeled.examples import ChoiceExample, TextExample
from bert_jax.data.labeled.tabular import BadRow, Row
from bert_jax.errors import UserError


def classification(row: Row, name: str, maker: Maker) -> list[TextExample]:
    label = maker.label(row, maker.columns.label)
    return [TextExample(maker.name(row, name), maker.texts(row), label)]


def regression(row: Row, name: str, maker: Maker) -> list[TextExample]:
    label = maker.label(row, maker.columns.label)
    score = None if label is None else number_of(label)
    return [TextExample(maker.name(row, name), maker.texts(row), score)]


def choice(row: Row, name: str, maker: Maker) -> list[ChoiceExample]:
    """The label is the number of the right choice (from data.first_choice), or the name of its
    column, or the choice itself."""
    columns = tuple(maker.columns.choices)
    if not columns:
        raise UserError('data.columns.choices names no column')
    choices = tuple(row[column] for column in columns)
    if len(columns) == 1 and isinstance(choices[0], list):
        choices, columns = tuple(choices[0]), ()
    if not all(isinstance(choice, str) and choice.strip() for choice in choices):
        raise BadRow('a choice that is no text')
    label = maker.label(row, maker.columns.label)
    return [
        ChoiceExample(
            maker.name(row, name),
            word_places.text_of(row[maker.columns.text])[0],
            choices,
            None if label is None else _chosen(maker, label, choices, columns),
        )
    ]


def _chosen(maker: Maker, label: str, choices: tuple[str, ...], columns: tuple[str, ...]) -> int:
    for names in (columns, choices):
        if label in names:
            return names.index(label)
    number = int(number_of(label)) - maker.data.first_choice
    if not 0 <= number < len(choices):
        raise BadRow(f'choice {label} of {len(choices)}, counted from {maker.data.first_choice}')
    return number

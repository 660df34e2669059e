"""Reads the texts, labels and numbers of rows, for the builders of all kinds of examples."""

import contextlib
import functools
import json
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.labels import cells, tag_schemes, word_spans
from bert_jax.labels.records import (
    InvalidRecord,
    ObservedRow,
    ReadingReport,
    Record,
    Row,
    SkippedRecord,
    scalar_text,
    text_of,
)

T = TypeVar('T')


class ExampleBuilder:
    """Reads the fields of examples from rows, as described by the config.

    Attributes:
        data: the config's `data`.
        columns: the values of the config's `data.columns`.
        counts: numbers of repairs and omissions, by name; updated while building.
        labeled: False if labels may be missing, as in a test file.
        contexts: id → text, for questions whose context is in `data.contexts`.
        may_hide_labels: whether labels that are all −1 in a file are unknown.
    """

    def __init__(
        self,
        data: ConfigDict,
        counts: ReadingReport,
        labeled: bool,
        contexts: Mapping[str, str],
        may_hide_labels: bool = False,
    ):
        self.data = data
        self.columns = types.SimpleNamespace(**data.columns)  # a ConfigDict is slow for every row
        self.counts, self.labeled, self.contexts = counts, labeled, contexts
        self.may_hide_labels = may_hide_labels
        self.start_file(lambda: iter(()))

    def start_file(self, read: Callable[[], Iterator[Record]]) -> None:
        """Begin a file; `read` reads its records."""
        self._read, self._of_file = read, dict[Any, Any]()

    def once_per_file(self, decide: Callable[[Iterator[Record], 'ExampleBuilder'], T]) -> T:
        """Return what `decide` says about the current file; it gets the readable records once."""
        if decide not in self._of_file:
            readable = (one for one in self._read() if not isinstance(one.content, InvalidRecord))
            self._of_file[decide] = decide(readable, self)
        decided: T = self._of_file[decide]
        return decided

    def observed(self, row: Row) -> Row:
        """Note the columns of a row; return the row, which notes those that are read."""
        self.counts.columns.update(row.values)
        return ObservedRow(row.values, self.counts.used_columns)

    @functools.cached_property
    def new_labels(self) -> dict[str, str]:
        """Maps labels in the file to labels of examples (`data.rename_labels`)."""
        pairs = self.data.rename_labels
        new_labels = dict(pair.split('=', 1) for pair in pairs if '=' in pair)
        if len(new_labels) < len(pairs):
            raise UserError(f"data.rename_labels is {pairs}; set it to pairs ('old=new', …)")
        return new_labels

    def has_label(self, row: Row, column: str, key: str = 'label') -> bool:
        """Whether the row has the column of the label, tags or spans.

        Args:
            column: the value of `columns.{key}`.
            key: the key of `columns`, for the message.

        Raises:
            InvalidRecord: `column` is '', but the examples must be labeled.
        """
        if column and (self.labeled or column in row):
            return True
        if self.labeled:
            raise InvalidRecord(f'data.columns.{key} is empty; set it to the column of the labels')
        return False

    def label(self, row: Row, column: str) -> str | None:
        """Return the class in a column, renamed; None if it is unknown.

        Raises:
            SkippedRecord: the class is in `data.skip_labels`.
            InvalidRecord: the class is a list; or empty, but the examples must be labeled.
        """
        if not self.has_label(row, column):
            return None
        value = text_of(row[column])
        label = '' if value is None else scalar_text(value, f'column {column!r}').strip()
        if self.reads_lists and cells.read_list(label) is not None:
            raise InvalidRecord(
                f'column {column!r} has the list {label[:40]!r}, not one label; multi_label reads '
                'lists of classes'
            )
        if label in self.data.skip_labels:
            raise SkippedRecord('skipped_by_label')
        if self.is_unknown([label], [value], _hides_labels):
            return None
        if label:
            return self.new_labels.get(label, label)
        if self.labeled:
            raise InvalidRecord(
                f"column {column!r} has an empty label; data.skip_labels=('',) skips such rows"
            )
        return None

    def is_unknown(
        self,
        labels: Sequence[str],
        values: Sequence[object],
        all_hidden: Callable[[Iterator[Record], 'ExampleBuilder'], bool],
    ) -> bool:
        """Whether the labels of a record, all −1, stand for no label; counts them if so.

        They do if other labels of the file are names: the library `datasets` writes −1 for unknown
        classes of a `ClassLabel`. They also do if the file, of a test split, hides all its labels.
        What else is unknown depends on all training data (`ClassNames`).

        Args:
            labels: the labels as text.
            values: the values in the file, if they may be of a `ClassLabel`.
            all_hidden: whether all records of a file have such labels.

        Raises:
            SkippedRecord: as `without_label`.
        """
        if not labels or not all(map(is_minus_1, labels)):
            return False
        are_numbers = bool(values) and all(type(value) is int for value in values)
        if are_numbers and self.once_per_file(_has_names):
            self.without_label()
            return True
        is_hidden = self.may_hide_labels and self.once_per_file(all_hidden)
        self.counts['hidden_labels'] += is_hidden
        return is_hidden

    def without_label(self) -> None:
        """Count an unknown label; SkippedRecord if the examples must be labeled."""
        if self.labeled:
            raise SkippedRecord('unknown_labels_left_out')
        self.counts['hidden_labels'] += 1

    def texts(self, row: Row) -> tuple[str, ...]:
        """Return the texts of `columns.text` and `columns.text2`; InvalidRecord if one is empty."""
        names = [name for name in (self.columns.text, self.columns.text2) if name]
        texts = tuple(self.text(row[name], name) for name in names)
        for name, text in zip(names, texts, strict=True):
            if not text.strip():
                raise InvalidRecord(f'column {name!r} has an empty text')
        return texts

    def text(self, value: object, column: str) -> str:
        """Return a text of a column; words of a list are joined.

        Raises:
            InvalidRecord: the value is not a text, or it is the text of a list with texts.
        """
        if value is None:
            raise InvalidRecord(f'column {column!r} has no text')
        text, _ = word_spans.parse_text(value)
        if self.reads_lists and cells.has_texts(cells.read_list(text)):
            raise InvalidRecord(
                f'column {column!r} has the text {text[:40]!r}, which is a list, but other rows '
                'have other texts; data.lists=no reads it as text'
            )
        return text

    @functools.cached_property
    def reads_lists(self) -> bool:
        """Whether texts such as "['a', 'b']" are lists (`data.lists`)."""
        return bool(self.data.lists != 'no')

    def offsets_count_words(self, words: word_spans.WordOffsets | None) -> bool:
        """Whether offsets count words: as in `data.units`, else if the text is a list of words."""
        return self.data.units == 'words' or (not self.data.units and words is not None)

    def end(self, value: int) -> int:
        """Return the exclusive end for an end in the file (`data.ends`)."""
        return value + bool(self.data.ends == 'inclusive')

    def tags(self, tags: Sequence[str]) -> tuple[str, ...]:
        """Rename tags and convert them from `data.scheme` to `data.tags_as`."""
        renamed = [self.new_labels.get(tag, tag) for tag in tags]
        converted, violations = tag_schemes.convert_tags(
            renamed, self.data.scheme, self.data.tags_as
        )
        self.counts['repaired_tags'] += violations
        return converted


def is_minus_1(label: object) -> bool:
    """Whether a label is −1, which stands for an unknown label."""
    return str(label).strip() in ('-1', '-1.0')


def _has_names(records: Iterator[Record], builder: ExampleBuilder) -> bool:
    """Whether a label or a tag of a file is a text."""
    columns = builder.columns
    names = [name for name in (columns.label, columns.tags, *columns.candidate_labels) if name]
    values = (one.content[name] for one in records for name in names if name in one.content)
    return any(
        isinstance(label, str)
        for value in values
        for label in (value if isinstance(value, list) else [value])
    )


def _hides_labels(records: Iterator[Record], builder: ExampleBuilder) -> bool:
    """Whether all labels of a file are −1."""
    columns = builder.columns
    labels = (
        record.content.text(column).strip()
        for record in records
        for column in (columns.label, *columns.candidate_labels)
        if column in record.content
    )
    try:
        return all(map(is_minus_1, labels))
    except InvalidRecord:
        return False


def parse_float(text: str) -> float:
    try:
        number = math.nan if '_' in text else float(text)  # Python reads 1_000
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidRecord(f'{text!r} is not a finite number')
    return number


def parse_int(value: Any) -> int:
    """Return an integer from a number such as 12 or 12.0, or from text such as '12'."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        if not isinstance(value, bool) and float(value).is_integer():
            return int(float(value))
    raise InvalidRecord(f'{str(value)[:40]!r} is not an integer')


def require_list(value: object, column: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidRecord(f'column {column!r} is {json.dumps(value)[:40]}, not a list')
    return value

"""What every way of making examples from rows shares: labels, texts, numbers, the config's keys."""

import json
import math
from collections.abc import Mapping

from bert_jax.data.labeled import tag_schemes
from bert_jax.data.labeled import word_spans as word_places
from bert_jax.data.labeled.tabular import BadRow, Row
from bert_jax.errors import UserError


class Skipped(BadRow):
    """A row left out on purpose: its label is one of data.skip_labels."""


class Maker:
    """Makes examples of a kind from rows.

    Args:
        data: the config's `data`.
        counts: Counter of what was changed on the way.
        labeled: False where the label may be missing, as in a test file.
        contexts: of questions, by the value of their column, if they are in a file of their own.
    """

    def __init__(self, data, counts, labeled: bool, contexts: Mapping[str, str]):
        self.data, self.columns = data, data.columns
        self.counts, self.labeled, self.contexts = counts, labeled, contexts
        self.renamed = dict(pair.split('=', 1) for pair in data.rename_labels if '=' in pair)
        if len(self.renamed) < len(data.rename_labels):
            raise UserError(f"data.rename_labels {data.rename_labels}: write ('old=new', …)")
        if data.units not in ('', 'characters', 'words'):
            raise UserError(f"data.units is {data.units!r}: none of '', 'characters', 'words'")
        if data.ends not in ('exclusive', 'inclusive'):
            raise UserError(f'data.ends is {data.ends!r}: none of exclusive, inclusive')

    def name(self, row: Row, default: str) -> str:
        return row.text(self.columns.id) if self.columns.id else default

    def has(self, row: Row, column: str) -> bool:
        """Whether the row has a label to be read; raises BadRow if it should have one."""
        if column and (self.labeled or column in row):
            return True
        if self.labeled:
            raise BadRow('no label: data.columns names no column for it')
        return False

    def label(self, row: Row, column: str) -> str | None:
        """The class in a column; raises Skipped for one of data.skip_labels."""
        if not self.has(row, column):
            return None
        label = row.text(column).strip()
        if label in self.data.skip_labels:
            raise Skipped(f'label {label!r}')
        if not label and not self.labeled:
            return None
        if not label:
            raise BadRow("an empty label; data.skip_labels=('',) leaves such rows out")
        return self.renamed.get(label, label)

    def texts(self, row: Row) -> tuple[str, ...]:
        names = [name for name in (self.columns.text, self.columns.text2) if name]
        texts = tuple(word_places.text_of(row[name])[0] for name in names)
        for name, text in zip(names, texts, strict=True):
            if not text.strip():
                raise BadRow(f'an empty text in column {name!r}')
        return texts

    def in_words(self, words) -> bool:
        """Whether offsets count words: said by data.units, or by a text that came as words."""
        return self.data.units == 'words' or (not self.data.units and words is not None)

    def in_scheme(self, tags: list[str]) -> tuple[str, ...]:
        tags = [self.renamed.get(tag, tag) for tag in tags]
        tags, repaired = tag_schemes.converted(tags, self.data.scheme, self.data.tags_as)
        self.counts['repaired_tags'] += repaired
        return tags


def number_of(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise BadRow(f'{text!r} is not a number')
    return number


def whole_number(value) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise BadRow(f'{value!r} is not a whole number') from None


def list_of(value, column: str) -> list:
    if not isinstance(value, list):
        raise BadRow(f'column {column!r} holds {json.dumps(value)[:40]}, not a list')
    return value

"""Builds examples of words with tags or spans from rows with lists."""

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bert_jax.labels import word_spans
from bert_jax.labels.builder import ExampleBuilder, is_minus_1, parse_int, require_list
from bert_jax.labels.examples import Span, SpansExample, TaggedExample
from bert_jax.labels.records import InvalidRecord, Record, Row, scalar_text
from bert_jax.labels.word_spans import WordOffsets


class _Words(NamedTuple):
    """The words of a row.

    Attributes:
        text: the text with the words.
        offsets: the words that are not blank; None for plain text.
        is_kept: for each word of the file, whether it is not blank.
        in_text: whether the file has a text and the offsets of its words in it.
    """

    text: str
    offsets: WordOffsets | None
    is_kept: Sequence[bool] = ()
    in_text: bool = False


def build_tagging(row: Row, example_id: str, builder: ExampleBuilder) -> list[TaggedExample]:
    columns, column = builder.columns, _tokens_column(row, builder)
    words = _read_words(row, column, builder)
    if words.offsets is None:
        raise InvalidRecord(f'column {column!r} is not a list of words')
    has_tags = builder.has_label(row, columns.tags, 'tags')
    tags = _tags(builder, row, words.is_kept) if has_tags else None
    return [TaggedExample(example_id, words.text, words.offsets, tags)]


def _tokens_column(row: Row, builder: ExampleBuilder) -> str:
    """The column of the words: `columns.tokens`, or 'words' if the row has only the latter."""
    name = builder.columns.tokens
    return 'words' if name not in row and 'words' in row else name


def _read_words(row: Row, column: str, builder: ExampleBuilder) -> _Words:
    """Read a text, a list of words, or a list of objects with the key 'text', as of Prodigy.

    Blank words are left out and counted. If the objects have 'start' and 'end', these are offsets
    in the text of `columns.text`.

    Raises:
        InvalidRecord: a word is null or not a string, or is not in the text at its offsets.
    """
    value = row[column]
    if not isinstance(value, list):
        return _Words(*word_spans.parse_text(value))
    objects = [word for word in value if isinstance(word, dict)]
    texts = word_spans.checked_words(
        [word.get('text') if isinstance(word, dict) else word for word in value]
    )
    is_kept = [bool(word.strip()) for word in texts]
    builder.counts['blank_words_left_out'] += is_kept.count(False)
    in_text = len(objects) == len(value) > 0 and all({'start', 'end'} <= set(o) for o in objects)
    if in_text and builder.columns.text in row:
        text, _ = word_spans.parse_text(row[builder.columns.text])
        offsets = [(parse_int(word['start']), parse_int(word['end'])) for word in objects]
        for word, (start, end) in zip(texts, offsets, strict=True):
            if text[start:end] != word:
                raise InvalidRecord(
                    f'the text at {start} is {text[start:end][:40]!r}, not the word {word[:40]!r}',
                    misplaced=True,
                )
        return _Words(text, tuple(itertools.compress(offsets, is_kept)), is_kept, True)
    return _Words(*word_spans.join_words(list(itertools.compress(texts, is_kept))), is_kept)


def _tags(builder: ExampleBuilder, row: Row, is_kept: Sequence[bool]) -> tuple[str, ...] | None:
    """The tags of the words that are kept; None if they are unknown.

    Raises:
        InvalidRecord: a tag is null or blank, or a blank word has a tag other than O.
    """
    column, values = builder.columns.tags, row[builder.columns.tags]
    if not builder.labeled and not values:
        return None
    if not isinstance(values, list) or len(values) != len(is_kept):
        raise InvalidRecord(f'column {column!r} is not a list of {len(is_kept)} tags')
    tags = [scalar_text(tag, f'tag {number}') for number, tag in enumerate(values)]
    if any(not tag.strip() for tag in tags):
        raise InvalidRecord('a tag is empty')
    if builder.hides(tags, _hides_tags):
        return None
    converted = builder.tags(tags)
    for tag, kept in zip(converted, is_kept, strict=True):
        if not kept and tag != 'O':
            raise InvalidRecord(f'a blank word has the tag {tag!r}')
    return tuple(itertools.compress(converted, is_kept))


def _hides_tags(records: Iterator[Record], builder: ExampleBuilder) -> bool:
    """Whether all tags of a file are −1."""
    column = builder.columns.tags
    lists = (record.content[column] for record in records if column in record.content)
    return all(is_minus_1(tag) for tags in lists for tag in tags or ())


def build_spans(row: Row, example_id: str, builder: ExampleBuilder) -> list[SpansExample]:
    """Build an example from words and spans of words, or from a text and spans of characters."""
    columns, column = builder.columns, _tokens_column(row, builder)
    if column not in row:
        column = columns.text
    text, offsets, is_kept, in_text = _read_words(row, column, builder)
    in_words = builder.offsets_count_words(None if in_text else offsets)
    words = word_spans.split_characters(text) if offsets is None else offsets
    if not words:
        raise InvalidRecord(f'column {column!r} has an empty text')
    spans: dict[Span, None] | None = None  # an ordered set
    if builder.has_label(row, columns.spans, 'spans'):
        spans = {}
        for value in require_list(row[columns.spans], columns.spans):
            span = _span(builder, value, text, words, is_kept if in_words else None)
            builder.counts['repeated_spans'] += span in spans
            spans[span] = None
    return [SpansExample(example_id, text, words, None if spans is None else tuple(spans))]


def _span(
    builder: ExampleBuilder,
    value: object,
    text: str,
    words: WordOffsets,
    is_kept: Sequence[bool] | None,
) -> Span:
    """Make a span.

    Args:
        is_kept: whether each word of the file is among `words`, for offsets that count words; None
            for offsets that count characters.
    """
    columns = builder.columns
    if isinstance(value, dict):
        names = (columns.span_start, columns.span_end, columns.span_label)
        value = [Row(value)[name] for name in names]
    start, end, label = [*require_list(value, columns.spans), None, None, None][:3]
    if not isinstance(label, str):
        raise InvalidRecord(f'span {json.dumps(value)[:60]} is not [start, end, label]')
    start, end = parse_int(start), builder.end(parse_int(end))
    if is_kept is not None:
        if 0 <= start < end <= len(is_kept):  # without blank words
            start, end = sum(is_kept[:start]), sum(is_kept[:end])
        start, end = word_spans.words_to_characters(words, start, end)
    word_spans.check_span(text, start, end)
    if not any(word[0] == start for word in words) or all(word[1] != end for word in words):
        raise InvalidRecord(
            f'span {start}:{end} does not start and end at word boundaries', misplaced=True
        )
    return Span(start, end, builder.new_labels.get(label, label))

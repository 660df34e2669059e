"""Builds examples of words with tags or spans from rows with lists."""

import json
from typing import Any

from bert_jax.data.labeled import word_spans
from bert_jax.data.labeled.builder import ExampleBuilder, parse_int, require_list
from bert_jax.data.labeled.examples import Span, SpansExample, TaggedExample
from bert_jax.data.labeled.records import InvalidRecord, Row
from bert_jax.data.labeled.word_spans import WordOffsets


def build_tagging(row: Row, example_id: str, builder: ExampleBuilder) -> list[TaggedExample]:
    columns, column = builder.columns, _tokens_column(row, builder)
    text, words = word_spans.parse_text(row[column])
    if words is None:
        raise InvalidRecord(f'column {column!r} is not a list of words')
    tags = _tags(builder, row, len(words)) if builder.has_label(row, columns.tags, 'tags') else None
    return [TaggedExample(example_id, text, words, tags)]


def _tokens_column(row: Row, builder: ExampleBuilder) -> str:
    """The column of the words: `columns.tokens`, or 'words' if the row has only the latter."""
    name = builder.columns.tokens
    return 'words' if name not in row and 'words' in row else name


def _tags(builder: ExampleBuilder, row: Row, num_words: int) -> tuple[str, ...]:
    tags = row[builder.columns.tags]
    if not isinstance(tags, list) or len(tags) != num_words:
        raise InvalidRecord(f'column {builder.columns.tags!r} is not a list of {num_words} tags')
    return builder.tags([str(tag) for tag in tags])


def build_spans(row: Row, example_id: str, builder: ExampleBuilder) -> list[SpansExample]:
    """Build an example from words and spans of words, or from a text and spans of characters."""
    columns, column = builder.columns, _tokens_column(row, builder)
    if column not in row:
        column = columns.text
    text, words = word_spans.parse_text(row[column])
    in_words = builder.offsets_count_words(words)
    words = word_spans.split_characters(text) if words is None else words
    if not words:
        raise InvalidRecord(f'column {column!r} has an empty text')
    spans: dict[Span, None] | None = None  # an ordered set
    if builder.has_label(row, columns.spans, 'spans'):
        spans = {}
        for value in require_list(row[columns.spans], columns.spans):
            span = _span(builder, value, text, words, in_words)
            builder.counts['repeated_spans'] += span in spans
            spans[span] = None
    return [SpansExample(example_id, text, words, None if spans is None else tuple(spans))]


def _span(
    builder: ExampleBuilder, value: Any, text: str, words: WordOffsets, in_words: bool
) -> Span:
    columns = builder.columns
    if isinstance(value, dict):
        names = (columns.span_start, columns.span_end, columns.span_label)
        value = [Row(value)[name] for name in names]
    start, end, label = [*require_list(value, columns.spans), None, None, None][:3]
    if not isinstance(label, str):
        raise InvalidRecord(f'span {json.dumps(value)[:60]} is not [start, end, label]')
    start, end = parse_int(start), builder.end(parse_int(end))
    if in_words:
        start, end = word_spans.words_to_characters(words, start, end)
    word_spans.check_span(text, start, end)
    if not any(word[0] == start for word in words) or all(word[1] != end for word in words):
        raise InvalidRecord(
            f'span {start}:{end} does not start and end at word boundaries', misplaced=True
        )
    return Span(start, end, builder.new_labels.get(label, label))

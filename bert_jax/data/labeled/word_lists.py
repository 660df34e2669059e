"""Lists of words with tags or spans, from JSON lines."""

import json

from bert_jax.data.labeled import word_spans as word_places
from bert_jax.data.labeled.builder import Maker, list_of, whole_number
from bert_jax.data.labeled.examples import Span, SpansExample, TaggedExample
from bert_jax.data.labeled.tabular import BadRow, Row


def tagging(row: Row, name: str, maker: Maker) -> list[TaggedExample]:
    text, words = word_places.text_of(row[maker.columns.tokens])
    if words is None:
        raise BadRow(f'column {maker.columns.tokens!r} holds no list of words')
    tags = _tags(maker, row, len(words)) if maker.has(row, maker.columns.tags) else None
    return [TaggedExample(maker.name(row, name), text, words, tags)]


def _tags(maker: Maker, row: Row, num_words: int) -> tuple[str, ...]:
    tags = row[maker.columns.tags]
    if not isinstance(tags, list) or len(tags) != num_words:
        raise BadRow(f'column {maker.columns.tags!r} holds no list of {num_words} tags')
    return maker.in_scheme([str(tag) for tag in tags])


def spans(row: Row, name: str, maker: Maker) -> list[SpansExample]:
    """From words and spans of them, or from a text and spans of its characters."""
    column = maker.columns.tokens if maker.columns.tokens in row else maker.columns.text
    text, words = word_places.text_of(row[column])
    in_words = maker.in_words(words)
    words = word_places.split(text) if words is None else words
    if not words:
        raise BadRow(f'an empty text in column {column!r}')
    spans = None
    if maker.has(row, maker.columns.spans):
        spans = []
        for found in list_of(row[maker.columns.spans], maker.columns.spans):
            span = _span(maker, found, text, words, in_words)
            if span not in spans:
                spans.append(span)
            else:
                maker.counts['repeated_spans'] += 1
        spans = tuple(spans)
    return [SpansExample(maker.name(row, name), text, words, spans)]


def _span(maker: Maker, found, text: str, words, in_words: bool) -> Span:
    if isinstance(found, dict):
        names = (maker.columns.span_start, maker.columns.span_end, maker.columns.span_label)
        found = [Row(found)[name] for name in names]
    start, end, label = [*list_of(found, maker.columns.spans), None, None, None][:3]
    if not isinstance(label, str):
        raise BadRow(f'{json.dumps(found)[:60]} is not start, end, label of a span')
    start, end = whole_number(start), whole_number(end) + (maker.data.ends == 'inclusive')
    if in_words:
        start, end = word_places.between(words, start, end)
    word_places.check_span(text, start, end)
    if not any(place[0] == start for place in words) or all(place[1] != end for place in words):
        raise BadRow(f'span {start}:{end} does not begin and end with words', misplaced=True)
    return Span(start, end, maker.renamed.get(label, label))

"""Builds examples of words with tags or spans from rows with lists."""

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bert_jax.errors import UserError
from bert_jax.labels import word_spans
from bert_jax.labels.builder import ExampleBuilder, is_minus_1, parse_int, require_list
from bert_jax.labels.examples import Span, SpansExample, TaggedExample
from bert_jax.labels.records import InvalidRecord, Record, Row, scalar_text
from bert_jax.labels.word_spans import WordOffsets

_GLINER = ('tokenized_text', 'ner')  # columns of words and spans in the files of GLiNER


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


class _Place(NamedTuple):
    """Where the spans of a row are.

    Attributes:
        text: the text.
        words: the words of the text.
        is_kept: whether each word of the file is among `words`, for offsets that count words; None
            for offsets that count characters.
        is_inclusive: whether an end is the last word or character, not that behind it.
    """

    text: str
    words: WordOffsets
    is_kept: Sequence[bool] | None
    is_inclusive: bool


def build_tagging(row: Row, example_id: str, builder: ExampleBuilder) -> list[TaggedExample]:
    columns, column = builder.columns, _tokens_column(row, builder)
    row = _with_lists(row, column, builder)
    words = _read_words(row, column, builder)
    if words.offsets is None:
        raise InvalidRecord(f'column {column!r} is not a list of words')
    has_tags = builder.has_label(row, columns.tags, 'tags')
    tags = _tags(builder, row, words.is_kept) if has_tags else None
    return [TaggedExample(example_id, words.text, words.offsets, tags)]


def _with_lists(row: Row, column: str, builder: ExampleBuilder) -> Row:
    """The row with lists instead of two texts, of words and of tags between spaces."""
    tags = builder.columns.tags
    if tags not in row or not isinstance(row[column], str) or not isinstance(row[tags], str):
        return row
    if builder.once_per_file(_have_one_word):
        raise UserError(
            f'each row has one word in column {column!r}; set data.columns.sentence to the column '
            'that numbers the sentences'
        )
    return row.with_values({name: row[name].split() for name in (column, tags)})


def _have_one_word(records: Iterator[Record], builder: ExampleBuilder) -> bool:
    """Whether the rows of a file have one word each, and there are several."""
    texts = [one.content[_tokens_column(one.content, builder)] for one in records]
    return len(texts) > 1 and all(isinstance(t, str) and len(t.split()) < 2 for t in texts)


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
    if builder.is_unknown(tags, values, _hides_tags):
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
    given = _given_spans(row, builder)
    if given is None:
        return [SpansExample(example_id, text, words, None)]
    inclusive = _have_inclusive_ends(column, builder)
    place = _Place(text, words, is_kept if in_words else None, inclusive)
    spans: dict[Span, None] = {}  # an ordered set
    for value in given:
        for span in _spans_of(builder, value, place):
            builder.counts['repeated_spans'] += span in spans
            spans[span] = None
    return [SpansExample(example_id, text, words, tuple(spans))]


def _have_inclusive_ends(column: str, builder: ExampleBuilder) -> bool:
    """Whether ends are those of last words: as in `data.ends`, else if the columns are GLiNER's."""
    is_gliner = (column, builder.columns.spans) == _GLINER and not builder.data.ends
    builder.counts['rows_with_inclusive_ends_as_in_GLiNER'] += is_gliner
    return is_gliner or builder.data.ends == 'inclusive'


def _given_spans(row: Row, builder: ExampleBuilder) -> list[Any] | None:
    """The spans in a row; None if they are unknown.

    A row without the column has no spans if other rows of the file have some: Prodigy and Label
    Studio leave the column out.
    """
    column = builder.columns.spans
    value = row[column] if column and column in row else None
    if value in (None, '') and column and builder.once_per_file(_has_spans):
        builder.counts['rows_without_spans'] += 1
        return []
    if not builder.has_label(row, column, 'spans'):
        return None
    return require_list(row[column], column)


def _has_spans(records: Iterator[Record], builder: ExampleBuilder) -> bool:
    """Whether a row of a file has a list of spans."""
    column = builder.columns.spans
    return any(column in one.content and isinstance(one.content[column], list) for one in records)


def _spans_of(builder: ExampleBuilder, value: object, place: _Place) -> Iterator[Span]:
    """Make the span of each label of a value; a list of labels is that of Label Studio."""
    columns = builder.columns
    if not isinstance(value, dict):
        yield _span(builder, value, place)
        return
    item = Row(value)
    has_list = columns.span_label not in item and isinstance(value.get('labels'), list)
    labels = item['labels' if has_list else columns.span_label]
    start, end = item[columns.span_start], item[columns.span_end]
    if place.is_kept is None and isinstance(value.get('text'), str):
        start, end = _check_text(builder, place, parse_int(start), parse_int(end), value['text'])
    for label in labels if isinstance(labels, list) else [labels]:
        yield _span(builder, [start, end, label], place)


def _check_text(
    builder: ExampleBuilder, place: _Place, start: int, end: int, expected: str
) -> tuple[int, int]:
    """Return the offsets of a span whose text is given, perhaps those of UTF-16 code units.

    Raises:
        InvalidRecord: the text at the offsets is another one.
    """
    text, shift = place.text, int(place.is_inclusive)
    expected = _without_spaces(
        expected.replace('\\n', ' ')
    )  # Label Studio writes \n for a line break
    if _without_spaces(text[start : end + shift]) == expected:
        return start, end
    units = [word_spans.from_utf16(text, offset) for offset in (start, end + shift)]
    if _without_spaces(text[units[0] : units[1]]) != expected:
        raise InvalidRecord(
            f'the text at {start} is {text[start : end + shift][:40]!r}, not {expected[:40]!r}',
            misplaced=True,
        )
    builder.counts['spans_with_offsets_of_UTF-16'] += 1
    return units[0], units[1] - shift


def _without_spaces(text: str) -> str:
    return ''.join(text.split())


def _span(builder: ExampleBuilder, value: object, place: _Place) -> Span:
    """Make the span of [start, end, label]."""
    text, words, is_kept, is_inclusive = place
    start, end, label = [*require_list(value, builder.columns.spans), None, None, None][:3]
    if not isinstance(label, str):
        raise InvalidRecord(f'span {json.dumps(value)[:60]} is not [start, end, label]')
    start, end = parse_int(start), parse_int(end)
    if start == end and not is_inclusive:
        raise InvalidRecord(
            f'span {json.dumps(value)[:60]} is empty; if its end is that of the last word or '
            'character, set data.ends=inclusive',
            misplaced=True,
        )
    end += is_inclusive
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

"""Builds examples with two marked ranges: relations, words in context, coreference."""

import re

from bert_jax.errors import UserError
from bert_jax.labels import word_spans
from bert_jax.labels.builder import ExampleBuilder, parse_int
from bert_jax.labels.examples import Mark, MarkedExample
from bert_jax.labels.records import InvalidRecord, Row
from bert_jax.labels.word_spans import WordOffsets


def build_marked_pairs(row: Row, example_id: str, builder: ExampleBuilder) -> list[MarkedExample]:
    """Build one example, or one for each of `columns.candidate_labels`.

    With candidate labels, the first mark is paired with each of the other marks.
    """
    texts, marks = _texts_and_marks(builder, row)
    candidates = tuple(builder.columns.candidate_labels)
    if not candidates:
        if len(marks) != 2:
            raise UserError(f'data.columns.marks has {len(marks)} ranges; set it to two')
        label = builder.label(row, builder.columns.label)
        return [MarkedExample(example_id, texts, marks, label)]
    if len(marks) != 1 + len(candidates):
        raise UserError(
            f'data.columns.marks has {len(marks)} ranges for {len(candidates)} columns in '
            'candidate_labels; it needs one more range than there are candidate labels'
        )
    return [
        MarkedExample(f'{example_id}-{column}', texts, (marks[0], mark), builder.label(row, column))
        for column, mark in zip(candidates, marks[1:], strict=True)
    ]


def _texts_and_marks(builder: ExampleBuilder, row: Row) -> tuple[tuple[str, ...], tuple[Mark, ...]]:
    columns = [column for column in (builder.columns.text, builder.columns.text2) if column]
    parsed = [word_spans.parse_text(row[column]) for column in columns]
    texts = tuple(text for text, _ in parsed)
    if builder.data.inline_marks:
        return _parse_inline_marks(texts, tuple(builder.data.inline_marks))
    marks = []
    for number, columns_of_mark in enumerate(builder.columns.marks):
        text = number if len(texts) == 2 else 0
        if text >= len(texts):
            raise UserError(
                'data.columns.marks has more than two ranges; with text2, set one for each text'
            )
        marks.append(Mark(text, *_range(builder, row, columns_of_mark, *parsed[text])))
    return texts, tuple(marks)


def _range(
    builder: ExampleBuilder, row: Row, columns: str, text: str, words: WordOffsets | None
) -> tuple[int, int]:
    """The characters described by columns 'START:END' or 'START+TEXT'."""
    match = re.fullmatch(r'([^:+]*)([:+])(.*)', columns, re.DOTALL)
    if not match:
        raise UserError(
            f"data.columns.marks has {columns!r}; write 'START:END' or 'START+TEXT' with the names "
            'of the columns'
        )
    start_column, separator, other = match.groups()
    in_words = builder.offsets_count_words(words)
    start = parse_int(row[start_column])
    if in_words and words is None:
        words = word_spans.split_at_whitespace(text)
    marked = row.text(other) if separator == '+' else None
    if marked is None:
        end = builder.end(parse_int(row[other]))
    else:
        end = start + len(marked.split() if in_words else marked)
    if in_words and words is not None:
        start, end = word_spans.words_to_characters(words, start, end)
        return word_spans.narrow_to(text, start, end, marked)
    word_spans.check_span(text, start, end)
    if marked is not None and text[start:end] != marked:
        raise InvalidRecord(
            f'the text at {start} is {text[start:end]!r}, not {marked!r}', misplaced=True
        )
    return start, end


def _parse_inline_marks(
    texts: tuple[str, ...], tags: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[Mark, ...]]:
    """Remove the tags that enclose ranges, such as '<e1>', '</e1>'; return the texts and ranges.

    A tag that is listed several times, as in ('*', '*', '*', '*'), takes its roles (opening and
    closing tags of the ranges) in order of occurrence.
    """
    if len(tags) % 2:
        raise UserError(f'data.inline_marks is {tags}; set an opening and a closing tag per range')
    pending = {tag: [role for role, other in enumerate(tags) if other == tag] for tag in tags}
    pattern = re.compile('|'.join(map(re.escape, sorted(pending, key=len, reverse=True))))
    places: dict[int, tuple[int, int]] = {}  # role (index in tags) → number of the text, offset
    untagged = []
    for number, text in enumerate(texts):
        kept, tag_end = '', 0
        for match in pattern.finditer(text):
            kept += text[tag_end : match.start()]
            tag_end = match.end()
            if not pending[match[0]]:
                raise InvalidRecord(f'the text has too many {match[0]!r}', misplaced=True)
            places[pending[match[0]].pop(0)] = number, len(kept)
        untagged.append(kept + text[tag_end:])
    marks = []
    for role in range(0, len(tags), 2):
        number, start = places.get(role, (-1, 0))
        end_number, end = places.get(role + 1, (-1, 0))
        if number < 0 or number != end_number or start >= end:
            raise InvalidRecord(f'no text between {tags[role]!r} and {tags[role + 1]!r}', True)
        marks.append(Mark(number, start, end))
    return tuple(untagged), tuple(marks)

"""Two marked places in one or two texts, from rows: relations, words in context, coreference."""

import re

from bert_jax.data.labeled import word_spans as word_places
from bert_jax.data.labeled.builder import Maker, whole_number
from bert_jax.data.labeled.examples import Mark, MarkedExample
from bert_jax.data.labeled.tabular import BadRow, Row
from bert_jax.errors import UserError


def marked(row: Row, name: str, maker: Maker) -> list[MarkedExample]:
    """One example, or with data.columns.candidate_labels one for each mark after the first."""
    texts, marks = _texts_and_marks(maker, row)
    name = maker.name(row, name)
    candidates = tuple(maker.columns.candidate_labels)
    if not candidates:
        if len(marks) != 2:
            raise UserError(f'data.columns.marks names {len(marks)} places, not two')
        return [MarkedExample(name, texts, marks, maker.label(row, maker.columns.label))]
    if len(marks) != 1 + len(candidates):
        raise UserError(
            f'data.columns.marks names {len(marks)} places for {len(candidates)} '
            'candidate_labels: the first is paired with each of the rest'
        )
    return [
        MarkedExample(f'{name}-{column}', texts, (marks[0], mark), maker.label(row, column))
        for column, mark in zip(candidates, marks[1:], strict=True)
    ]


def _texts_and_marks(maker: Maker, row: Row) -> tuple[tuple[str, ...], tuple[Mark, ...]]:
    columns = [column for column in (maker.columns.text, maker.columns.text2) if column]
    texts, words = zip(*(word_places.text_of(row[column]) for column in columns), strict=True)
    if maker.data.inline_marks:
        return _unmarked(texts, tuple(maker.data.inline_marks))
    marks = []
    for number, where in enumerate(maker.columns.marks):
        text = number if len(texts) == 2 else 0
        if text >= len(texts):
            raise UserError('data.columns.marks: with text2, one place in each text')
        marks.append(Mark(text, *_mark(maker, row, where, texts[text], words[text])))
    return tuple(texts), tuple(marks)


def _mark(maker: Maker, row: Row, where: str, text: str, words) -> tuple[int, int]:
    """The characters that 'START:END' or 'START+TEXT', names of columns, describe."""
    start_column, sign, other = re.match(r'([^:+]*)([:+]?)(.*)', where).groups()
    if not sign:
        raise UserError(f"data.columns.marks: write 'START:END' or 'START+TEXT', not {where!r}")
    in_words = maker.in_words(words)
    start = whole_number(row[start_column])
    if in_words and words is None:
        words = tuple(found.span() for found in re.finditer(r'\S+', text))
    stated = row.text(other) if sign == '+' else None
    if stated is None:
        end = whole_number(row[other]) + (maker.data.ends == 'inclusive')
    else:
        end = start + len(stated.split() if in_words else stated)
    if in_words:
        start, end = word_places.between(words, start, end)
        return word_places.narrowed(text, start, end, stated)
    word_places.check_span(text, start, end)
    if stated is not None and text[start:end] != stated:
        raise BadRow(f'{stated!r} is not at {start}, where {text[start:end]!r} is', True)
    return start, end


def _unmarked(texts, signs) -> tuple[tuple[str, ...], tuple[Mark, ...]]:
    """Texts without the signs around marked places, such as '<e1>', '</e1>', and these places. A
    sign that stands for several ends, as in '*', '*', '*', '*', is each of them in turn."""
    if len(signs) % 2:
        raise UserError(f'data.inline_marks {signs}: one sign before and one behind each place')
    waiting = {sign: [end for end, other in enumerate(signs) if other == sign] for sign in signs}
    pattern = re.compile('|'.join(map(re.escape, sorted(waiting, key=len, reverse=True))))
    ends: dict[int, tuple[int, int]] = {}
    plain = []
    for number, text in enumerate(texts):
        kept, behind = '', 0
        for found in pattern.finditer(text):
            kept += text[behind : found.start()]
            behind = found.end()
            if not waiting[found[0]]:
                raise BadRow(f'{found[0]!r} once too often', misplaced=True)
            ends[waiting[found[0]].pop(0)] = number, len(kept)
        plain.append(kept + text[behind:])
    marks = []
    for start in range(0, len(signs), 2):
        (text, first), (same, last) = ends.get(start, (-1, 0)), ends.get(start + 1, (-1, 0))
        if text < 0 or text != same or first >= last:
            raise BadRow(f'nothing between {signs[start]!r} and {signs[start + 1]!r}', True)
        marks.append(Mark(text, first, last))
    return tuple(plain), tuple(marks)

"""From a row of a table, or an object of JSON lines, to the examples of each kind of task."""

import json
import math
import re

from bert_jax.data.labelled import tags as tag_schemes
from bert_jax.data.labelled import words as word_places
from bert_jax.data.labelled.examples import (
    Answer,
    ChoiceExample,
    Mark,
    MarkedExample,
    QuestionExample,
    Span,
    SpansExample,
    TaggedExample,
    TextExample,
)
from bert_jax.data.labelled.rows import BadRow, Row
from bert_jax.errors import UserError

_WORD_NUMBERS = re.compile(r'(?:\d+:)?(\d+(?: \d+)*)')


class Skipped(BadRow):
    """A row left out on purpose: its label is one of data.skip_labels."""


class Maker:
    """Makes examples of a kind from rows.

    Args:
        data: the config's `data`.
        counts: Counter of what was changed on the way.
        labelled: False where the label may be missing, as in a test file.
    """

    def __init__(self, data, counts, labelled: bool):
        self.data, self.columns = data, data.columns
        self.counts, self.labelled = counts, labelled
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
        if column and (self.labelled or column in row):
            return True
        if self.labelled:
            raise BadRow('no label: data.columns names no column for it')
        return False

    def label(self, row: Row, column: str) -> str | None:
        """The class in a column; raises Skipped for one of data.skip_labels."""
        if not self.has(row, column):
            return None
        label = row.text(column).strip()
        if label in self.data.skip_labels:
            raise Skipped(f'label {label!r}')
        if not label and not self.labelled:
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

    def classification(self, row: Row, name: str) -> list[TextExample]:
        label = self.label(row, self.columns.label)
        return [TextExample(self.name(row, name), self.texts(row), label)]

    def regression(self, row: Row, name: str) -> list[TextExample]:
        label = self.label(row, self.columns.label)
        score = None if label is None else _number(label)
        return [TextExample(self.name(row, name), self.texts(row), score)]

    def choice(self, row: Row, name: str) -> list[ChoiceExample]:
        """The label is the number of the right choice (from data.first_choice), or the name of its
        column, or the choice itself."""
        columns = tuple(self.columns.choices)
        if not columns:
            raise UserError('data.columns.choices names no column')
        choices = tuple(row[column] for column in columns)
        if len(columns) == 1 and isinstance(choices[0], list):
            choices, columns = tuple(choices[0]), ()
        if not all(isinstance(choice, str) and choice.strip() for choice in choices):
            raise BadRow('a choice that is no text')
        label = self.label(row, self.columns.label)
        return [
            ChoiceExample(
                self.name(row, name),
                word_places.text_of(row[self.columns.text])[0],
                choices,
                None if label is None else self._chosen(label, choices, columns),
            )
        ]

    def _chosen(self, label: str, choices: tuple[str, ...], columns: tuple[str, ...]) -> int:
        for names in (columns, choices):
            if label in names:
                return names.index(label)
        number = int(_number(label)) - self.data.first_choice
        if not 0 <= number < len(choices):
            raise BadRow(f'choice {label} of {len(choices)}, counted from {self.data.first_choice}')
        return number

    def marked(self, row: Row, name: str) -> list[MarkedExample]:
        """One example, or with data.columns.candidate_labels one for each mark after the first."""
        texts, marks = self._texts_and_marks(row)
        name = self.name(row, name)
        candidates = tuple(self.columns.candidate_labels)
        if not candidates:
            if len(marks) != 2:
                raise UserError(f'data.columns.marks names {len(marks)} places, not two')
            return [MarkedExample(name, texts, marks, self.label(row, self.columns.label))]
        if len(marks) != 1 + len(candidates):
            raise UserError(
                f'data.columns.marks names {len(marks)} places for {len(candidates)} '
                'candidate_labels: the first is paired with each of the rest'
            )
        return [
            MarkedExample(f'{name}-{column}', texts, (marks[0], mark), self.label(row, column))
            for column, mark in zip(candidates, marks[1:], strict=True)
        ]

    def _texts_and_marks(self, row: Row) -> tuple[tuple[str, ...], tuple[Mark, ...]]:
        columns = [column for column in (self.columns.text, self.columns.text2) if column]
        texts, words = zip(*(word_places.text_of(row[column]) for column in columns), strict=True)
        if self.data.inline_marks:
            return _unmarked(texts, tuple(self.data.inline_marks))
        marks = []
        for number, where in enumerate(self.columns.marks):
            text = number if len(texts) == 2 else 0
            if text >= len(texts):
                raise UserError('data.columns.marks: with text2, one place in each text')
            marks.append(Mark(text, *self._mark(row, where, texts[text], words[text])))
        return tuple(texts), tuple(marks)

    def _mark(self, row: Row, where: str, text: str, words) -> tuple[int, int]:
        """The characters that 'START:END' or 'START+TEXT', names of columns, describe."""
        start_column, sign, other = re.match(r'([^:+]*)([:+]?)(.*)', where).groups()
        if not sign:
            raise UserError(f"data.columns.marks: write 'START:END' or 'START+TEXT', not {where!r}")
        in_words = self.in_words(words)
        start = _whole_number(row[start_column])
        if in_words and words is None:
            words = tuple(found.span() for found in re.finditer(r'\S+', text))
        stated = row.text(other) if sign == '+' else None
        if stated is None:
            end = _whole_number(row[other]) + (self.data.ends == 'inclusive')
        else:
            end = start + len(stated.split() if in_words else stated)
        if in_words:
            start, end = word_places.between(words, start, end)
            return narrowed(text, start, end, stated)
        word_places.check_span(text, start, end)
        if stated is not None and text[start:end] != stated:
            raise BadRow(f'{stated!r} is not at {start}, where {text[start:end]!r} is', True)
        return start, end

    def in_words(self, words) -> bool:
        """Whether offsets count words: said by data.units, or by a text that came as words."""
        return self.data.units == 'words' or (not self.data.units and words is not None)

    def tagging(self, row: Row, name: str) -> list[TaggedExample]:
        text, words = word_places.text_of(row[self.columns.tokens])
        if words is None:
            raise BadRow(f'column {self.columns.tokens!r} holds no list of words')
        tags = self._tags(row, len(words)) if self.has(row, self.columns.tags) else None
        return [TaggedExample(self.name(row, name), text, words, tags)]

    def _tags(self, row: Row, num_words: int) -> tuple[str, ...]:
        tags = row[self.columns.tags]
        if not isinstance(tags, list) or len(tags) != num_words:
            raise BadRow(f'column {self.columns.tags!r} holds no list of {num_words} tags')
        return self.in_scheme([str(tag) for tag in tags])

    def in_scheme(self, tags: list[str]) -> tuple[str, ...]:
        tags = [self.renamed.get(tag, tag) for tag in tags]
        tags, repaired = tag_schemes.converted(tags, self.data.scheme, self.data.tags_as)
        self.counts['repaired_tags'] += repaired
        return tags

    def spans(self, row: Row, name: str) -> list[SpansExample]:
        """From words and spans of them, or from a text and spans of its characters."""
        column = self.columns.tokens if self.columns.tokens in row else self.columns.text
        text, words = word_places.text_of(row[column])
        in_words = self.in_words(words)
        words = word_places.split(text) if words is None else words
        if not words:
            raise BadRow(f'an empty text in column {column!r}')
        spans = None
        if self.has(row, self.columns.spans):
            spans = []
            for found in _list(row[self.columns.spans], self.columns.spans):
                span = self._span(found, text, words, in_words)
                if span not in spans:
                    spans.append(span)
                else:
                    self.counts['repeated_spans'] += 1
            spans = tuple(spans)
        return [SpansExample(self.name(row, name), text, words, spans)]

    def _span(self, found, text: str, words, in_words: bool) -> Span:
        if isinstance(found, dict):
            names = (self.columns.span_start, self.columns.span_end, self.columns.span_label)
            found = [Row(found)[name] for name in names]
        start, end, label = [*_list(found, self.columns.spans), None, None, None][:3]
        if not isinstance(label, str):
            raise BadRow(f'{json.dumps(found)[:60]} is not start, end, label of a span')
        start, end = _whole_number(start), _whole_number(end) + (self.data.ends == 'inclusive')
        if in_words:
            start, end = word_places.between(words, start, end)
        word_places.check_span(text, start, end)
        if not any(place[0] == start for place in words) or all(place[1] != end for place in words):
            raise BadRow(f'span {start}:{end} does not begin and end with words', misplaced=True)
        return Span(start, end, self.renamed.get(label, label))

    def question(self, row: Row, name: str, contexts: dict[str, str]) -> list[QuestionExample]:
        """`contexts`: by the value of the context's column, if they are in a file of their own."""
        context = row.text(self.columns.context)
        if contexts:
            if context not in contexts:
                raise BadRow(f'context {context!r} is not in data.contexts')
            context = contexts[context]
        question = row.text(self.columns.question)
        if not question.strip() or not context.strip():
            raise BadRow('an empty question or context')
        columns = tuple(self.columns.answers)
        answers = None
        if columns and self.has(row, columns[0]):
            starts = tuple(self.columns.answer_starts)
            if starts and len(starts) != len(columns):
                raise UserError('data.columns.answer_starts: one for each of answers, or none')
            answers = []
            for number, column in enumerate(columns):
                start = row[starts[number]] if starts else None
                answers += self._answers(row[column], start, context)
            answers = tuple(answers)
        return [QuestionExample(self.name(row, name), question, context, answers)]

    def _answers(self, value, start, context: str) -> list[Answer]:
        texts = value if isinstance(value, list) else [value]
        starts = start if isinstance(start, list) else [start] * len(texts)
        if len(starts) != len(texts):
            raise BadRow(f'{len(texts)} answers, {len(starts)} starts')
        found = []
        for text, first in zip(texts, starts, strict=True):
            if isinstance(text, str) and not text.strip():
                continue  # no answer
            if self.data.units == 'words':
                found.append(self._answer_of_words(text, context))
            else:
                found.append(self._answer_of_text(text, first, context))
        return found

    def _answer_of_text(self, text, start, context: str) -> Answer:
        if not isinstance(text, str):
            raise BadRow(f'an answer that is no text: {json.dumps(text)[:40]}')
        if start is not None and start != '':
            return checked_answer(text, _whole_number(start), context)
        start = context.find(text)
        if start < 0:
            raise BadRow(f'answer {text[:40]!r} is not in the context', misplaced=True)
        self.counts['answers_found_several_times'] += context.count(text) > 1
        return Answer(text, start)

    def _answer_of_words(self, numbers, context: str) -> Answer:
        """The stretch from the first to the last of these words, separated by white space."""
        match = _WORD_NUMBERS.fullmatch(str(numbers).strip())
        if not match:
            raise BadRow(f'answer {str(numbers)[:40]!r} is no list of numbers of words')
        chosen = sorted({int(number) for number in match[1].split()})
        self.counts['answers_with_gaps'] += chosen[-1] - chosen[0] >= len(chosen)
        places = tuple(found.span() for found in re.finditer(r'\S+', context))
        start, end = word_places.between(places, chosen[0], chosen[-1] + 1)
        return Answer(context[start:end], start)


def checked_answer(text: str, start: int, context: str) -> Answer:
    """An answer that is where it says. Raises BadRow if it is not."""
    there = context[start : start + len(text)] if start >= 0 else ''
    if not text or there != text:
        raise BadRow(
            f'answer {text[:40]!r} is not in the context at {start}, where {there[:40]!r} is',
            misplaced=True,
        )
    return Answer(text, start)


def narrowed(text: str, start: int, end: int, stated: str | None) -> tuple[int, int]:
    """The place of `stated` within words start … end, which may have punctuation around it; all of
    them if it is not found there."""
    inside = text[start:end].find(stated) if stated else -1
    if inside < 0:
        return start, end
    return start + inside, start + inside + len(stated)


def _unmarked(texts, signs) -> tuple[tuple[str, ...], tuple[Mark, ...]]:
    """Texts without the signs around marked places, such as '<e1>', '</e1>', and these places."""
    if len(signs) % 2:
        raise UserError(f'data.inline_marks {signs}: one sign before and one behind each place')
    places: dict[str, tuple[int, int]] = {}
    plain = []
    pattern = re.compile('|'.join(map(re.escape, sorted(signs, key=len, reverse=True))))
    for number, text in enumerate(texts):
        kept, end = '', 0
        for found in pattern.finditer(text):
            kept += text[end : found.start()]
            end = found.end()
            key = found[0] if signs.count(found[0]) == 1 else f'{found[0]}{number}'
            if key in places:
                raise BadRow(f'{found[0]!r} twice', misplaced=True)
            places[key] = number, len(kept)
        plain.append(kept + text[end:])
    marks = []
    for number, (before, behind) in enumerate(zip(signs[::2], signs[1::2], strict=True)):
        start = places.get(before) or places.get(f'{before}{number}')
        end = places.get(behind) or places.get(f'{behind}{number}')
        if not start or not end or start[0] != end[0] or start[1] >= end[1]:
            raise BadRow(f'nothing marked by {before!r} and {behind!r}', misplaced=True)
        marks.append(Mark(start[0], start[1], end[1]))
    return tuple(plain), tuple(marks)


def _list(value, column: str) -> list:
    if not isinstance(value, list):
        raise BadRow(f'column {column!r} holds {json.dumps(value)[:40]}, not a list')
    return value


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise BadRow(f'{text!r} is not a number')
    return number


def _whole_number(value) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise BadRow(f'{value!r} is not a whole number') from None

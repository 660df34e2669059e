"""Questions on a context and where their answers are, from rows."""

import json
import re

from bert_jax.data.labeled import word_spans as word_places
from bert_jax.data.labeled.builder import Maker, whole_number
from bert_jax.data.labeled.examples import Answer, QuestionExample
from bert_jax.data.labeled.tabular import BadRow, Row
from bert_jax.errors import UserError

_WORD_NUMBERS = re.compile(r'(?:\d+:)?(\d+(?: \d+)*)')


def question(row: Row, name: str, maker: Maker) -> list[QuestionExample]:
    context = row.text(maker.columns.context)
    if maker.contexts:
        if context not in maker.contexts:
            raise BadRow(f'context {context!r} is not in data.contexts')
        context = maker.contexts[context]
    question = row.text(maker.columns.question)
    if not question.strip() or not context.strip():
        raise BadRow('an empty question or context')
    columns = tuple(maker.columns.answers)
    answers = None
    if columns and maker.has(row, columns[0]):
        starts = tuple(maker.columns.answer_starts)
        if starts and len(starts) != len(columns):
            raise UserError('data.columns.answer_starts: one for each of answers, or none')
        answers = []
        for number, column in enumerate(columns):
            start = row[starts[number]] if starts else None
            answers += _answers(maker, row[column], start, context)
        answers = tuple(answers)
    return [QuestionExample(maker.name(row, name), question, context, answers)]


def _answers(maker: Maker, value, start, context: str) -> list[Answer]:
    texts = value if isinstance(value, list) else [value]
    starts = start if isinstance(start, list) else [start] * len(texts)
    if len(starts) != len(texts):
        raise BadRow(f'{len(texts)} answers, {len(starts)} starts')
    found = []
    for text, first in zip(texts, starts, strict=True):
        if isinstance(text, str) and not text.strip():
            continue  # no answer
        if maker.data.units == 'words':
            found.append(_answer_of_words(maker, text, context))
        else:
            found.append(_answer_of_text(maker, text, first, context))
    return found


def _answer_of_text(maker: Maker, text, start, context: str) -> Answer:
    if not isinstance(text, str):
        raise BadRow(f'an answer that is no text: {json.dumps(text)[:40]}')
    if start is not None and start != '':
        return checked_answer(text, whole_number(start), context)
    start = context.find(text)
    if start < 0:
        raise BadRow(f'answer {text[:40]!r} is not in the context', misplaced=True)
    maker.counts['answers_found_several_times'] += context.count(text) > 1
    return Answer(text, start)


def _answer_of_words(maker: Maker, numbers, context: str) -> Answer:
    """The stretch from the first to the last of these words, separated by white space."""
    match = _WORD_NUMBERS.fullmatch(str(numbers).strip())
    if not match:
        raise BadRow(f'answer {str(numbers)[:40]!r} is no list of numbers of words')
    chosen = sorted({int(number) for number in match[1].split()})
    maker.counts['answers_with_gaps'] += chosen[-1] - chosen[0] >= len(chosen)
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

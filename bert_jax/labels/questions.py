"""Builds questions about a context from rows and from SQuAD's JSON (1.1 and 2.0)."""

import json
import os
import re
from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.labels import word_spans
from bert_jax.labels.builder import ExampleBuilder, parse_int
from bert_jax.labels.examples import Answer, QuestionExample
from bert_jax.labels.json_rows import load_json
from bert_jax.labels.records import InvalidRecord, Record, Row, check_text, printable
from bert_jax.types import JsonObject

_WORD_NUMBERS = re.compile(r'(?:\d+:)?(\d+(?: \d+)*)')


def build_question(row: Row, example_id: str, builder: ExampleBuilder) -> list[QuestionExample]:
    """Build a question whose answers are texts, with or without offsets, or word numbers."""
    columns = builder.columns
    context = row.text(columns.context)
    if builder.contexts:
        if context not in builder.contexts:
            raise InvalidRecord(f'context {context!r} is not in the file data.contexts')
        context = builder.contexts[context]
    question = row.text(columns.question)
    if not question.strip() or not context.strip():
        raise InvalidRecord('the question or the context is empty')
    answer_columns = tuple(columns.answers)
    answers: tuple[Answer, ...] | None = None
    if answer_columns and builder.has_label(row, answer_columns[0]):
        starts = tuple(columns.answer_starts) or (None,) * len(answer_columns)
        if len(starts) != len(answer_columns):
            raise UserError(
                f'data.columns.answer_starts has {len(starts)} columns, but answers has '
                f'{len(answer_columns)}; set as many, or none'
            )
        answers = tuple(
            answer
            for column, start in zip(answer_columns, starts, strict=True)
            for answer in _answers(builder, row[column], start and row[start], context)
        )
    return [QuestionExample(example_id, question, context, answers)]


def _answers(
    builder: ExampleBuilder, value: object, start: object, context: str
) -> Iterator[Answer]:
    row = Row({'answers': value})
    if start is None and 'answers.text' in row:  # objects, as in SQuAD and the library datasets
        value = row['answers.text']
        if 'answers.answer_start' in row:
            start = row['answers.answer_start']
    texts = value if isinstance(value, list) else [value]
    starts = start if isinstance(start, list) else [start] * len(texts)
    if len(starts) != len(texts):
        raise InvalidRecord(f'{len(texts)} answers, but {len(starts)} starts')
    for text, text_start in zip(texts, starts, strict=True):
        if isinstance(text, str) and not text.strip():
            continue  # no answer
        if builder.data.units == 'words':
            yield _answer_from_words(builder, text, context)
        else:
            yield _answer_from_text(builder, text, text_start, context)


def _answer_from_text(builder: ExampleBuilder, text: object, start: object, context: str) -> Answer:
    if isinstance(text, str) and start in (None, ''):
        start = context.find(text)
        if start < 0:
            raise InvalidRecord(f'answer {text[:40]!r} is not in the context', misplaced=True)
        builder.counts['answers_found_several_times'] += context.count(text) > 1
    return checked_answer(text, start, context)


def _answer_from_words(builder: ExampleBuilder, numbers: object, context: str) -> Answer:
    """The answer from the first to the last of the numbered words, split at whitespace."""
    match = _WORD_NUMBERS.fullmatch(str(numbers).strip())
    if not match:
        raise InvalidRecord(f'answer {str(numbers)[:40]!r} is not a list of word numbers')
    in_answer = sorted({int(number) for number in match[1].split()})
    builder.counts['answers_with_gaps'] += in_answer[-1] - in_answer[0] >= len(in_answer)
    words = word_spans.split_at_whitespace(context)
    start, end = word_spans.words_to_characters(words, in_answer[0], in_answer[-1] + 1)
    return Answer(context[start:end], start)


def checked_answer(text: object, start: object, context: str) -> Answer:
    """Return the answer; raise InvalidRecord if the context does not have it at `start`."""
    if not isinstance(text, str):
        raise InvalidRecord(f'answer {json.dumps(text)[:40]} is not a string')
    start = parse_int(start)
    in_context = context[start : start + len(text)] if start >= 0 else ''
    if not text or in_context != text:
        raise InvalidRecord(
            f'the context at {start} is {in_context[:40]!r}, not the answer {text[:40]!r}',
            misplaced=True,
        )
    return Answer(text, start)


_SQUAD_COLUMNS = ('id', 'question', 'answers', 'is_impossible')


def read_squad(path: str, data: ConfigDict) -> Iterator[Record]:
    """Yield the questions of a SQuAD file as records with (context, question object).

    Raises:
        UserError: the file does not have the format of SQuAD.
    """
    try:
        questions = [
            (str(article.get('title', '')), paragraph['context'], question)
            for article in load_json(path, data)['data']
            for paragraph in article['paragraphs']
            for question in paragraph['qas']
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f'{path} is not in the format of SQuAD (data, paragraphs, context, qas): {error!r}; '
            'set data.format'
        ) from None
    for number, (title, context, question) in enumerate(questions, start=1):
        content: object = context, question
        question_id = f'{os.path.basename(path)}:{number}'
        if not isinstance(question, dict):
            content = InvalidRecord('the question is not a JSON object')
        elif question.get('id'):
            question_id = str(question['id']).encode(errors='replace').decode()
        groups = {'context': str(context), 'title': title}
        yield Record(f'{path}: question {printable(question_id)}', question_id, content, groups)


def build_squad_question(
    content: tuple[Any, JsonObject], example_id: str, builder: ExampleBuilder
) -> list[QuestionExample]:
    """Build a question from a record of `read_squad`; an empty answer means no answer."""
    context, fields = content
    builder.counts.note_columns(fields, _SQUAD_COLUMNS)
    question, is_impossible = fields.get('question', ''), fields.get('is_impossible', False)
    for text in (context, question):
        if not isinstance(text, str) or not text.strip():
            raise InvalidRecord('the question or the context is not a text')
        check_text(text)
    if not isinstance(is_impossible, bool):
        raise InvalidRecord(f'is_impossible is {json.dumps(is_impossible)[:40]}, not true or false')
    answers = [] if is_impossible else fields.get('answers')
    if answers is None:
        if builder.labeled:
            raise InvalidRecord("the question has no 'answers'")
        return [QuestionExample(example_id, question, context, None)]
    try:
        pairs = [(answer['text'], answer['answer_start']) for answer in answers]
    except (KeyError, TypeError):
        raise InvalidRecord("an answer lacks 'text' or 'answer_start'") from None
    checked = tuple(checked_answer(*pair, context) for pair in pairs if pair[0] != '')
    return [QuestionExample(example_id, question, context, checked)]

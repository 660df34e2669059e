"""Questions in the JSON of SQuAD 1.1 and 2.0."""

import json
import os
from collections.abc import Iterator

from bert_jax.data import text_files
from bert_jax.data.labeled import tabular
from bert_jax.data.labeled.examples import QuestionExample
from bert_jax.data.labeled.questions import checked_answer
from bert_jax.data.labeled.tabular import BadRow, Unit
from bert_jax.errors import UserError


def questions(path: str, data) -> Iterator[Unit]:
    """The questions of a file, each with its context.

    Raises:
        UserError: the file is no such JSON.
    """
    text = text_files.read_text(path, data.encoding)
    try:
        articles = json.loads(text)['data']
        paragraphs = [
            (article.get('title', ''), paragraph['context'], question)
            for article in articles
            for paragraph in article['paragraphs']
            for question in paragraph['qas']
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f'{path} is not in the format of SQuAD (data, paragraphs, context, qas): {error!r}'
        ) from None
    for number, (title, context, question) in enumerate(paragraphs, start=1):
        name = str(question.get('id') or f'{os.path.basename(path)}:{number}')
        groups = {'context': str(context), 'title': str(title)}
        yield Unit(f'{path}: question {name}', name, (context, question), groups)


def example(content, name: str, maker) -> list[QuestionExample]:
    context, question = content
    asked = question.get('question')
    for text in (context, asked):
        if not isinstance(text, str) or not text.strip():
            raise BadRow('an empty question or context')
        tabular.check_text(text)
    stated = question.get('answers')
    if stated is None and maker.labeled and not question.get('is_impossible'):
        raise BadRow('no answers')
    if question.get('is_impossible'):
        stated = []
    try:
        found = stated and [(answer['text'], answer['answer_start']) for answer in stated]
    except (KeyError, TypeError):
        raise BadRow('an answer without text and answer_start') from None
    answers = None if stated is None else tuple(checked_answer(*a, context) for a in found)
    return [QuestionExample(name, asked, context, answers)]

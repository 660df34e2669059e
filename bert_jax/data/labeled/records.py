"""From the records of published data sets, as TensorFlow Datasets has them, to examples."""

import math
import re
from collections.abc import Callable

from bert_jax.data.labeled import tag_schemes
from bert_jax.data.labeled import word_spans as word_places
from bert_jax.data.labeled.examples import (
    ChoiceExample,
    Mark,
    MarkedExample,
    QuestionExample,
    TaggedExample,
    TextExample,
)
from bert_jax.data.labeled.questions import checked_answer
from bert_jax.data.labeled.tabular import BadRow

_BLANK = '@placeholder'  # of ReCoRD


def _id(record: dict, name: str) -> str:
    index = record.get('idx')
    if isinstance(index, dict):
        return '-'.join(str(number) for number in index.values())
    return name if index is None else str(index)


def texts(*columns: str) -> Callable:
    """One or two texts and a class."""

    def examples(record, name, language):
        found = tuple(record[column] for column in columns)
        return [TextExample(_id(record, name), found, record['label'])]

    return examples


def scored(*columns: str) -> Callable:
    """Two texts and a score; GLUE writes −1 where it is not known."""

    def examples(record, name, language):
        found = tuple(record[column] for column in columns)
        score = float(record['label'])
        if not math.isfinite(score):
            raise BadRow(f'score {score}')
        return [TextExample(_id(record, name), found, score if score >= 0 else None)]

    return examples


def translated(record, name, language) -> list[TextExample]:
    """XNLI: texts in all languages in one record; the English records of MNLI as they are."""
    premise, hypothesis = record['premise'], record['hypothesis']
    if isinstance(premise, dict):
        spoken = list(hypothesis['language'])
        if language not in premise or language not in spoken:
            raise BadRow(f'no text in {language!r}; there are: {", ".join(sorted(premise))}')
        premise = premise[language]
        hypothesis = hypothesis['translation'][spoken.index(language)]
    return [TextExample(_id(record, name), (premise, hypothesis), record['label'])]


def copa(record, name, language) -> list[ChoiceExample]:
    """The question (cause or effect) follows the premise, as words."""
    asked = {'cause': 'What was the cause?', 'effect': 'What happened as a result?'}
    premise = f'{record["premise"]} {asked[record["question"]]}'
    choices = record['choice1'], record['choice2']
    label = None if record['label'] is None else ('choice1', 'choice2').index(record['label'])
    return [ChoiceExample(_id(record, name), premise, choices, label)]


def multirc(record, name, language) -> list[TextExample]:
    """Whether an answer is right, each for itself; its id is paragraph-question-answer."""
    index = record['idx']
    name = f'{index["paragraph"]}-{index["question"]}-{index["answer"]}'
    answered = f'{record["question"]} {record["answer"]}'
    return [TextExample(name, (record['paragraph'], answered), record['label'])]


def cloze(record, name, language) -> list[ChoiceExample]:
    """ReCoRD: which of the entities fills the blank of the query; all answers among them count."""
    index = record['idx']
    passage = record['passage'].replace('\n@highlight\n', ' ')
    entities, answers = record['entities'], set(record['answers'])
    right = [number for number, entity in enumerate(entities) if entity in answers]
    if answers and not right:
        raise BadRow(f'none of the answers {sorted(answers)} is an entity of the passage')
    return [
        ChoiceExample(
            f'{index["passage"]}-{index["query"]}',
            passage,
            tuple(record['query'].replace(_BLANK, entity) for entity in entities),
            right[0] if right else None,
            tuple(right[1:]),
            tuple(entities),
        )
    ]


def wic(record, name, language) -> list[MarkedExample]:
    """A word in two contexts."""
    found = record['sentence1'], record['sentence2']
    marks = []
    for number, text in enumerate(found):
        start, end = record[f'start{number + 1}'], record[f'end{number + 1}']
        word_places.check_span(text, start, end)
        marks.append(Mark(number, start, end))
    return [MarkedExample(_id(record, name), found, tuple(marks), record['label'])]


def wsc(record, name, language) -> list[MarkedExample]:
    """A name and a pronoun, given by the number of their first word and by their texts."""
    text = record['text']
    words = tuple(found.span() for found in re.finditer(r'\S+', text))
    marks = []
    for span in ('span1', 'span2'):
        stated, first = record[f'{span}_text'], record[f'{span}_index']
        start, end = word_places.between(words, first, min(first + len(stated.split()), len(words)))
        marks.append(Mark(0, *word_places.narrowed(text, start, end, stated)))
    return [MarkedExample(_id(record, name), (text,), tuple(marks), record['label'])]


def question(record, name, language) -> list[QuestionExample]:
    """SQuAD. (Questions without an answer have empty lists.)"""
    context, answers = record['context'], record['answers']
    found = zip(answers['text'], answers['answer_start'], strict=True)
    checked = tuple(checked_answer(text, start, context) for text, start in found)
    return [QuestionExample(record['id'], record['question'], context, checked)]


def tagged(column: str, scheme: str) -> Callable:
    """Words with tags; the text is theirs with a space between, unless it is stated."""

    def examples(record, name, language):
        words = record['tokens']
        if not words:
            raise BadRow('no word')
        text = record.get('text')
        places = text and word_places.located(words, text)
        if not places:
            text, places = word_places.joined(words)
        tags, _ = tag_schemes.converted(record[column], scheme, 'bio')
        return [TaggedExample(record.get('idx') or name, text, places, tags)]

    return examples

"""Building questions from rows and from SQuAD's JSON."""

import json
import re

import pytest

from bert_jax.errors import UserError
from bert_jax.labels.examples import Answer, QuestionExample
from tests.labels.reading import read, read_all, write_json_lines, write_lines


def write_squad(path, *questions, context='Ann was born in York in 1900.'):
    paragraphs = [{'context': context, 'qas': list(questions)}]
    path.write_text(json.dumps({'data': [{'title': 't', 'paragraphs': paragraphs}]}))
    return (str(path),)


def test_squad_questions_with_and_without_answers(tmp_path):
    path = write_squad(
        tmp_path / 'a.json',
        {'id': 'a', 'question': 'Where?', 'answers': [{'text': 'York', 'answer_start': 16}] * 2},
        {'id': 'b', 'question': 'Why?', 'answers': [], 'is_impossible': True},
        {'id': 'c', 'question': 'When?', 'answers': [{'text': '1900', 'answer_start': 24}]},
    )
    found = read_all('question_answering', train=path, format='squad')
    answers = {one.id: one.answers for one in found}
    assert answers == {'a': (Answer('York', 16),) * 2, 'b': (), 'c': (Answer('1900', 24),)}
    raw = write_squad(tmp_path / 'b.json', {'id': 'd', 'question': 'Who?'})
    splits = read('question_answering', train=path, dev=path, test=raw, format='squad')
    assert [one.answers for one in splits.test] == [None]
    with pytest.raises(UserError, match="question d: the question has no 'answers'"):
        read('question_answering', train=raw, format='squad')


def test_an_answer_that_is_not_in_the_context_is_misplaced(tmp_path):
    answer = {'text': 'Leeds', 'answer_start': 16}
    path = write_squad(tmp_path / 'a.json', {'id': 'a', 'question': 'Where?', 'answers': [answer]})
    message = "question a: the context at 16 is 'York ', not the answer 'Leeds'"
    with pytest.raises(UserError, match=message):
        read('question_answering', train=path, format='squad')
    path = write_json_lines(
        tmp_path / 'a.jsonl', {'question': 'Where?', 'context': 'York', 'answers': 'Rome'}
    )
    with pytest.raises(UserError, match="a.jsonl:1: answer 'Rome' is not in the context"):
        read('question_answering', train=path, format='jsonl')


def test_a_file_in_another_format_than_squad_is_an_error(tmp_path):
    texts = '[]', '{}', '{"data": 3}', '{"data": [{"paragraphs": [{"qas": []}, {"qas": [1]}]}]}'
    for text in ('no json', '[' * 100_000, *texts):
        (tmp_path / 'a.json').write_text(text)
        with pytest.raises(UserError, match=r'a.json is not (in the format of SQuAD|valid JSON)'):
            read('question_answering', train=(f'{tmp_path}/a.json',), format='squad')


def test_answers_in_rows_are_searched_or_have_offsets(tmp_path):
    path = write_lines(
        tmp_path / 'a.tsv',
        'question\tcontext\tanswers',
        'Where?\tIn York or York.\tYork',
        'Why?\tIn York.\t',
    )
    splits = read('question_answering', train=path, dev_fraction=0.5)
    assert sorted(splits.train + splits.dev) == [
        QuestionExample('a.tsv:2', 'Where?', 'In York or York.', (Answer('York', 3),)),
        QuestionExample('a.tsv:3', 'Why?', 'In York.', ()),
    ]
    assert splits.report['answers_found_several_times'] == 1
    answers = {'text': ['York', 'York'], 'start': [3, 11]}
    record = {'question': 'Where?', 'context': 'In York or York.', 'answers': answers}
    path = write_json_lines(tmp_path / 'a.jsonl', record, record)
    columns = {'answers': ('answers.text',), 'answer_starts': ('answers.start',)}
    found = read_all('question_answering', columns, train=path, format='jsonl')
    assert found[0].answers == (Answer('York', 3), Answer('York', 11))


def test_answers_as_word_numbers_of_contexts_in_another_file(tmp_path):
    contexts = write_lines(tmp_path / 'c.tsv', 's1\tAnn was born in York .', 's2\tBo sat .')
    path = write_lines(tmp_path / 'a.tsv', 's1\tWhere?\t4\t7:3 4', 's1\tWho?\t0\t7:0 2')
    columns = {'context': '0', 'question': '1', 'answers': ('2', '3')}
    settings = dict(contexts=contexts[0], header=False, units='words', dev_fraction=0.5)
    splits = read('question_answering', columns, train=path, **settings)
    found = sorted(splits.train + splits.dev)
    assert found[0].answers == (Answer('York', 16), Answer('in York', 13))
    assert found[1].answers == (Answer('Ann', 0), Answer('Ann was born', 0))
    assert splits.report['answers_with_gaps'] == 1
    path = write_lines(tmp_path / 'a.tsv', 's1\tWhere?\t9\t7:3 4')
    with pytest.raises(
        UserError, match='misplaced: .*words 9 to 10 are not in a sentence of 6 words'
    ):
        read('question_answering', columns, train=path, **settings)
    path = write_lines(tmp_path / 'a.tsv', 's3\tWhere?\t9\t7:3 4')
    with pytest.raises(UserError, match="context 's3' is not in the file data.contexts"):
        read('question_answering', columns, train=path, **settings)


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'question': None}, 'the question or the context is not a text'),
        ({'question': ['q?']}, 'the question or the context is not a text'),
        ({'answers': 'York'}, "an answer lacks 'text' or 'answer_start'"),
        ({'answers': [7]}, "an answer lacks 'text' or 'answer_start'"),
        ({'answers': None}, "the question has no 'answers'"),
        ({'answers': [{'text': 7, 'answer_start': 3}]}, 'answer 7 is not a string'),
        ({'answers': [{'text': 'York', 'answer_start': None}]}, "'None' is not an integer"),
        ({'answers': [{'text': 'York', 'answer_start': 3.5}]}, "'3.5' is not an integer"),
        ({'answers': [{'text': 'York', 'answer_start': -1}]}, "the context at -1 is ''"),
        ({'is_impossible': 'false'}, 'is_impossible is "false", not true or false'),
    ],
)
def test_an_odd_question_of_squad_is_malformed_or_misplaced(tmp_path, changes, message):
    good = {'id': [1], 'question': 'q?', 'answers': [{'text': 'York', 'answer_start': '3'}]}
    impossible = {'question': 'r?', 'answers': [{'text': '', 'answer_start': -1}]}
    for odd in (good | changes, 'q?'):
        paragraph = {'context': 'In York', 'qas': [good, impossible, odd]}
        (tmp_path / 'a.json').write_text(json.dumps({'data': [{'paragraphs': [paragraph]}]}))
        shown = message if isinstance(odd, dict) else 'the question is not a JSON object'
        with pytest.raises(UserError, match=f'1 of 3 records are .*{re.escape(shown)}'):
            read('question_answering', train=(f'{tmp_path}/a.json',))

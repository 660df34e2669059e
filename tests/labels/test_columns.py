"""Columns that are not used are named once; a name of columns can join several."""

import csv
import json

import pytest

from bert_jax.errors import UserError
from bert_jax.labels import retrieval_sets
from tests.labels import beir
from tests.labels.reading import read, write_json_lines, write_lines

NOT_USED = 'columns that are not used: '
ALPACA = [
    {'instruction': 'Add.', 'input': '1 2', 'output': '3'},
    {'instruction': 'Sing.', 'input': '', 'output': 'La'},
    {'instruction': 'Hum.', 'input': None, 'output': 'Mm'},
]


def not_used(splits):
    (line,) = [line for line in splits.report.lines() if line.startswith(NOT_USED)] or [NOT_USED]
    return line.removeprefix(NOT_USED)


@pytest.mark.parametrize(
    ('kind', 'columns', 'unused'),
    [
        ('instructions', {'prompt': 'instruction', 'answer': 'output'}, 'input'),
        ('instructions', {'prompt': '{instruction} {input}', 'answer': 'output'}, ''),
        ('generation', {'text': 'instruction', 'target': 'output'}, 'input'),
        ('embedding', {'texts': ('instruction', 'output'), 'label': ''}, 'input'),
        ('embedding', {'texts': ('0', '-1'), 'label': ''}, 'input'),
        ('classification', {'text': 'instruction', 'label': 'output', 'id': 'input'}, ''),
    ],
)
def test_columns_without_a_use_are_named(kind, columns, unused, tmp_path):
    rows = ALPACA[:2] if 'id' in columns else ALPACA
    train = write_json_lines(tmp_path / 'a.jsonl', *rows)
    splits = read(kind, columns, train=train, dev=train, test=train)
    assert not_used(splits) == unused


def test_a_column_is_used_if_any_file_uses_it(tmp_path):
    train = write_lines(tmp_path / 'a.csv', 'text,label,x', 'a,b,1', 'c,d,2')
    test = write_lines(tmp_path / 'b.csv', 'text,y,answer', 'a,1,accept')
    splits = read('classification', train=train, test=test, dev_fraction=0.0)
    assert not_used(splits) == 'x, y'


def test_columns_of_words_are_named(tmp_path):
    conll = write_lines(tmp_path / 'a.conll', 'Ann NNP x B-PER', 'is VBZ y O')
    assert not_used(read('tagging', train=conll, dev_fraction=0.0)) == '1, 2'
    row = '1\tAnn\tann\tPROPN\t_\t_\t0\troot\t_\t_'
    conllu = write_lines(tmp_path / 'a.conllu', row, '')
    splits = read('tagging', {'tag': 'upos'}, train=conllu, dev_fraction=0.0, scheme='none')
    assert not_used(splits) == 'lemma, xpos, feats, head, deprel, deps'
    splits = read('parsing', train=conllu, dev_fraction=0.0)
    assert not_used(splits) == 'lemma, upos, xpos, feats, deps'
    rows = {'tokens': ['a'], 'ner_tags': ['O'], 'pos_tags': ['X'], 'id': '1'}
    lists = write_json_lines(tmp_path / 'a.jsonl', rows)
    splits = read('tagging', {'tags': 'ner_tags'}, train=lists, dev_fraction=0.0)
    assert not_used(splits) == 'pos_tags, id'


def test_a_template_joins_columns(tmp_path):
    train = write_json_lines(tmp_path / 'a.jsonl', *ALPACA)
    columns = {'prompt': r'{instruction}\n\n{input}', 'answer': 'output'}
    splits = read('instructions', columns, train=train, dev_fraction=0.0)
    assert [one.contents[0] for one in splits.train] == ['Add.\n\n1 2', 'Sing.', 'Hum.']
    with open(tmp_path / 'a.csv', 'w', newline='') as file:
        csv.writer(file).writerows([('t', 'b', 'y'), ('One', 'two, three', 'x')])
    train = (str(tmp_path / 'a.csv'),)
    columns = {'text': '{t}: {b}', 'label': 'y'}
    (example,) = read('classification', columns, train=train, dev_fraction=0.0).train
    assert example.texts == ('One: two, three',)
    columns = {'text': '{0} {1}', 'label': '2'}
    first, _ = read('classification', columns, train=train, dev_fraction=0.0).train
    assert first.texts == ('t b',)
    with pytest.raises(
        UserError, match=r"data\.columns\.text names column 'title', but .* t, b, y"
    ):
        read('classification', {'text': '{title}: {b}', 'label': 'y'}, train=train)


def test_fields_of_questions_and_retrieval_sets_that_are_not_read_are_named(tmp_path):
    question = {'id': 'a', 'question': 'Where?', 'answers': [], 'plausible_answers': []}
    article = {'title': 't', 'paragraphs': [{'context': 'In York.', 'qas': [question]}]}
    path = tmp_path / 'squad.json'
    path.write_text(json.dumps({'data': [article]}))
    splits = read('question_answering', train=(str(path),), dev=(str(path),), format='squad')
    assert f'{NOT_USED}plausible_answers' in splits.report.lines()

    folder = beir.write(tmp_path / 'set')
    assert retrieval_sets.read(str(folder), 'test').report.lines() == []
    with (folder / 'corpus.jsonl').open('a') as file:
        file.write('{"_id": "d9", "text": "x", "metadata": {"url": "u"}}\n')
    assert retrieval_sets.read(str(folder), 'test').report.lines() == [f'{NOT_USED}metadata']

"""Reading of predicates and their arguments: CoNLL-2005, CoNLL-2012, rows; bad files."""

import json

import pytest

from bert_jax.errors import UserError
from tests.labels.reading import read, read_all, write_lines

SENTENCE = [
    'The  DT - * (A0*',
    'girl NN - * *',
    'who  WP - (R-A0*) *',
    'sat  VBD sit (V*) *',
    'here RB - (AM-LOC*) *)',
    'said VBD say * (V*)',
    'so   RB  -   * (A1*)',
]
FIRST = ('O', 'O', 'B-R-A0', 'B-V', 'B-AM-LOC', 'O', 'O')
SECOND = ('B-A0', 'I-A0', 'I-A0', 'I-A0', 'I-A0', 'B-V', 'B-A1')


def conll(tmp_path, lines, columns=(), **settings):
    path = write_lines(tmp_path / 'a.conll', *lines)
    columns = {'predicate': '2'} | dict(columns)
    return read_all('semantic_roles', columns, train=path, format='conll', **settings)


def test_a_sentence_of_conll_2005_is_an_example_for_each_predicate(tmp_path):
    found = sorted(conll(tmp_path, [*SENTENCE, '', 'No - -', 'verb - -', '']))
    assert [(one.id, one.predicate, one.tags) for one in found] == [
        ('a.conll:1-3', 3, FIRST),
        ('a.conll:1-5', 5, SECOND),
    ]
    assert {one.text for one in found} == {'The girl who sat here said so'}
    assert found[0].words[1] == (4, 8)


def test_columns_of_conll_2012_are_named_by_number(tmp_path):
    lines = ['#begin document (x); part 000']
    for number, line in enumerate(SENTENCE):
        word, tag, sense, *roles = line.split()
        head = ['x', '0', str(number), word, tag, '(TOP*)', word.lower(), sense, '-', '-', '(PER*)']
        lines.append('   '.join([*head, *roles, '(0)']))
    columns = {'word': '3', 'predicate': '7', 'roles': '11'}
    found = sorted(conll(tmp_path, [*lines, '', '#end document'], columns))
    assert [(one.predicate, one.tags) for one in found] == [(3, FIRST), (5, SECOND)]


def test_rows_have_words_tags_and_the_index_of_the_predicate(tmp_path):
    row = {'words': ['The', 'girl', 'sat'], 'tags': ['B-A0', 'I-A0', 'B-V'], 'predicate': 2}
    path = write_lines(tmp_path / 'a.jsonl', json.dumps(row))
    (found,) = read_all('semantic_roles', train=path)
    assert (found.text, found.predicate, found.tags) == ('The girl sat', 2, ('B-A0', 'I-A0', 'B-V'))
    bad = [row | {'predicate': 3}, row | {'predicate': 'sat'}, row | {'words': ['The', ' ', 'sat']}]
    path = write_lines(tmp_path / 'b.jsonl', *map(json.dumps, [row, *bad]))
    splits = read('semantic_roles', train=path, dev_fraction=0.0, malformed_fraction=1.0)
    assert splits.report['malformed'] == 3
    assert 'it must be the index of one of 3 words' in splits.report.places['malformed'][0]


def test_roles_are_renamed_and_words_may_lack_them_to_predict(tmp_path):
    found = conll(tmp_path, SENTENCE, rename_labels=('A0=ARG0',))
    assert {one.tags[0] for one in found} == {'O', 'B-ARG0'}


@pytest.mark.parametrize(
    ('line', 'message'),
    [
        ('said VBD say (V*', 'the role V does not end'),
        ('said VBD say *)', 'ends no role'),
        ('said VBD say *A1)', 'ends no role'),
        ('said VBD say (A0(V*))', 'the role V is inside A0'),
        ('said VBD say O', "'O' at word 0 is not a cell of roles"),
        ('said VBD say (A0*)\nit PRP - (V*)', 'the role V is not at the predicate, word 0'),
        ('said VBD say', '1 predicates, but 0 columns of roles from column 3 on'),
        ('said VBD', 'its lines have 2 columns; set data.columns.word and data.columns.predicate'),
    ],
)
def test_a_bad_sentence_is_one_line(tmp_path, line, message):
    with pytest.raises(UserError, match='1 of 1 records are malformed') as caught:
        conll(tmp_path, [*line.split('\n'), ''])
    assert message in str(caught.value)


def test_settings_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(UserError, match="data.columns.predicate is 'verb'; for CoNLL, set it"):
        conll(tmp_path, SENTENCE, {'predicate': 'verb'})
    with pytest.raises(UserError, match='data.documents is True, but predicates'):
        conll(tmp_path, SENTENCE, documents=True)
    row = {'words': ['a'], 'tags': ['A0'], 'predicate': 0}
    path = write_lines(tmp_path / 'a.jsonl', json.dumps(row))
    with pytest.raises(UserError, match="data.scheme='none' describes no roles"):
        read_all('semantic_roles', train=path, scheme='none')

"""Reading tables, JSON files and plain text files labeled by their names."""

import gzip
import json
import lzma

import pytest

from bert_jax.errors import UserError
from bert_jax.labels.examples import Mark, MarkedExample, TextExample
from tests.labels.reading import read, read_all, write_json_lines, write_lines


def test_csv_fields_may_contain_quotes_and_line_breaks(tmp_path):
    path = write_lines(
        tmp_path / 'a.csv', 'id,text,label', '1,"One, ""two""\nthree",a', '', "2,plain 's,b", ''
    )
    assert read_all('classification', {'id': 'id'}, train=path, format='csv') == [
        TextExample('1', ('One, "two"\nthree',), 'a'),
        TextExample('2', ("plain 's",), 'b'),
    ]


def test_tsv_keeps_quotes_and_columns_can_be_given_by_index(tmp_path):
    path = write_lines(tmp_path / 'a.tsv', 'a\t"Quoted\tb "c\r', 'd\tx\ty\r', encoding='utf-8-sig')
    columns = {'text': '1', 'text2': '-1', 'label': '0'}
    found = read_all('classification', columns, train=path, header=False)
    assert [one.texts for one in found] == [('"Quoted', 'b "c'), ('x', 'y')]
    assert [one.label for one in found] == ['a', 'd']
    assert [one.id for one in found] == ['a.tsv:1', 'a.tsv:2']


def test_quotes_and_separators_can_be_set(tmp_path):
    path = write_lines(tmp_path / 'a.csv', 'text;label', '"a; b";x', 'c;y')
    found = read_all('classification', train=path, format='csv', separator=';')
    assert [one.texts for one in found] == [('a; b',), ('c',)]
    path = write_lines(tmp_path / 'b.tsv', 'text\tlabel', '"a\tb"\tx', 'c\ty')
    found = read_all('classification', train=path, quotes='yes')
    assert [one.texts for one in found] == [('a\tb',), ('c',)]


def test_several_files_in_latin_1_some_compressed(tmp_path):
    (tmp_path / 'a.tsv.gz').write_bytes(gzip.compress('text\tlabel\ncafé\t1\n'.encode('latin-1')))
    (tmp_path / 'c.csv.xz').write_bytes(lzma.compress(b'text,label\nbeer,1\n'))
    write_lines(tmp_path / 'b.tsv', 'label\ttext', '2\tthé', encoding='latin-1')
    found = read_all(
        'classification',
        train=(f'{tmp_path}/*.gz', f'{tmp_path}/b.tsv', f'{tmp_path}/c.csv.xz'),
        encoding='latin-1',
        rename_labels=('1=one',),
    )
    assert [(one.texts[0], one.label) for one in found] == [
        ('café', 'one'),
        ('thé', '2'),
        ('beer', 'one'),
    ]


def test_text_in_another_encoding_is_malformed(tmp_path):
    path = write_lines(tmp_path / 'a.tsv', 'text\tlabel', 'café\t1', 'tea\t2', encoding='latin-1')
    with pytest.raises(
        UserError,
        match='1 of 2 records are malformed: .*a.tsv:2: the text cannot .* set data.encoding',
    ):
        read('classification', train=path)


def test_half_a_surrogate_pair_is_malformed(tmp_path):
    path = write_lines(tmp_path / 'a.jsonl', '{"text": "\\ud83d", "label": "x"}')
    with pytest.raises(UserError, match='a.jsonl:1: the text cannot be decoded'):
        read('classification', train=path, format='jsonl')


def test_json_lines_with_nested_columns_and_values_that_are_not_strings(tmp_path):
    path = write_json_lines(
        tmp_path / 'a.jsonl',
        {'a': {'text': 'One.'}, 'label': True, 'n': 7},
        {'a': {'text': 'Two.'}, 'label': 0, 'n': 8},
    )
    found = read_all('classification', {'text': 'a.text', 'id': 'n'}, train=path, format='jsonl')
    assert found == [TextExample(7, ('One.',), 'true'), TextExample(8, ('Two.',), '0')]


def test_json_list_of_objects_with_words_and_marks(tmp_path):
    record = {'token': ['Al', 'runs', 'Ox', 'Ltd'], 's': 0, 't': 0, 'o': 2, 'p': 3, 'relation': 'r'}
    (tmp_path / 'a.json').write_text(json.dumps([record, 'x', record]))
    columns = {'text': 'token', 'label': 'relation', 'marks': ('s:t', 'o:p')}
    settings = dict(train=(f'{tmp_path}/a.json',), format='json', ends='inclusive')
    with pytest.raises(
        UserError, match='1 of 3 records are malformed: .*a.json:2: not a JSON object'
    ):
        read('relation', columns, **settings)
    found = read_all('relation', columns, malformed_fraction=0.5, **settings)
    marks = (Mark(0, 0, 2), Mark(0, 8, 14))
    assert found[0] == MarkedExample('a.json:1', ('Al runs Ox Ltd',), marks, 'r')
    for text, message in (('{', 'a.json is not valid JSON'), ('{}', 'a.json is not a JSON list')):
        (tmp_path / 'a.json').write_text(text)
        with pytest.raises(UserError, match=message):
            read('relation', columns, **settings)


def test_the_name_of_a_file_or_folder_is_the_class(tmp_path):
    write_lines(tmp_path / 'x.pos', 'Good.', '', ' Fine. ')
    write_lines(tmp_path / 'x.neg', 'Bad.')
    found = read_all('classification', train=(f'{tmp_path}/x.*',), format='lines')
    assert [(one.texts[0], one.label) for one in found] == [
        ('Bad.', 'neg'), ('Good.', 'pos'), ('Fine.', 'pos')
    ]  # fmt: skip
    for name in ('pos', 'neg'):
        (tmp_path / name).mkdir()
        write_lines(tmp_path / name / '1.txt', f'Text\n\nof {name}')
    found = read_all(
        'classification', train=(f'{tmp_path}/*/*.txt',), format='files', label_from='folder'
    )
    assert {(one.texts[0], one.label) for one in found} == {
        ('Text\n\nof pos', 'pos'),
        ('Text\n\nof neg', 'neg'),
    }
    assert {one.id for one in found} == {'pos/1.txt', 'neg/1.txt'}


def test_an_unreadable_file_is_an_error(tmp_path):
    (tmp_path / 'a.tsv.gz').write_bytes(gzip.compress(b'text')[:9])
    with pytest.raises(UserError, match=r'cannot read .*a.tsv.gz'):
        read('classification', train=(f'{tmp_path}/a.tsv.gz',))


@pytest.mark.parametrize('first', [0, 1])
def test_some_rows_have_further_columns(first, tmp_path):
    """STS-B: some rows name the sources of both sentences at their end."""
    rows = ['news\t3.0\tA dog runs.\tA dog walks.', 'forum\t4.0\tSo.\tSo so.\thttp://a\thttp://b']
    train = write_lines(
        tmp_path / 'a.tsv', rows[first], rows[1 - first], rows[0].replace('dog', 'x')
    )
    columns = {'label': '1', 'text': '2', 'text2': '3'}
    with pytest.raises(UserError, match='columns instead of .*set data.optional_columns=2'):
        read('regression', columns, train=train)
    found = read_all('regression', columns, train=train, optional_columns=2)
    assert sorted(one.label for one in found) == [3.0, 3.0, 4.0]
    assert {one.texts for one in found} > {('So.', 'So so.')}
    with pytest.raises(UserError, match='columns instead of'):
        read('regression', columns, train=train, optional_columns=1)


def test_rows_may_lack_the_last_columns_of_a_header(tmp_path):
    lines = ['label\ttext\tsource', 'a\tOne.\tx', 'b\tTwo.', 'c']
    train = write_lines(tmp_path / 'a.tsv', *lines)
    splits = read(
        'classification', train=train, optional_columns=1, malformed_fraction=0.4, dev_fraction=0.0
    )
    assert [one.texts for one in splits.train] == [('One.',), ('Two.',)]
    assert splits.report['malformed'] == 1

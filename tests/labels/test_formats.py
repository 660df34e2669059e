"""Which format a file has, and what its first row is."""

import json

import pytest

from bert_jax.errors import UserError
from bert_jax.labels.examples import TextExample
from tests.labels.reading import read, read_all, write_json_lines, write_lines

ANSWERS = [{'text': 'b', 'answer_start': 2}]
QUESTIONS = [{'question': 'q?', 'answers': ANSWERS}, {'question': 'r?', 'answers': ANSWERS}]
SQUAD = {'data': [{'paragraphs': [{'context': 'a b', 'qas': QUESTIONS}]}]}
ROW = {'text': 'a', 'label': 'x', 'tokens': ['a'], 'tags': ['O']}


@pytest.mark.parametrize(
    ('kind', 'name', 'lines'),
    [
        ('classification', 'a.csv', ['text,label', 'a,x', 'b,y']),
        ('classification', 'a.CSV', ['text,label', 'a,x', 'b,y']),
        ('classification', 'a.txt', ['text\tlabel', 'a\tx', 'b\ty']),
        ('classification', 'a.jsonl', [json.dumps(ROW), '{"text": "b", "label": "y"}']),
        ('classification', 'a.json', [json.dumps(ROW), '{"text": "b", "label": "y"}']),
        ('classification', 'a.json', [json.dumps({'data': [ROW, ROW | {'text': 'b'}]}, indent=1)]),
        ('classification', 'a.label', ['x a', 'y b']),
        ('classification', 'a.xml', ['<r><p label="x"><text>a</text></p><p label="y">b</p></r>']),
        ('tagging', 'train', ['a O', '', 'b B-X']),
        ('tagging', 'a.tsv', ['a\tO', '', 'b\tB-X']),
        ('tagging', 'a.json', [json.dumps([ROW, ROW | {'tokens': ['b']}])]),
        ('question_answering', 'a.json', [json.dumps(SQUAD, indent=1)]),
        ('question_answering', 'a.csv', ['question,context,answers', 'q?,a b,b', 'r?,a b,b']),
    ],
)  # fmt: skip
def test_the_format_is_that_of_the_file_name_or_of_the_problem(tmp_path, kind, name, lines):
    assert len(read_all(kind, train=write_lines(tmp_path / name, *lines))) == 2


def test_files_of_several_formats_are_read_together(tmp_path):
    train = write_lines(tmp_path / 'a.csv', 'text,label', 'a,x', 'c,y')
    dev = write_json_lines(tmp_path / 'b.jsonl', {'text': 'b', 'label': 'x'})
    splits = read('classification', train=train, dev=dev)
    assert splits.dev == [TextExample('b.jsonl:1', ('b',), 'x')]


def test_columns_given_by_number_imply_that_there_is_no_header(tmp_path):
    path = write_lines(tmp_path / 'a.tsv', 'x\tone', 'y\ttwo', 'x\tthree', 'y\tfour')
    columns = {'text': '1', 'label': '0'}
    assert len(read_all('classification', columns, train=path)) == 4
    assert len(read_all('classification', columns, train=path, header=True)) == 3
    with pytest.raises(UserError, match=r"'label', but .* columns 0, 1 .* set data.header=True to"):
        read('classification', {'text': '1'}, train=path)
    named = write_lines(tmp_path / 'b.csv', ',0,1', '0,x,one', '1,y,two')  # of pandas
    found = read_all('classification', columns, train=named)
    assert sorted(one.texts[0] for one in found) == ['one', 'two']


def test_a_header_read_as_a_row_is_an_error_and_a_repeated_one_is_skipped(tmp_path):
    rows = [f'{name}\ttext {name} {n}' for n in range(5) for name in 'xy']
    path = write_lines(tmp_path / 'a.tsv', 'label\ttext', *rows, 'label\ttext', *rows)
    columns = {'text': '1', 'label': '0'}
    splits = read('classification', train=path, dev_fraction=0.0)
    assert {one.label for one in splits.train} == {'x', 'y'}
    assert splits.report['repeated_headers'] == 1
    path = write_lines(tmp_path / 'b.tsv', 'label\ttext', *rows)
    with pytest.raises(
        UserError, match="b.tsv:1 is the only row of class 'label'; set data.header"
    ):
        read('classification', columns, train=path)
    assert len(read_all('classification', columns, train=path, header=False)) == 11


def test_empty_names_and_rows_of_spreadsheets_are_read(tmp_path):
    path = write_lines(tmp_path / 'a.csv', 'label, text ,,', 'x,a,,', ',,,', 'y,b,,')
    found = read_all('classification', train=path)
    assert sorted((one.texts[0], one.label) for one in found) == [('a', 'x'), ('b', 'y')]


@pytest.mark.parametrize(
    ('encoded', 'message'),
    [
        ('text\tlabel\n'.encode('utf-16'), 'a.tsv is utf-16 text, .* set data.encoding=utf-16 '),
        ('Tëxt\tlabel\n'.encode('latin-1'), 'a.tsv:1: the text cannot be decoded'),
        (b'text\n', r'a.tsv \(format tsv, the first row is the header: text\); set data.format'),
        (b'', 'a.tsv: the file is empty'),
        (b'a\x1b;b\nb;c\n', "names column 'label', but .* has columns a�;b "),
    ],
)
def test_a_file_that_is_not_a_table_is_one_line(tmp_path, encoded, message):
    (tmp_path / 'a.tsv').write_bytes(encoded)
    with pytest.raises(UserError, match=message) as caught:
        read('classification', train=(str(tmp_path / 'a.tsv'),))
    assert str(caught.value).isprintable()


@pytest.mark.parametrize('line_end', ['\n', '\r\n', '\r'])
def test_labeled_lines_of_trec_and_fasttext(tmp_path, line_end):
    lines = ['ENTY:animal What is a cat ?', '', '__label__NUM How many ?']
    (tmp_path / 'a.label').write_bytes(line_end.join(lines).encode())
    path = (str(tmp_path / 'a.label'),)
    found = read_all('classification', train=path)
    assert sorted((one.label, one.texts[0]) for one in found) == [
        ('ENTY:animal', 'What is a cat ?'),
        ('NUM', 'How many ?'),
    ]
    found = read_all('classification', {'label': 'coarse'}, train=path)
    assert {one.label for one in found} == {'ENTY', 'NUM'}
    path = write_lines(tmp_path / 'b.label', '__label__a __label__b text', 'word', *['x a'] * 8)
    with pytest.raises(UserError, match='2 of 10 .*b.label:1: the line has several .*empty text'):
        read('classification', train=path)

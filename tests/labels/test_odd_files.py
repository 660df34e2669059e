"""Files as spreadsheets and other libraries write them."""

import json

import pytest

from bert_jax.errors import UserError
from tests.labels.reading import read, read_all


def texts(path, content: str) -> list[tuple[str, str]]:
    path.write_bytes(content.encode())
    found = read_all('classification', train=(str(path),))
    return [(example.texts[0], example.label) for example in found]


@pytest.mark.parametrize(
    ('name', 'content'),
    [
        ('x.csv', 'sep=;\r\ntext;label\r\n"a; b";x\r\nc;y\r\n'),
        ('x.csv', '"sep=;"\ntext;label\n"a; b";x\nc;y\n'),
        ('x.tsv', 'sep=;\n"text";"label"\n"a; b";"x"\n"c";"y"\n'),
        ('x.tsv', 'sep=\t\ntext\tlabel\na; b\tx\nc\ty\n'),
    ],
)
def test_the_line_in_which_excel_states_the_separator_is_obeyed(name, content, tmp_path):
    assert texts(tmp_path / name, content) == [('a; b', 'x'), ('c', 'y')]


def test_rows_after_the_separator_line_keep_their_line_numbers(tmp_path):
    (tmp_path / 'x.csv').write_text('sep=;\ntext;label\na;x\n"b;y\nc;x\n')
    with pytest.raises(UserError, match=r'x\.csv:4: the quote that opens a field'):
        read('classification', train=(f'{tmp_path}/x.csv',))
    (tmp_path / 'x.csv').write_text('sep=;')
    with pytest.raises(UserError, match='no examples'):
        read('classification', train=(f'{tmp_path}/x.csv',))


def test_the_error_for_another_separator_names_it(tmp_path):
    with pytest.raises(UserError, match=r"columns text;label .*; set data.separator=';'"):
        texts(tmp_path / 'x.csv', 'text;label\na;x\n')


@pytest.mark.parametrize('encoding', ['utf-16-le', 'utf-16-be', 'utf-32-le', 'utf-16', 'utf-8'])
def test_a_byte_order_mark_is_skipped_in_every_encoding(encoding, tmp_path):
    mark = '' if encoding == 'utf-16' else '\ufeff'  # Python writes that one
    content = f'{mark}text,label\na,x\nc,y\n'
    (tmp_path / 'x.csv').write_bytes(content.encode(encoding))
    found = read_all('classification', train=(f'{tmp_path}/x.csv',), encoding=encoding)
    assert [example.texts for example in found] == [('a',), ('c',)]


def test_nan_in_json_is_a_missing_value_and_not_a_class(tmp_path):
    content = '{"text": "a", "label": NaN}\n{"text": "b", "label": "x"}\n'
    with pytest.raises(UserError, match=r"x\.jsonl:1: column 'label' has an empty label"):
        texts(tmp_path / 'x.jsonl', content)
    with pytest.raises(UserError, match=r'1 of 2 records .*x\.json:1: column .label. has an empty'):
        texts(tmp_path / 'x.json', f'[{content.strip().replace(chr(10), ",")}]')


def test_a_list_in_a_file_of_json_lines_is_told_to_be_one(tmp_path):
    with pytest.raises(UserError, match=r'not a JSON object; data\.format=json reads a list'):
        texts(tmp_path / 'x.jsonl', '[{"text": "a", "label": "x"}]')


def test_answers_are_read_as_the_library_datasets_writes_them(tmp_path):
    answers = (
        '{"text": ["cow", "the cow"], "answer_start": [4, 0]}',
        '[{"text": "cow", "answer_start": 4}, {"text": "the cow", "answer_start": 0}]',
        '{"text": [], "answer_start": []}',
        '[]',
    )
    lines = [
        f'{{"id": "{n}", "question": "q", "context": "the cow", "answers": {own}}}\n'
        for n, own in enumerate(answers)
    ]
    (tmp_path / 'x.jsonl').write_text(''.join(lines))
    found = read_all('question_answering', {'id': 'id'}, train=(f'{tmp_path}/x.jsonl',))
    both = (('cow', 4), ('the cow', 0))
    assert [example.answers for example in found] == [both, both, (), ()]


def test_elements_without_an_end_do_not_swallow_the_next_ones(tmp_path):
    content = '<p label=x>one & two<p label=y>three <b>four</b><p label=x>five'
    assert texts(tmp_path / 'x.html', content) == [
        ('one & two', 'x'),
        ('three four', 'y'),
        ('five', 'x'),
    ]
    content = f'<doc>{content}</doc>'
    assert len(texts(tmp_path / 'x.html', content)) == 3


@pytest.mark.parametrize('break_', ['\u2028', '\u2029', '\x85', '\x0b'])
@pytest.mark.parametrize('name', ['x.json', 'x.jsonl', 'x.csv', 'x.tsv', 'x.label'])
def test_only_line_feeds_end_lines(name, break_, tmp_path):
    rows = [(f'a fine{break_}film', 'x'), ('b', 'y')]
    content = {
        'x.csv': 'text,label\n' + ''.join(f'{text},{label}\n' for text, label in rows),
        'x.tsv': 'text\tlabel\n' + ''.join(f'{text}\t{label}\n' for text, label in rows),
        'x.label': ''.join(f'{label} {text}\n' for text, label in rows),
    }.get(name) or ''.join(
        json.dumps({'text': text, 'label': label}, ensure_ascii=False).replace(
            json.dumps(break_)[1:-1], break_ if break_ > ' ' else json.dumps(break_)[1:-1]
        )
        + '\n'
        for text, label in rows
    )
    assert texts(tmp_path / name, content) == rows


@pytest.mark.parametrize('name', ['x.csv', 'x.tsv', 'x.json', 'x.jsonl', 'x.conll', 'x.ann'])
def test_carriage_returns_end_lines_in_files_without_line_feeds(name, tmp_path):
    content = {
        'x.csv': 'text,label\n"a, b",x\nc,y\n',
        'x.tsv': 'text\tlabel\na\tx\nc\ty\n',
        'x.conll': 'Anna B-PER\nsleeps O\n\nBob B-PER\n',
        'x.ann': 'T1\tPER 0 4\tAnna\nT2\tPER 12 15\tBob\n',
    }.get(name, '{"text": "a", "label": "x"}\n{"text": "c", "label": "y"}\n')
    (tmp_path / name).write_bytes(content.replace('\n', '\r').encode())
    (tmp_path / 'x.txt').write_bytes(b'Anna sleeps\rBob\r')
    kind = {'x.conll': 'tagging', 'x.ann': 'spans'}.get(name, 'classification')
    assert len(read_all(kind, train=(f'{tmp_path}/{name}',))) == 2

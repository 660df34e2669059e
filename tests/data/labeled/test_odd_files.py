"""Files as spreadsheets and other libraries write them."""

import pytest

from bert_jax.errors import UserError
from tests.data.labeled.reading import read, read_all


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
    with pytest.raises(UserError, match=r"x\.jsonl:1: column 'label' is null"):
        texts(tmp_path / 'x.jsonl', content)
    with pytest.raises(UserError, match=r'1 of 2 records .*x\.json:1: column .label. is null'):
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

"""Lists that other programs write into cells of CSV and TSV."""

import csv
import json

import pytest

from bert_jax.errors import UserError
from bert_jax.labels import cells
from tests.labels.reading import read, write_json_lines, write_lines


def write_csv(path, *rows):
    with open(path, 'w', newline='') as file:
        csv.writer(file).writerows(rows)
    return (str(path),)


@pytest.mark.parametrize(
    ('text', 'value'),
    [
        ("['pos', 'neg']", ['pos', 'neg']),
        ("['it\\'s', \"it's\", 'ü']", ["it's", "it's", 'ü']),
        ('["pos", "n\\u00e9g", null, true]', ['pos', 'nég', None, True]),
        ("('a', 'b')", ['a', 'b']),
        ("{'a'}", ['a']),
        ('set()', []),
        ("['pos' 'neg'\n 'x y']", ['pos', 'neg', 'x y']),  # NumPy
        ('[ 1  0 -1]', [1, 0, -1]),
        ('[0. 1. nan]', [0.0, 1.0, None]),
        ('[ True False]', [True, False]),
        ('[np.float64(0.5), -1.5]', [0.5, -1.5]),
        ('{"choices": ["a", "b"]}', ['a', 'b']),  # Label Studio
        (
            "{'text': array(['x y'], dtype=object), 'answer_start': array([515], dtype=int32)}",
            {'text': ['x y'], 'answer_start': [515]},
        ),
        ('[]', []),
        ('[a, b]', None),
        ('[1 2 ... 8 9]', None),
        ('[removed]', None),
        ("['a'] + ['b']", None),
        ('(a) b (c)', None),
        ('[' * 5000 + ']' * 5000, None),
        ('', None),
    ],
)
def test_a_list_is_read_as_other_programs_write_it(text, value):
    assert cells.read_list(text) == value


@pytest.mark.parametrize('suffix', ['csv', 'tsv', 'jsonl'])
def test_lists_in_cells_are_sets_of_classes(suffix, tmp_path):
    labels = ['[]', "['pos']", "['pos', 'neg']", '{"choices":["neg","pos"]}', 'neg', '']
    if suffix == 'jsonl':
        rows = [{'text': f't{n}', 'label': label} for n, label in enumerate(labels)]
        train = write_json_lines(tmp_path / 'a.jsonl', *rows)
    elif suffix == 'csv':
        rows = [(f't{n}', label) for n, label in enumerate(labels)]
        train = write_csv(tmp_path / 'a.csv', ('text', 'label'), *rows)
    else:
        rows = [f't{n}\t{label}' for n, label in enumerate(labels)]
        train = write_lines(tmp_path / 'a.tsv', 'text\tlabel', *rows)
    splits = read('multi_label', train=train, dev_fraction=0.0)
    found = [one.label for one in splits.train]
    assert found == [(), ('pos',), ('pos', 'neg'), ('neg', 'pos'), ('neg',), ()]


def test_a_list_that_cannot_be_read_is_not_a_class(tmp_path):
    train = write_csv(tmp_path / 'a.csv', ('text', 'label'), ('a', '[x, y]'), ('b', '[z]'))
    with pytest.raises(UserError, match=r"'\[x, y\]', which cannot be read as a list"):
        read('multi_label', train=train, dev_fraction=0.0)
    splits = read('multi_label', train=train, dev_fraction=0.0, lists='no')
    assert [one.label for one in splits.train] == [('[x', 'y]'), ('[z]',)]


@pytest.mark.parametrize('kind', ['classification', 'embedding'])
@pytest.mark.parametrize('cell', ["['pos']", '{"choices": ["pos", "neg"]}'])
def test_a_list_is_not_one_class(kind, cell, tmp_path):
    rows = [('text', 'label'), ('a', 'neg'), ('b', cell), ('c', 'pos'), ('d', 'neg')]
    for train in (
        write_csv(tmp_path / 'a.csv', *rows),
        write_csv(tmp_path / 'b.csv', rows[0], *rows[2:]),
        write_json_lines(tmp_path / 'a.jsonl', *({'text': t, 'label': x} for t, x in rows[1:])),
    ):
        with pytest.raises(UserError, match='1 of .* malformed: .*not one label; multi_label'):
            read(kind, {'label': 'label'}, train=train, dev_fraction=0.0)
    only = write_csv(tmp_path / 'c.csv', rows[0], rows[2], ('e', cell))
    with pytest.raises(UserError, match=r"column 'label' is \[.*, not a string"):
        read(kind, {'label': 'label'}, train=only, dev_fraction=0.0)


def test_columns_of_lists_are_documents_references_scores_and_answers(tmp_path):
    groups = [('q', 'd', 's'), ('one', "['a', 'b']", '[1, 0.5]'), ('two', '["c", "d"]', '[0, 1]')]
    train = write_csv(tmp_path / 'a.csv', *groups)
    splits = read('reranking', {'texts': ('q', 'd'), 'scores': ('s',)}, train=train, dev_fraction=0)
    assert sorted((one.texts, one.scores) for one in splits.train) == [
        (('one', 'a', 'b'), (1.0, 0.5)),
        (('two', 'c', 'd'), (0.0, 1.0)),
    ]
    assert splits.report.places['columns_read_as_lists'] == [f'{train[0]}: d, s']
    splits = read('generation', {'text': 'q', 'target': 'd'}, train=train, dev_fraction=0.0)
    assert [one.targets for one in splits.train] == [('a', 'b'), ('c', 'd')]
    answers = "{'text': array(['York'], dtype=object), 'answer_start': array([3], dtype=int32)}"
    train = write_csv(
        tmp_path / 'b.csv', ('question', 'context', 'answers'), ('Where?', 'In York', answers)
    )
    (example,) = read('question_answering', train=train, dev_fraction=0.0).train
    assert example.answers == (('York', 3),)
    choices = write_csv(tmp_path / 'c.csv', ('text', 'c', 'label'), ('q', "['a', 'b']", '1'))
    (example,) = read('multiple_choice', {'choices': ('c',)}, train=choices, dev_fraction=0).train
    assert (example.choices, example.label) == (('a', 'b'), 1)


@pytest.mark.parametrize(
    ('kind', 'columns'),
    [
        ('generation', {'target': 'other'}),
        ('embedding', {'texts': ('text', 'other'), 'label': ''}),
        ('classification', {'text': 'other', 'label': 'text'}),
        ('prompt', {'fields': ('other',), 'label': 'text'}),
    ],
)
def test_a_list_among_texts_is_refused_and_can_be_text(kind, columns, tmp_path):
    rows = [('text', 'other'), ('a', 'plain'), ('b', "['x', 'y']"), ('a', '[1]'), ('b', '[sic]')]
    train = write_csv(tmp_path / 'a.csv', *rows)
    with pytest.raises(UserError, match=r"1 of 4 records .*\['x', 'y'\].*data.lists=no reads it"):
        read(kind, columns, train=train, dev_fraction=0.0)
    splits = read(kind, columns, train=train, dev_fraction=0.0, lists='no')
    assert len(splits.train) == 4


def test_a_table_of_lists_without_lists_is_text(tmp_path):
    train = write_csv(tmp_path / 'a.csv', ('text', 'target'), ('[2, 1]', '[1, 2]'), ('[3]', '[3]'))
    with pytest.raises(
        UserError, match='columns read as lists: .*a.csv: text, target; data.lists=no'
    ):
        read('generation', train=train, dev_fraction=0.0)
    splits = read('generation', train=train, dev_fraction=0.0, lists='no')
    assert [one.targets for one in splits.train] == [('[1, 2]',), ('[3]',)]
    assert json.loads(splits.train[0].texts[0]) == [2, 1]

"""Several classes or numbers of a row: lists, separated text, or a column for each."""

import pytest

from bert_jax.errors import UserError
from bert_jax.labels.examples import LabelSetExample, NumbersExample
from tests.labels.reading import read, write_json_lines, write_lines

SETS = {'label': 'topics'}


def labels_of(splits):
    return [example.label for example in splits.train]


def read_sets(path, columns=None, **settings):
    return read('multi_label', SETS if columns is None else columns, train=path, **settings)


def test_a_separated_column_a_list_and_flags_give_the_same_examples(tmp_path):
    expected = [('a', 'b'), (), ('b',)]
    separated = write_lines(tmp_path / 'x.tsv', 'text\ttopics', 'one\ta, b', 'two\t', 'three\tb')
    lists = write_json_lines(
        tmp_path / 'x.jsonl',
        {'text': 'one', 'topics': ['a', 'b']},
        {'text': 'two', 'topics': []},
        {'text': 'three', 'topics': ['b', 'b']},
    )
    flags = write_lines(tmp_path / 'y.csv', 'text,a,b', 'one,1,true', 'two,0,0', 'three,0.0,1.0')
    for splits in (
        read_sets(separated, dev_fraction=0),
        read_sets(lists, dev_fraction=0),
        read_sets(flags, {'labels': ('a', 'b')}, dev_fraction=0),
    ):
        assert labels_of(splits) == expected
        assert all(isinstance(example, LabelSetExample) for example in splits.train)
        assert splits.report['examples_without_a_label'] == 1
    assert read_sets(lists, dev_fraction=0).report['repeated_labels'] == 1


def test_labels_are_renamed_and_rows_left_out_by_label(tmp_path):
    path = write_lines(tmp_path / 'x.tsv', 'text\ttopics', 'one\ta;b', 'two\tbad;a', 'three\tc')
    splits = read_sets(
        path,
        label_separator=';',
        rename_labels=('b=new',),
        skip_labels=('bad',),
        dev_fraction=0,
    )
    assert labels_of(splits) == [('a', 'new'), ('c',)]
    assert splits.report['skipped_by_label'] == 1


@pytest.mark.parametrize(
    ('rows', 'columns', 'message'),
    [
        ([{'text': 'x', 'topics': None}], SETS, "column 'topics' is null"),
        ([{'text': 'x', 'topics': 'a,,b'}], SETS, 'a label is empty'),
        ([{'text': 'x', 'topics': [1, 0, 1]}], SETS, 'a 0 or 1 for each class without its name'),
        ([{'text': 'x', 'topics': [['a']]}], SETS, 'a label of column'),
        ([{'text': 'x', 'a': 2}], {'labels': ('a',)}, "column 'a' is '2', not 0 or 1"),
        ([{'text': 'x', 'a': 1}], {'labels': ('a', 'b')}, "columns.labels names column 'b', but"),
        ([{'text': 'x', 'a': 1}], {'labels': ('a',), 'label': 'c'}, 'set one of them'),
    ],
)
def test_rows_that_cannot_be_read_are_refused(rows, columns, message, tmp_path):
    path = write_json_lines(tmp_path / 'x.jsonl', *rows)
    with pytest.raises(UserError, match=message) as caught:
        read_sets(path, columns, dev_fraction=0)
    assert '\n' not in str(caught.value)


@pytest.mark.parametrize(
    ('hidden', 'columns'),
    [
        (['text\ttopics', 'x\t', 'y\t'], SETS),
        (['text\ttopics', 'x\t-1', 'y\t-1'], SETS),
        (['text', 'x', 'y'], SETS),
        (['text\ta\tb', 'x\t-1\t-1', 'y\t-1\t-1'], {'labels': ('a', 'b')}),
        (['text', 'x', 'y'], {'labels': ('a', 'b')}),
    ],
)
def test_a_test_file_without_any_label_is_unlabeled(hidden, columns, tmp_path):
    train = ['text\ttopics\ta\tb', 'one\ta\t1\t0', 'two\t\t0\t0']
    splits = read_sets(
        write_lines(tmp_path / 'train.tsv', *train),
        columns,
        test=write_lines(tmp_path / 'test.tsv', *hidden),
        dev_fraction=0,
    )
    assert [example.label for example in splits.test] == [None, None]


def test_a_test_file_with_some_labels_has_empty_sets(tmp_path):
    train = write_lines(tmp_path / 'train.tsv', 'text\ttopics', 'one\ta', 'two\t')
    test = write_lines(tmp_path / 'test.tsv', 'text\ttopics', 'x\ta', 'y\t')
    splits = read_sets(train, test=test, dev_fraction=0)
    assert [example.label for example in splits.test] == [('a',), ()]


def test_few_shots_need_one_class_each(tmp_path):
    path = write_lines(tmp_path / 'x.tsv', 'text\ttopics', 'one\ta', 'two\tb')
    with pytest.raises(UserError, match=r'data\.shots needs examples with one class each'):
        read_sets(path, shots=1)


def test_numbers_are_read_from_columns_or_an_object(tmp_path):
    table = write_lines(tmp_path / 'x.csv', 'text,food,service', 'one,1,2.5', 'two,3,-4')
    objects = write_json_lines(
        tmp_path / 'x.jsonl',
        {'text': 'one', 'label': {'food': 1, 'service': 2.5}},
        {'text': 'two', 'label': {'food': 3, 'service': -4}},
    )
    expected = [(('food', 1.0), ('service', 2.5)), (('food', 3.0), ('service', -4.0))]
    columns = {'labels': ('food', 'service')}
    splits = read('multi_regression', columns, train=table, dev_fraction=0)
    assert labels_of(splits) == expected
    assert isinstance(splits.train[0], NumbersExample)
    assert labels_of(read('multi_regression', train=objects, dev_fraction=0)) == expected
    empty = write_lines(tmp_path / 'y.csv', 'text,food,service', 'one,1,', 'two,3,4')
    with pytest.raises(UserError, match='not a finite number'):
        read('multi_regression', columns, train=empty, dev_fraction=0)
    with pytest.raises(UserError, match='not an object of numbers'):
        read('multi_regression', {'label': 'food'}, train=table, dev_fraction=0)

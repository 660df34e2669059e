"""Labels that are unknown or written in another way: one rule for all files and kinds."""

import json

import pyarrow
import pytest
from pyarrow import parquet

from bert_jax.errors import UserError
from tests.labels.reading import read, write_json_lines, write_lines

LEFT_OUT = 'unknown_labels_left_out'


def write(folder, suffix, labels, name='train'):
    """Write a file of texts with labels; its texts are numbered."""
    path = folder / f'{name}.{suffix}'
    rows = [{'text': f'{name} {n}', 'label': label} for n, label in enumerate(labels)]
    if suffix == 'parquet':
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        return (str(path),)
    if suffix == 'jsonl':
        return write_json_lines(path, *rows)
    return write_lines(path, 'text,label', *(f'{row["text"]},{row["label"]}' for row in rows))


def write_classes(folder, numbers, names, name='train'):
    """Write a Parquet file with numbers of a ClassLabel, as `datasets` does."""
    features = {'label': {'_type': 'ClassLabel', 'names': names}}
    rows = [{'text': f'{name} {n}', 'label': number} for n, number in enumerate(numbers)]
    table = pyarrow.Table.from_pylist(rows)
    info = json.dumps({'info': {'features': features}})
    table = table.replace_schema_metadata({'huggingface': info})
    parquet.write_table(table, folder / f'{name}.parquet')
    return (str(folder / f'{name}.parquet'),)


def labels_of(examples):
    return [example.label for example in examples]


@pytest.mark.parametrize('names', [['no', 'yes', 'so'], ['0', '1', '2'], ['0', '1']])
@pytest.mark.parametrize('kind', ['classification', 'prompt', 'embedding', 'multi_label'])
def test_minus_1_of_a_class_label_is_left_out_in_every_split(kind, names, tmp_path):
    numbers = [0, -1, 1, -1, 0]
    files = {one: write_classes(tmp_path, numbers, names, one) for one in ('train', 'dev', 'test')}
    splits = read(kind, {'label': 'label'}, **files)
    known = [names[number] for number in numbers if number >= 0]
    known = [(name,) for name in known] if kind == 'multi_label' else known
    assert labels_of(splits.train) == labels_of(splits.dev) == labels_of(splits.test) == known
    assert splits.report[LEFT_OUT] == 6
    assert splits.report.places[LEFT_OUT][0].endswith('train.parquet:2')


@pytest.mark.parametrize('suffix', ['csv', 'jsonl'])
@pytest.mark.parametrize(
    ('labels', 'unknown'),
    [
        (['entailment', '-', 'neutral', '-1'], {'-', '-1'}),  # SNLI
        (['0', '1', '-1', '2'], {'-1'}),  # SNLI from `to_csv`
        (['0', '1', '-1'], set()),  # polarity
        (['-1', '1'], set()),
        (['-2', '-1', '0', '1', '2'], set()),
        (['+', '-'], set()),
        (['-', '0', '+'], set()),
        (['-1', '-1'], set()),
    ],
)
def test_what_is_unknown_follows_the_labels_of_training(labels, unknown, suffix, tmp_path):
    train = write(tmp_path, suffix, labels)
    splits = read('classification', train=train, dev=train, test=train)
    known = [label for label in labels if label not in unknown]
    assert labels_of(splits.train) == labels_of(splits.dev) == labels_of(splits.test) == known
    assert splits.report[LEFT_OUT] == 3 * len(unknown)


def test_a_label_that_training_lacks_is_unknown_in_other_splits(tmp_path):
    train = write(tmp_path, 'csv', ['0', '1'])
    dev = write(tmp_path, 'csv', ['0', '-1', '1'], 'dev')
    splits = read('classification', train=train, dev=dev, test=dev)
    assert labels_of(splits.dev) == labels_of(splits.test) == ['0', '1']
    with pytest.raises(UserError, match='the dev split is empty .*unknown labels left out: 2'):
        read('classification', train=train, dev=write(tmp_path, 'csv', ['-1', '-'], 'hidden'))


def test_a_renamed_mark_is_a_class(tmp_path):
    train = write(tmp_path, 'csv', ['agreed', '-'])
    splits = read('classification', train=train, dev_fraction=0, rename_labels=('-=open',))
    assert labels_of(splits.train) == ['agreed', 'open']


def test_rows_of_flags_and_of_choices_without_a_label_are_left_out(tmp_path):
    rows = ['text,a,b,red,blue,label', 'x,1,0,c,d,1', 'y,-1,-1,c,d,-1', 'z,0,1,c,d,0']
    path = write_lines(tmp_path / 'x.csv', *rows)
    splits = read('multi_label', {'labels': ('a', 'b')}, train=path, test=path, dev_fraction=0)
    assert labels_of(splits.train) == labels_of(splits.test) == [('a',), ('b',)]
    splits = read('multiple_choice', {'choices': ('red', 'blue')}, train=path, dev_fraction=0)
    assert labels_of(splits.train) == [1, 0]
    assert splits.report[LEFT_OUT] == 1


@pytest.mark.parametrize(
    ('suffix', 'labels', 'wanted'),
    [
        ('parquet', [0.0, 1.0, 2.0], ['0', '1', '2']),  # pandas, with a missing value elsewhere
        ('jsonl', [0.0, 1.0, 10.0], ['0', '1', '10']),
        ('csv', ['0.0', '1.0', '2.0'], ['0', '1', '2']),
        ('csv', ['1.0', '1.5', '2.0'], ['1.0', '1.5', '2.0']),
        ('csv', ['v1.0', 'v2.0', 'v2.0'], ['v1.0', 'v2.0', 'v2.0']),
    ],
)
def test_whole_numbers_are_named_as_integers(suffix, labels, wanted, tmp_path):
    train = write(tmp_path, suffix, labels)
    dev = write(tmp_path, 'csv', wanted, 'dev')
    splits = read('classification', train=train, dev=dev, test=train)
    assert labels_of(splits.train) == labels_of(splits.dev) == labels_of(splits.test) == wanted


def test_a_missing_label_is_an_empty_label(tmp_path):
    train = write(tmp_path, 'parquet', [0.0, None, 1.0])
    with pytest.raises(UserError, match=r"'label' has an empty label; data.skip_labels=\(''"):
        read('classification', train=train, dev_fraction=0)
    splits = read('classification', train=train, dev_fraction=0, skip_labels=('',))
    assert labels_of(splits.train) == ['0', '1']


@pytest.mark.parametrize(
    'lists',
    [
        [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]],
        [[0, 1], [1, 0]],
        [[0, 1], [0, 1]],
        [[True, False], [False, True]],
        [[True], [False]],
        [[0.2, 0.8], [1.0, 0.0]],
        ['[0. 1. 0.]', '[1. 0. 0.]'],
        ['0 1', '1 0'],
    ],
)
@pytest.mark.parametrize('suffix', ['jsonl', 'parquet', 'csv'])
def test_flags_without_names_are_refused(lists, suffix, tmp_path):
    if suffix == 'csv':
        lists = [f'"{one}"' for one in lists]
    train = write(tmp_path, suffix, lists)
    with pytest.raises(UserError, match='2 of 2 records are malformed: .*; write the'):
        read('multi_label', train=train, dev_fraction=0, label_separator=' ')


@pytest.mark.parametrize('suffix', ['jsonl', 'parquet', 'csv'])
def test_lists_of_different_lengths_are_numbers_of_classes(suffix, tmp_path):
    lists = [[0, 1], [1], [], [0]]
    cells = [f'"{one}"' for one in lists] if suffix == 'csv' else lists
    splits = read('multi_label', train=write(tmp_path, suffix, cells), dev_fraction=0)
    assert labels_of(splits.train) == [('0', '1'), ('1',), (), ('0',)]
    floats = write(tmp_path, 'jsonl', [[float(n) for n in one] for one in lists], 'floats')
    assert labels_of(read('multi_label', train=floats, dev_fraction=0).train)[0] == ('0', '1')

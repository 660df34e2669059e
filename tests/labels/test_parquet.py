"""Labeled rows of Parquet and Arrow files: the same examples as from JSON lines."""

import datetime
import decimal
import json

import pyarrow
import pytest
from pyarrow import ipc, parquet

from bert_jax.answers import find, input_rows
from bert_jax.errors import UserError
from bert_jax.inference import changed_settings
from bert_jax.labels import arrow_rows
from tests.labels.reading import config, read, read_all, write_json_lines

DATES = [datetime.date(2020, 1, 2), None, datetime.date(2021, 1, 2)]


def write(path, **columns):
    parquet.write_table(pyarrow.table(columns), path, row_group_size=2)
    return (str(path),)


def test_rows_are_those_of_json_lines(tmp_path):
    texts, labels = ['a "b",\nc', 'naïve\u2028', '', 'd'], [3, 1, 2, 1]
    rows = [{'text': text, 'label': label} for text, label in zip(texts, labels, strict=True)]
    files = (
        write(tmp_path / 'a.parquet', text=texts, label=labels),
        write_json_lines(tmp_path / 'b.jsonl', *rows),
    )
    # A quarter of the rows has no text.
    ours, theirs = (
        read_all('classification', train=train, malformed_fraction=0.25) for train in files
    )
    assert [one[1:] for one in ours] == [one[1:] for one in theirs]
    assert len(ours) == 3
    assert ours[0].id == 'a.parquet:1'


def test_lists_are_words_and_tags(tmp_path):
    words, tags = [['Ann', 'is', 'here'], ['In', 'Rome']], [['B-PER', 'O', 'O'], ['O', 'B-LOC']]
    examples = read_all('tagging', train=write(tmp_path / 'a.parquet', tokens=words, tags=tags))
    assert [list(one.tags) for one in examples] == tags


def test_maps_are_objects_as_in_json(tmp_path):
    kind = pyarrow.map_(pyarrow.string(), pyarrow.float64())
    maps = pyarrow.array([[('a', 0.75), ('b', 0.25)], [('b', 1.0)]], kind)
    nested = pyarrow.array([[{'m': [('k', 1.0)]}], []], pyarrow.list_(pyarrow.struct({'m': kind})))
    path = write(tmp_path / 'a.parquet', text=['x', 'y'], probs=maps, more=nested)
    rows = [one.content.values for one in arrow_rows.read_rows(path[0], config())]
    assert rows[0] == {'text': 'x', 'probs': {'a': 0.75, 'b': 0.25}, 'more': [{'m': {'k': 1.0}}]}
    (found, _) = read_all('multi_regression', {'label': 'probs'}, train=path)
    assert dict(found.label) == {'a': 0.75, 'b': 0.25}


@pytest.mark.parametrize(
    ('labels', 'kind', 'expected'),
    [
        ([1.5, float('nan'), 2.0], 'regression', [1.5, 2.0]),
        ([decimal.Decimal('1.50'), None, decimal.Decimal(2)], 'regression', [1.5, 2.0]),
        (DATES, 'classification', ['2020-01-02', '2021-01-02']),
    ],
)
def test_missing_labels_are_counted_and_dates_are_text(labels, kind, expected, tmp_path):
    train = write(tmp_path / 'a.parquet', text=['a', 'b', 'c'], label=labels)
    splits = read(kind, train=train, dev_fraction=0.0, malformed_fraction=0.5)
    assert [one.label for one in splits.train] == expected
    assert sum(splits.report.values()) == 1


def test_bytes_are_text_as_in_files_of_other_programs(tmp_path):
    texts = ['naïve'.encode(), b'caf\xe9', b'b']
    train = write(tmp_path / 'a.parquet', text=texts, label=[b'x', b'x', b'y'])
    splits = read('classification', train=train, dev_fraction=0.0, malformed_fraction=0.5)
    assert [(one.texts, one.label) for one in splits.train] == [(('naïve',), 'x'), (('b',), 'y')]


def test_a_file_that_is_not_parquet_is_an_error(tmp_path):
    path = tmp_path / 'a.parquet'
    path.write_text('text,label\na,b\n')
    with pytest.raises(UserError, match=r'cannot read .*a\.parquet as Parquet'):
        read('classification', train=(str(path),))


CLASS = {'_type': 'ClassLabel', 'names': ['no', 'yes']}
FEATURES = {
    'text': {'_type': 'Value', 'dtype': 'string'},
    'label': CLASS,
    'topics': {'_type': 'List', 'feature': CLASS},
    'older': [CLASS],
    'parts': {'_type': 'Sequence', 'feature': {'kind': CLASS, 'size': {'_type': 'Value'}}},
    'nested': {'inner': CLASS},
}
ROWS = pyarrow.table(
    {
        'text': ['a', 'b', 'c', 'd'],
        'label': [1, 0, 0, 1],
        'topics': [[0, 1], [], [1], [0]],
        'older': [[0], [1], [], []],
        'parts': [{'kind': [0, 1], 'size': [0, 1]}] * 4,
        'nested': [{'inner': 1}] * 4,
    }
)


def save_to_disk(folder, table, in_file: bool = False):
    """A data set in two Arrow files, with its features in the files or in dataset_info.json."""
    folder.mkdir(parents=True, exist_ok=True)
    info, names = {'features': FEATURES}, []
    if in_file:
        table = table.replace_schema_metadata({'huggingface': json.dumps({'info': info})})
    else:
        (folder / 'dataset_info.json').write_text(json.dumps(info))
    for number in range(2):
        names.append(f'data-0000{number}-of-00002.arrow')
        with ipc.new_stream(folder / names[-1], table.schema) as writer:
            writer.write_table(table[2 * number : 2 * number + 2], max_chunksize=1)
    state = {'_data_files': [{'filename': name} for name in names], '_split': folder.name}
    (folder / 'state.json').write_text(json.dumps(state))
    return (str(folder),)


@pytest.mark.parametrize('in_file', [False, True])
def test_a_saved_data_set_has_the_names_of_its_classes(in_file, tmp_path):
    train = save_to_disk(tmp_path / 'train', ROWS, in_file)
    examples = read('classification', train=train, dev_fraction=0.0).train
    assert [(one.texts, one.label) for one in examples] == [
        (('a',), 'yes'), (('b',), 'no'), (('c',), 'no'), (('d',), 'yes')
    ]  # fmt: skip
    assert examples[2].id == 'data-00001-of-00002.arrow:1'
    for column, labels in (
        ('topics', [('no', 'yes'), (), ('yes',), ('no',)]),
        ('older', [('no',), ('yes',), (), ()]),
        ('parts.kind', [('no', 'yes')] * 4),
    ):
        splits = read('multi_label', {'label': column}, train=train, dev_fraction=0.0)
        assert [one.label for one in splits.train] == labels
    splits = read('classification', {'label': 'nested.inner'}, train=train, dev_fraction=0.0)
    assert {one.label for one in splits.train} == {'yes'}


def test_a_data_set_of_several_splits_is_asked_for_one(tmp_path):
    for split in ('train', 'test'):
        save_to_disk(tmp_path / 'all' / split, ROWS)
    (tmp_path / 'all/dataset_dict.json').write_text('{"splits": ["train", "test"]}')
    with pytest.raises(UserError, match=r'several splits; name one: .*all/train, .*all/test'):
        read('classification', train=(str(tmp_path / 'all'),))
    train = (str(tmp_path / 'all/train'),)
    assert len(read('classification', train=train, dev_fraction=0.0).train) == 4


def test_arrow_files_and_unknown_classes(tmp_path):
    table = ROWS.set_column(1, 'label', [[1, -1, 0, 7]])
    (folder,) = save_to_disk(tmp_path / 'data', table)
    files = (f'{folder}/*.arrow',)
    splits = read('classification', train=files, dev_fraction=0.0, malformed_fraction=0.5)
    assert [one.label for one in splits.train] == ['yes', 'no']
    assert splits.report['unknown_labels_left_out'] == 1
    assert splits.report['malformed'] == 1
    assert 'class 7 of 2 classes' in splits.report.places['malformed'][0]
    for path in tmp_path.glob('data/*.arrow'):
        path.write_bytes(path.read_bytes()[:90])
    with pytest.raises(UserError, match='cannot read .* as Parquet or Arrow'):
        read('classification', train=files)


def test_a_saved_data_set_is_input_of_predict(tmp_path):
    (folder,) = save_to_disk(tmp_path / 'data', ROWS)
    fields, data = find('classify').fields, changed_settings.data_config({}, {})
    assert input_rows.table_format(folder, fields) == 'parquet'
    rows = input_rows.read(folder, 'auto', fields, data, 'classify')
    assert [row.values['text'] for row in rows] == ['a', 'b', 'c', 'd']

"""Rows given as objects of Python: the values are those of a Parquet file of the same table."""

import json
import pathlib

import pyarrow
import pytest
from pyarrow import dataset, parquet

from bert_jax import given_data
from bert_jax.errors import UserError
from bert_jax.labels import arrow_rows
from tests.labels.reading import config

CLASS = {'_type': 'ClassLabel', 'names': ['PER', 'LOC']}
FEATURES = {
    'label': CLASS,
    'topics': {'_type': 'List', 'feature': CLASS},
    'spans': {'_type': 'List', 'feature': {'start': {'_type': 'Value'}, 'label': CLASS}},
    'older': {'_type': 'Sequence', 'feature': {'start': {'_type': 'Value'}, 'label': CLASS}},
    'inner': {'label': CLASS},
}
ROWS = [
    {
        'text': f'text {number}',
        'label': label,
        'topics': [0, 1],
        'spans': [{'start': 0, 'label': 1}],
        'older': {'start': [0, 3], 'label': [1, 0]},
        'inner': {'label': 0},
    }
    for number, label in enumerate([0, 1, -1])
]
INFO = {'huggingface': json.dumps({'info': {'features': FEATURES}})}
TABLE = pyarrow.Table.from_pylist(ROWS).replace_schema_metadata(INFO)


class Features(dict):
    def to_dict(self):
        return dict(self)


class DataSet:
    """A stand-in for a data set of `datasets`, which tests do without."""

    def __init__(self, rows=ROWS, names=tuple(ROWS[0]), features=FEATURES, form=None):
        self.rows, self.column_names, self.form = rows, names, form
        self.features = features and Features(features)
        self.format = {'type': form}

    def with_format(self, form):
        return DataSet(self.rows, self.column_names, self.features, form)

    def __iter__(self):
        return iter(self.rows if self.form in (None, 'custom') else ['a table'])


class Lazy:
    """A stand-in for a LazyFrame of polars."""

    def collect(self):
        return TABLE


def written(rows, folder):
    (path,) = given_data.labeled_files(rows, folder, 'train')
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


@pytest.mark.parametrize(
    'rows',
    [
        TABLE,
        TABLE.to_batches()[0],
        TABLE.to_reader(),
        dataset.dataset(TABLE),
        DataSet(),
        DataSet(names=None),  # a stream
        DataSet(form='pandas'),
        DataSet(form='custom'),
        Lazy(),
    ],
)
def test_classes_are_named_as_in_a_file_also_in_lists_and_objects(rows, tmp_path):
    parquet.write_table(TABLE, tmp_path / 'a.parquet')
    records = arrow_rows.read_rows(str(tmp_path / 'a.parquet'), config())
    in_file = [record.content.values for record in records]
    assert written(rows, tmp_path) == in_file
    assert [row['label'] for row in in_file] == ['PER', 'LOC', -1]
    assert in_file[0]['spans'] == [{'start': 0, 'label': 'LOC'}]
    assert in_file[0]['older']['label'] == ['LOC', 'PER']
    assert in_file[0]['topics'] == ['PER', 'LOC']


def test_a_stream_without_features_is_rows(tmp_path):
    rows = [{'text': 'a', 'label': 'b'}]
    assert written(DataSet(rows, names=None, features=None), tmp_path) == rows


@pytest.mark.parametrize(
    ('rows', 'message'),
    [
        (5, 'the data are of type int, which has no rows'),
        (DataSet([ROWS[0] | {'label': 7}]), 'class 7 of 2 classes'),
    ],
)
def test_other_objects_are_refused(rows, message, tmp_path):
    with pytest.raises(UserError, match=message):
        given_data.labeled_files(rows, tmp_path, 'train')

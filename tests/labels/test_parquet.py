"""Labeled rows of Parquet files: the same examples as from JSON lines."""

import datetime
import decimal

import pyarrow
import pytest
from pyarrow import parquet

from bert_jax.errors import UserError
from tests.labels.reading import read, read_all, write_json_lines

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

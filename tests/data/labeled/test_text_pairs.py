"""Building examples of texts with a score or with choices."""

import pytest

from bert_jax.data.labeled.examples import (
    MultipleChoiceExample,
)
from bert_jax.errors import UserError
from tests.data.labeled.reading import read, read_all, write_json_lines, write_lines


def test_scores_are_numbers_and_empty_ones_can_be_skipped(tmp_path):
    path = write_lines(tmp_path / 'a.tsv', '1.5\ta\tb', '\tc\td', '3\te\tf')
    columns = {'text': '1', 'text2': '2', 'label': '0'}
    splits = read(
        'regression', columns, train=path, header=False, skip_labels=('',), dev_fraction=0.5
    )
    assert sorted(one.label for one in splits.train + splits.dev) == [1.5, 3.0]
    assert splits.report['skipped_by_label'] == 1
    assert f'skipped by label: 1 ({path[0]}:2)' in splits.report.lines()
    with pytest.raises(
        UserError, match=r"a.tsv:2: column '0' has an empty label; data.skip_labels"
    ):
        read('regression', columns, train=path, header=False)
    path = write_lines(tmp_path / 'b.tsv', 'nan\ta\tb', 'high\ta\tb')
    with pytest.raises(UserError, match=r"2 of 2 .*'nan' is not a finite number.*'high' is not"):
        read('regression', columns, train=path, header=False)


@pytest.mark.parametrize(
    ('columns', 'record', 'first', 'label'),
    [
        (('a', 'b', 'c'), {'label': 2}, 1, 1),
        (('a', 'b', 'c'), {'label': 'c'}, 0, 2),
        (('a', 'b', 'c'), {'label': 'two'}, 0, 1),
        (('all',), {'label': '2'}, 0, 2),
    ],
)
def test_the_correct_choice_is_an_index_a_column_or_the_choice_itself(
    tmp_path, columns, record, first, label
):
    record |= {'text': 'How many?', 'a': 'one', 'b': 'two', 'c': 'three'}
    record['all'] = ['one', 'two', 'three']
    path = write_json_lines(tmp_path / 'a.jsonl', record, record)
    found = read_all(
        'multiple_choice', {'choices': columns}, train=path, format='jsonl', first_choice=first
    )
    assert found[0] == MultipleChoiceExample(
        'a.jsonl:1', 'How many?', ('one', 'two', 'three'), label
    )

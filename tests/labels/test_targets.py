"""Source texts with their targets, in tables and JSON lines."""

import json

import pytest

from bert_jax.errors import UserError
from tests.labels.reading import read, read_all


def test_targets_are_a_text_or_a_list_of_references(tmp_path):
    rows = [
        {'document': 'one two', 'summary': ['first', ' second ']},
        {'document': 'three', 'summary': 'third'},
    ]
    path = tmp_path / 'a.jsonl'
    path.write_text('\n'.join(map(json.dumps, rows)), encoding='utf-8')
    columns = {'text': 'document', 'target': 'summary'}
    first, second = read_all('generation', columns, train=(str(path),))
    assert (first.texts, first.targets) == (('one two',), ('first', ' second'))
    assert second.targets == ('third',)
    renamed = read_all('generation', columns, train=(str(path),), rename_labels=('third=3',))
    assert renamed[1].targets == ('3',)


def test_test_files_may_lack_targets(tmp_path):
    (tmp_path / 'a.tsv').write_text('text\ttext2\ttarget\nA\tB\tC\nD\tE\tF\n', encoding='utf-8')
    (tmp_path / 'b.tsv').write_text('text\ttext2\nA\tB\n', encoding='utf-8')
    splits = read(
        'generation',
        {'text2': 'text2'},
        train=(str(tmp_path / 'a.tsv'),),
        test=(str(tmp_path / 'b.tsv'),),
        dev_fraction=0.0,
    )
    assert [one.targets for one in splits.train] == [('C',), ('F',)]
    assert [(one.texts, one.targets) for one in splits.test] == [(('A', 'B'), None)]


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('text\ttarget\nA\t \n', "column 'target' has an empty target"),
        ('text\ttarget\n \tB\n', "column 'text' has an empty text"),
        ('text\tsummary\nA\tB\n', 'target'),
    ],
)
def test_rows_without_a_target_are_refused(tmp_path, text, message):
    path = tmp_path / 'a.tsv'
    path.write_text(text, encoding='utf-8')
    with pytest.raises(UserError, match=message):
        read('generation', train=(str(path),), dev_fraction=0.0)

"""Rows that annotators rejected are not learned, in any kind of problem."""

import pytest

from tests.labels.reading import read, write_json_lines, write_lines

REJECTED = 'not_accepted_by_the_annotator'
STATUSES = [
    {'answer': 'reject'},
    {'answer': 'ignore'},
    {'was_cancelled': True},
    {'annotations': [{'was_cancelled': True}, {'was_cancelled': True}]},
    {'status': 'discarded'},
    {'responses': [{'status': 'discarded'}]},
    {'AssignmentStatus': 'Rejected'},
]
ACCEPTED = [
    {'answer': 'accept'},
    {'was_cancelled': False},
    {'annotations': [{'was_cancelled': True}, {'was_cancelled': False}]},
    {'annotations': []},
    {'status': ['submitted']},
    {'AssignmentStatus': 'Approved'},
]
ROWS = {
    'classification': ({}, {'text': 'a', 'label': 'x'}),
    'multi_label': ({'label': 'accept'}, {'text': 'a', 'accept': ['x', 'y']}),
    'embedding': ({'texts': ('text', 'other'), 'label': ''}, {'text': 'a', 'other': 'b'}),
    'generation': ({}, {'text': 'a', 'target': 'b'}),
    'tagging': ({}, {'tokens': ['a'], 'tags': ['B-X']}),
    'spans': ({}, {'text': 'a b', 'spans': [[0, 1, 'X']]}),
    'multiple_choice': ({'choices': ('c',)}, {'text': 'a', 'c': ['x', 'y'], 'label': 0}),
}


@pytest.mark.parametrize('kind', ROWS)
def test_rejected_rows_are_left_out_and_counted(kind, tmp_path):
    columns, row = ROWS[kind]
    train = write_json_lines(tmp_path / 'a.jsonl', *(row | more for more in STATUSES + ACCEPTED))
    splits = read(kind, columns, train=train, dev_fraction=0.0)
    assert len(splits.train) == len(ACCEPTED)
    assert splits.report[REJECTED] == len(STATUSES)
    assert splits.report.places[REJECTED][0] == f'{train[0]}:1'


def test_rejected_rows_of_a_table_and_of_a_test_file_are_left_out(tmp_path):
    rows = ['text,label,answer', 'a,x,accept', 'b,x,reject', 'c,y,accept', 'd,y,ignore']
    path = write_lines(tmp_path / 'a.csv', *rows)
    splits = read('classification', train=path, test=path, dev_fraction=0.0)
    assert [one.texts for one in splits.test] == [('a',), ('c',)] == [t.texts for t in splits.train]


@pytest.mark.parametrize(
    ('kind', 'columns'),
    [
        ('classification', {'label': 'answer'}),
        ('instructions', {}),
        ('generation', {'text': 'prompt', 'target': 'answer'}),
        ('embedding', {'texts': ('prompt', 'answer'), 'label': ''}),
    ],
)
def test_a_column_that_the_config_names_is_not_a_status(kind, columns, tmp_path):
    answers = ['reject', 'accept', 'ignore']
    rows = [{'text': 'a', 'prompt': 'Which word?', 'answer': answer} for answer in answers]
    train = write_json_lines(tmp_path / 'a.jsonl', *rows)
    assert len(read(kind, columns, train=train, dev_fraction=0.0).train) == 3

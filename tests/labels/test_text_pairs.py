"""Building examples of texts with a score or with choices."""

import pytest

from bert_jax.errors import UserError
from bert_jax.labels.examples import MultipleChoiceExample
from tests.labels.reading import read, read_all, write_json_lines, write_lines


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


DIGITS = [('2', '0', '1'), ('1', '2', '0'), ('0', '2', '1')]


def test_an_integer_of_json_is_an_index_also_where_choices_are_digits(tmp_path):
    rows = [
        {'text': 'q', 'choices': choices, 'label': label}
        for choices, label in zip(DIGITS, (0, 2, 1), strict=True)
    ]
    path = write_json_lines(tmp_path / 'a.jsonl', *rows)
    splits = read('multiple_choice', {'choices': ('choices',)}, train=path, dev_fraction=0.0)
    assert [one.label for one in splits.train] == [0, 2, 1]


@pytest.mark.parametrize(
    ('choices', 'labels', 'wanted'),
    [
        (DIGITS, ('0', '2', '0'), None),  # all may be indices and texts
        (DIGITS, ('1.0', '2.0', '0.0'), [1, 2, 0]),
        ([*DIGITS[:2], ('7', '8', '0')], ('0', '2', '7'), [1, 1, 0]),
        ([*DIGITS[:2], ('7', '8', '9')], ('0', '2', '1'), [0, 2, 1]),
        ([('a', 'b', 'c')] * 3, ('B', 'C', 'A'), [1, 2, 0]),
        ([('A', 'C', 'B')] * 3, ('B', 'C', 'A'), None),
        ([('one', ' two', 'x')] * 3, ('one', 'two', 'x'), [0, 1, 2]),
    ],
)
def test_what_labels_of_choices_are_is_decided_once_for_a_file(tmp_path, choices, labels, wanted):
    rows = [','.join(['q', *own, label]) for own, label in zip(choices, labels, strict=True)]
    path = write_lines(tmp_path / 'a.csv', 'text,A,B,C,label', *rows)
    columns, settings = {'choices': ('A', 'B', 'C')}, dict(train=path, dev_fraction=0.0)
    if wanted is None:
        with pytest.raises(UserError, match=r'a.csv:2: the label .* set data.choice_label=.* or'):
            read('multiple_choice', columns, **settings)
        found = read('multiple_choice', columns, choice_label='text', **settings).train
        wanted = [own.index(label) for own, label in zip(choices, labels, strict=True)]
    else:
        found = read('multiple_choice', columns, **settings).train
    assert [one.label for one in found] == wanted


@pytest.mark.parametrize(
    ('labels', 'wanted'), [('0123', [0, 1, 2, 3]), ('1234', [0, 1, 2, 3]), ('123', None)]
)
def test_columns_of_choices_given_by_number_can_be_named_by_labels(tmp_path, labels, wanted):
    path = write_lines(tmp_path / 'a.tsv', *(f'q\ta\tb\tc\td\t{label}' for label in labels))
    columns = {'text': '0', 'choices': ('1', '2', '3', '4'), 'label': '5'}
    settings = dict(train=path, dev_fraction=0.0)
    if wanted is None:
        with pytest.raises(UserError, match='may be the index of a choice or the name of the col'):
            read('multiple_choice', columns, **settings)
    else:
        found = read('multiple_choice', columns, **settings).train
        assert [one.label for one in found] == wanted


def test_labels_of_choices_that_are_letters_or_not_integers_are_refused(tmp_path):
    path = write_lines(tmp_path / 'a.csv', 'text,x,y,label', 'q,a,b,B', 'q,a,b,1.5')
    with pytest.raises(UserError, match="2 of 2 .*label 'B' is not the index.*'1.5' is not the"):
        read('multiple_choice', {'choices': ('x', 'y')}, train=path)
    with pytest.raises(UserError, match="unknown data.choice_label 'letter'"):
        read('multiple_choice', {'choices': ('x', 'y')}, train=path, choice_label='letter')


@pytest.mark.parametrize('label', ['-1', '-1.0'])
@pytest.mark.parametrize('kind', ['classification', 'regression', 'multiple_choice'])
def test_labels_of_a_test_file_that_are_all_minus_1_are_unknown(tmp_path, kind, label):
    header = 'text,x,y,label'
    train = write_lines(tmp_path / 'a.csv', header, 'q,a,b,0', 'r,a,b,1')
    test = write_lines(tmp_path / 'b.csv', header, *(f'q{n},a,b,{label}' for n in range(3)))
    settings = dict(train=train, test=test, dev_fraction=0.0)
    splits = read(kind, {'choices': ('x', 'y')}, **settings)
    assert [one.label for one in splits.test] == [None] * 3
    assert splits.report['hidden_labels'] == 3


def test_minus_1_of_a_test_file_is_a_class_where_training_has_it(tmp_path):
    train = write_lines(tmp_path / 'a.csv', 'text,label', 'q,-1', 'r,1')
    test = write_lines(tmp_path / 'b.csv', 'text,label', 'q,-1', 'r,-1')
    settings = dict(test=test, dev_fraction=0.0)
    assert read('classification', train=train, **settings).test[0].label == '-1'

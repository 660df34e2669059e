"""Building examples with two marked ranges."""

import pytest

from bert_jax.errors import UserError
from bert_jax.labels.examples import Mark, MarkedExample
from tests.labels.reading import read, read_all, write_json_lines, write_lines


def test_inline_marks_are_removed_from_the_text(tmp_path):
    path = write_lines(
        tmp_path / 'a.tsv',
        'text\tlabel',
        'The <e2>key</e2> of <e1>a door</e1>.\tpart',
        '<e1>a</e1><e2>b</e2>\tnone',
    )
    found = read_all('relation', train=path, inline_marks=('<e1>', '</e1>', '<e2>', '</e2>'))
    assert found == [
        MarkedExample('a.tsv:2', ('The key of a door.',), (Mark(0, 11, 17), Mark(0, 4, 7)), 'part'),
        MarkedExample('a.tsv:3', ('ab',), (Mark(0, 0, 1), Mark(0, 1, 2)), 'none'),
    ]  # fmt: skip


def test_the_same_inline_mark_around_a_word_in_each_of_two_texts(tmp_path):
    path = write_lines(tmp_path / 'a.tsv', 'text\tu\tlabel', 'a *b*\t*c* d\tT', '*x*\ty *z*\tF')
    found = read_all(
        'word_in_context', {'text2': 'u'}, train=path, inline_marks=('*', '*', '*', '*')
    )
    assert found[0].texts == ('a b', 'c d')
    assert found[0].marks == (Mark(0, 2, 3), Mark(1, 0, 1))


def test_offsets_of_words_with_inclusive_ends(tmp_path):
    record = {'text': ['Ann', 'Lee', 'left', 'York'], 's': 0, 'e': 1, 'o': 3, 'p': 3, 'label': 'x'}
    path = write_json_lines(tmp_path / 'a.jsonl', record, record)
    found = read_all(
        'relation', {'marks': ('s:e', 'o:p')}, train=path, format='jsonl', ends='inclusive'
    )
    assert found[0].texts == ('Ann Lee left York',)
    assert found[0].marks == (Mark(0, 0, 7), Mark(0, 13, 17))


def test_ranges_by_word_number_and_text_leave_out_punctuation(tmp_path):
    record = {'text': 'Mark told Pete, he lied.', 'a': 2, 'b': 'Pete', 'c': 3, 'd': 'he'}
    path = write_json_lines(
        tmp_path / 'a.jsonl', record | {'label': 'true'}, record | {'label': 'false'}
    )
    columns = {'marks': ('a+b', 'c+d')}
    found = read_all('coreference', columns, train=path, format='jsonl', units='words')
    assert [found[0].texts[0][m.start : m.end] for m in found[0].marks] == ['Pete', 'he']


def test_each_candidate_is_an_example_and_all_stay_in_one_split(tmp_path):
    path = write_lines(tmp_path / 'a.tsv', 'text\tp\ta\tb\tA\tB', 'I met her\t0\t6\t2\tF\tT', '')
    columns = {'marks': ('p+x', 'a:b')}
    with pytest.raises(
        UserError, match="data.columns.marks names column 'x', but .*a.tsv has columns text, p"
    ):
        read('coreference', columns, train=path)
    record = {'text': 'Al met Bo and he left', 'p': 14, 'q': 16, 'a': 0, 'b': 2, 'c': 7, 'd': 9}
    copies = [record | {'text': f'{record["text"]} {n}', 'A': 'T', 'B': 'F'} for n in range(4)]
    path = write_json_lines(tmp_path / 'a.jsonl', *copies)
    columns = {'marks': ('p:q', 'a:b', 'c:d'), 'candidate_labels': ('A', 'B')}
    splits = read('coreference', columns, train=path, format='jsonl', dev_fraction=0.5)
    assert len(splits.train) == len(splits.dev) == 4
    names = {one.id.rpartition('-')[0] for one in splits.train}
    assert names.isdisjoint({one.id.rpartition('-')[0] for one in splits.dev})
    first = sorted(splits.train)[0]
    assert [first.texts[0][m.start : m.end] for m in first.marks] == ['he', 'Al']
    assert [one.label for one in sorted(splits.train)] == ['T', 'F', 'T', 'F']


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('<a>one</a> <a>two</a> <b>three</b>', "the text has too many '<a>'"),
        ('<a>one</a> two', "no text between '<b>' and '</b>'"),
        ('<a></a><b>two</b>', "no text between '<a>' and '</a>'"),
        ('</a>one<a> <b>two</b>', "no text between '<a>' and '</a>'"),
    ],
)
def test_incomplete_inline_marks_are_misplaced(tmp_path, text, message):
    path = write_lines(tmp_path / 'a.tsv', 'text\tlabel', f'{text}\tx')
    with pytest.raises(UserError, match=f'1 of 1 records are misplaced: .*a.tsv:2: {message}'):
        read('relation', train=path, inline_marks=('<a>', '</a>', '<b>', '</b>'))


@pytest.mark.parametrize(
    ('record', 'message'),
    [
        ({'a': 0, 'b': 99}, 'span 0:99 is not inside the text of 4 characters'),
        ({'a': 2, 'b': 2}, 'span 2:2 is not inside'),
        ({'a': -1, 'b': 2}, 'span -1:2 is not inside'),
    ],
)
def test_ranges_outside_the_text_are_misplaced(tmp_path, record, message):
    path = write_json_lines(tmp_path / 'a.jsonl', record | {'text': 'Text', 'label': 'x'})
    with pytest.raises(UserError, match=f'1 of 1 records are misplaced: .*a.jsonl:1: {message}'):
        read('relation', {'marks': ('a:b', 'a:b')}, train=path, format='jsonl')

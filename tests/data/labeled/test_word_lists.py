"""Building examples from lists of words with tags or spans."""

import pytest

from bert_jax.data.labeled.examples import (
    Span,
    TaggedExample,
)
from bert_jax.errors import UserError
from tests.data.labeled.reading import read, read_all, write_json_lines


def test_words_with_numbered_tags(tmp_path):
    path = write_json_lines(tmp_path / 'a.jsonl', *[{'tokens': ['Bo', 'sat'], 'ner': [1, 0]}] * 2)
    found = read_all(
        'tagging', {'tags': 'ner'}, train=path, format='jsonl', rename_labels=('0=O', '1=B-PER')
    )
    assert found[0] == TaggedExample('a.jsonl:1', 'Bo sat', ((0, 2), (3, 6)), ('B-PER', 'O'))


@pytest.mark.parametrize('name', ['tokens', 'words'])
def test_the_list_of_words_is_called_tokens_or_words(tmp_path, name):
    record = {name: ['Bo', 'sat'], 'tags': ['B-PER', 'O'], 'spans': [[0, 1, 'PER']]}
    path = write_json_lines(tmp_path / 'a.jsonl', record, record)
    assert read_all('tagging', train=path)[0].text == 'Bo sat'
    assert read_all('spans', train=path)[0].spans == (Span(0, 2, 'PER'),)


def test_spans_of_words_or_of_characters(tmp_path):
    path = write_json_lines(
        tmp_path / 'a.jsonl',
        {'tokens': ['The', 'king', 'of', 'Spain'], 'spans': [[0, 3, 'PER'], [3, 3, 'LOC']]},
        {'tokens': ['a', 'b'], 'spans': [[0, 1, 'X'], [0, 1, 'X']]},
    )
    splits = read('spans', train=path, format='jsonl', ends='inclusive', dev_fraction=0.5)
    found = sorted(splits.train + splits.dev)
    assert found[0].spans == (Span(0, 17, 'PER'), Span(12, 17, 'LOC'))
    assert found[1].spans == (Span(0, 3, 'X'),)
    assert splits.report['repeated_spans'] == 1
    path = write_json_lines(
        tmp_path / 'b.jsonl', *[{'text': 'Élan (Paris)', 'label': [[6, 11, 'LOC']]}] * 2
    )
    found = read_all('spans', {'spans': 'label'}, train=path, format='jsonl')
    assert found[0].words == ((0, 4), (5, 6), (6, 11), (11, 12))
    assert found[0].spans == (Span(6, 11, 'LOC'),)


@pytest.mark.parametrize(
    ('span', 'message'),
    [
        ([1, 3, 'X'], 'misplaced: .*words 1 to 3 are not in a sentence of 2 words'),
        ([1, 1, 'X'], 'misplaced: .*words 1 to 1 are'),
        ([0, 1], r'malformed: .*span \[0, 1\] is not \[start, end, label\]'),
        (['x', 1, 'X'], "malformed: .*'x' is not an integer"),
    ],
)
def test_invalid_spans_are_malformed_or_misplaced(tmp_path, span, message):
    good = [{'tokens': ['a', word], 'spans': []} for word in 'bcde']
    good[2]['spans'] = [span]
    path = write_json_lines(tmp_path / 'a.jsonl', *good)
    with pytest.raises(UserError, match=f'1 of 4 records are {message}'):
        read('spans', train=path, format='jsonl')
    splits = read(
        'spans',
        train=path,
        format='jsonl',
        malformed_fraction=0.25,
        misplaced_fraction=0.25,
        dev_fraction=0.3,
    )
    assert splits.report['malformed'] + splits.report['misplaced'] == 1
    assert len(splits.train + splits.dev) == 3


@pytest.mark.parametrize(
    ('text', 'span'),
    [
        ('彼はとうきょうに行った。', 'とうきょう'),
        ('เขาไปกรุงเทพเมื่อวาน', 'กรุงเทพ'),
        ('그는 서울에서 왔다.', '서울'),
        ('គាត់ទៅភ្នំពេញ', 'ភ្នំពេញ'),
        ('ລາວໄປວຽງຈັນມື້ນີ້', 'ວຽງຈັນ'),
        ('သူမန္တလေးသွားတယ်။', 'မန္တလေး'),
        ('他去北京了', '北京'),
    ],
)
def test_spans_inside_text_without_spaces_are_read(tmp_path, text, span):
    start = text.index(span)
    row = {'text': text, 'spans': [[start, start + len(span), 'LOC']]}
    path = write_json_lines(tmp_path / 'a.jsonl', row)
    splits = read('spans', train=path, format='jsonl', dev_fraction=0.0)
    ((found,),) = [one.spans for one in splits.train]
    assert text[found.start : found.end] == span


def test_a_span_that_ends_inside_a_word_is_misplaced(tmp_path):
    path = write_json_lines(tmp_path / 'a.jsonl', {'text': 'Parisian', 'spans': [[0, 5, 'LOC']]})
    with pytest.raises(UserError, match='span 0:5 does not start and end at word boundaries'):
        read('spans', train=path, format='jsonl')

"""Building examples from lists of words with tags or spans."""

import pytest

from bert_jax.errors import UserError
from bert_jax.labels.examples import Span, TaggedExample
from tests.labels.reading import read, read_all, write_json_lines


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
        ([1, 1, 'X'], 'misplaced: .*is empty; if its end .* set data.ends=inclusive'),
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


def test_blank_words_without_a_tag_are_left_out_and_counted(tmp_path):
    row = {'tokens': ['anna', '', 'lind', ' ', 'left'], 'tags': ['B-PER', 'O', 'I-PER', 'O', 'O']}
    path = write_json_lines(tmp_path / 'a.jsonl', row)
    splits = read('tagging', train=path, dev_fraction=0.0)
    # I-PER after O starts an entity, also when O is the tag of a blank word.
    tags = ('B-PER', 'B-PER', 'O')
    words = ((0, 4), (5, 9), (10, 14))
    assert splits.train == [TaggedExample('a.jsonl:1', 'anna lind left', words, tags)]
    assert splits.report['blank_words_left_out'] == 2
    spans = [[0, 3, 'PER'], [3, 5, 'X'], [4, 5, 'Y']]
    path = write_json_lines(tmp_path / 'a.jsonl', row | {'spans': spans})
    (found,) = read('spans', train=path, dev_fraction=0.0).train
    assert found.spans == (Span(0, 9, 'PER'), Span(10, 14, 'X'), Span(10, 14, 'Y'))


@pytest.mark.parametrize(
    ('tokens', 'tags', 'message'),
    [
        (['bob', None], ['B-PER', 'O'], 'word 1 is null, not a string'),
        (['bob', 7], ['B-PER', 'O'], 'word 1 is 7, not a string'),
        (['bob', 'left'], ['B-PER', None], 'tag 1 is null, not a string'),
        (['bob', 'left'], ['B-PER', ['O']], r'tag 1 is \["O"\], not a string'),
        (['bob', 'left'], ['B-PER', ' '], 'a tag is empty'),
        (['bob', ' '], ['O', 'B-PER'], "a blank word has the tag 'B-PER'"),
        (['bob', 'left'], None, "column 'tags' is not a list of 2 tags"),
    ],
)
@pytest.mark.parametrize('scheme', ['bio', 'none'])
def test_null_words_and_tags_are_malformed(tmp_path, scheme, tokens, tags, message):
    good = {'tokens': ['a', 'b'], 'tags': ['O', 'O']}
    path = write_json_lines(tmp_path / 'a.jsonl', good, {'tokens': tokens, 'tags': tags})
    with pytest.raises(UserError, match=f'1 of 2 records are malformed: .*a.jsonl:2: {message}'):
        read('tagging', train=path, scheme=scheme)


@pytest.mark.parametrize('tags', [[-1, -1], ['-1', '-1'], None, []])
def test_tags_of_a_test_file_may_be_hidden(tmp_path, tags):
    train = write_json_lines(tmp_path / 'a.jsonl', {'tokens': ['a', 'b'], 'tags': ['O', 'B-X']})
    test = write_json_lines(tmp_path / 'b.jsonl', {'tokens': ['a', 'b'], 'tags': tags})
    splits = read('tagging', train=train, test=test, dev_fraction=0.0)
    assert splits.test[0].tags is None
    assert splits.report['hidden_labels'] == bool(tags)


PRODIGY = {
    'text': 'Anna lives\nin Oslo.',
    'tokens': [
        {'text': 'Anna', 'start': 0, 'end': 4, 'id': 0},
        {'text': 'lives', 'start': 5, 'end': 10, 'id': 1},
        {'text': '\n', 'start': 10, 'end': 11, 'id': 2},
        {'text': 'in', 'start': 11, 'end': 13, 'id': 3},
        {'text': 'Oslo', 'start': 14, 'end': 18, 'id': 4},
        {'text': '.', 'start': 18, 'end': 19, 'id': 5},
    ],
    'spans': [
        {'start': 0, 'end': 4, 'token_start': 0, 'token_end': 0, 'label': 'PER'},
        {'start': 14, 'end': 18, 'token_start': 4, 'token_end': 4, 'label': 'LOC'},
    ],
    'answer': 'accept',
}


def test_tokens_may_be_objects_with_offsets_in_the_text(tmp_path):
    path = write_json_lines(tmp_path / 'a.jsonl', PRODIGY, PRODIGY | {'answer': 'reject'})
    splits = read('spans', train=path, dev_fraction=0.0)
    (found,) = splits.train
    assert found.text == PRODIGY['text']
    assert found.words == ((0, 4), (5, 10), (11, 13), (14, 18), (18, 19))
    assert found.spans == (Span(0, 4, 'PER'), Span(14, 18, 'LOC'))
    assert splits.report['not_accepted_by_the_annotator'] == 1
    columns = {'span_start': 'token_start', 'span_end': 'token_end'}
    settings = dict(units='words', ends='inclusive', dev_fraction=0.0)
    assert read('spans', columns, train=path, **settings).train == [found]
    moved = PRODIGY | {'text': f' {PRODIGY["text"]}'}
    path = write_json_lines(tmp_path / 'a.jsonl', moved)
    with pytest.raises(
        UserError, match=r"misplaced: .*the text at 0 is ' Ann', not the word 'Anna"
    ):
        read('spans', train=path)


def test_tokens_may_be_objects_without_offsets(tmp_path):
    row = {'tokens': [{'text': 'Bo', 'tag': 'B-PER'}, {'text': 'sat', 'tag': 'O'}]}
    path = write_json_lines(tmp_path / 'a.jsonl', row)
    (found,) = read('tagging', {'tags': 'tokens.tag'}, train=path, dev_fraction=0.0).train
    assert found[1:4] == ('Bo sat', ((0, 2), (3, 6)), ('B-PER', 'O'))

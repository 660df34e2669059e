"""Every word of a text is aligned to subwords of its own, whatever the tokenizer does to it."""

import json
import random
import re

import numpy as np
import pytest
import tokenizers as library

from bert_jax import tokenizers
from bert_jax.errors import UserError
from bert_jax.labels.word_spans import split_characters
from bert_jax.tokenizers import alignment, wordpiece
from tests.parity.odd_strings import ODD

LINES = [
    "I'm gonna sit; you don't wanna. We gonna, we wanna! Naïve cafés in 北京 and Москва.",
    'Gonna sit on the mat, cannot sit on the mats: the cats sat with them.',
]
KINDS = {
    'wordpiece': 'wordpiece:100',
    'bytebpe': 'bytebpe:330',
    'unigram': 'unigram:80',
    'sentencepiece-bpe': 'sentencepiece-bpe:90',
}


@pytest.fixture(scope='module', params=[(kind, case) for kind in KINDS for case in (True, False)])
def tokenizer(request):
    kind, lowercase = request.param
    return tokenizers.train(KINDS[kind], LINES * 20, lowercase)


def random_words(text, seed):
    """Words of 1 to 6 characters that touch or have gaps; unusual, but valid."""
    rng, words, place = random.Random(seed), [], 0
    while place < len(text):
        end = min(place + rng.randint(1, 6), len(text))
        words.append((place, end))
        place = end + rng.choice((0, 0, 1, 2))
    return words


def check(tokenizer, text, words):
    found = alignment.align(tokenizer, text, words)
    assert len(found.ids) == len(found.offsets) == len(found.words)
    assert len(found.first) == len(found.count) == len(words)
    assert (found.count >= 1).all()
    owned = np.concatenate([[], *(f + np.arange(c) for f, c in zip(*found[3:5], strict=True))])
    np.testing.assert_array_equal(np.flatnonzero(found.words >= 0), owned)
    for (start, end), first in zip(words, found.first, strict=True):
        assert found.offsets[first, 0] < end
        assert found.offsets[first, 1] >= start  # equal for a blank subword before the word
    if not found.num_splits and not found.num_dropped:
        (expected,) = tokenizer.encode_batch([text], special=True).ids
        np.testing.assert_array_equal(found.ids, expected)
    return found


def test_random_words_of_odd_texts_are_aligned(tokenizer):
    num_splits = 0
    for seed, text in enumerate([*ODD.values(), *LINES] * 4):
        num_splits += check(tokenizer, text, random_words(text, seed)).num_splits
    assert num_splits > 10


def test_words_between_spaces_do_not_split_the_text(tokenizer):
    for text in LINES:
        words = [match.span() for match in re.finditer(r'\S+', text)]
        found = check(tokenizer, text, words)
        assert (found.num_splits, found.num_dropped) == (0, 0)
        marks = np.flatnonzero(tokenizer.is_word_start[found.ids])
        assert set(found.first) <= set(marks)


def test_two_words_in_one_subword_are_tokenized_separately():
    vocab = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'gonna', 'gon', 'na', 'we', '##go', 'a']
    settings = wordpiece.settings({token: i for i, token in enumerate(vocab)}, True)
    tokenizer = tokenizers.Tokenizer(json.dumps(settings))
    found = check(tokenizer, 'We gonna wego', [(0, 2), (3, 6), (6, 8), (9, 13)])
    assert [vocab[i] for i in found.ids] == ['we', 'gon', 'na', 'we', '##go']
    assert found.offsets.tolist() == [[0, 2], [3, 6], [6, 8], [9, 11], [11, 13]]
    assert found.first.tolist() == [0, 1, 2, 3]
    assert found.count.tolist() == [1, 1, 1, 2]
    assert found.num_splits == 1
    # Without the second word, the subword stays whole.
    assert check(tokenizer, 'We gonna', [(3, 6)]).ids.tolist() == [8, 5]


def test_a_word_that_the_tokenizer_drops_is_one_unknown_token():
    tokenizer = tokenizers.train('wordpiece:100', LINES * 20, True)
    text = 'the \u200b\x01 cat\u200b\u200c'
    found = check(tokenizer, text, [(0, 3), (4, 6), (7, 10), (10, 12)])
    assert found.num_dropped == 2
    unknown = found.ids == tokenizer.unk_id
    assert found.words[unknown].tolist() == [1, 3]
    assert found.offsets[unknown].tolist() == [[4, 6], [10, 12]]
    plain = tokenizer.encode_batch([text]).ids[0]
    np.testing.assert_array_equal(found.ids[~unknown], plain)


def test_every_word_is_in_one_window_and_is_not_split_if_it_fits(tokenizer):
    text = ' '.join([*LINES, 'm' * 40, *LINES, 'wannawannawannawanna'])
    words = [match.span() for match in re.finditer(r'\w+', text)]
    found = alignment.align(tokenizer, text, words)
    assert found.count.max() > 9 > found.count.min()
    for size, overlap in ((9, 0), (9, 4), (9, 8), (1000, 100)):
        windows = found.windows(size, overlap)
        predicted = []
        for window in windows:
            assert 0 < window.stop - window.start <= size
            own = np.flatnonzero((found.first >= window.first) & (found.first < window.last))
            predicted += own.tolist()
            assert (found.first[own] >= window.start).all()
            assert (found.first[own] + np.minimum(found.count[own], size) <= window.stop).all()
        assert predicted == list(range(len(words)))
    assert len(windows) == 1


@pytest.mark.parametrize(
    'words', [[(0, 3), (2, 4)], [(2, 2)], [(3, 99)], [(-1, 1)], [(4, 6), (0, 1)]]
)
def test_invalid_words_are_an_error(words):
    tokenizer = tokenizers.train('wordpiece:100', LINES * 20, True)
    with pytest.raises(UserError, match='word [01] is characters .* of a text of 8'):
        alignment.align(tokenizer, 'the cats', words)


def test_a_text_without_words_and_an_empty_text(tokenizer):
    found = check(tokenizer, 'the cats sat', [])
    assert (found.words == -1).all()
    assert len(check(tokenizer, '', []).ids) == 0
    assert found.windows(4, 1)[-1].stop == len(found.ids)


UNSPACED = [
    'กรุงเทพเป็นเมืองใหญ่',
    '東京タワーに行きました',
    '서울에서 왔습니다',
    'ភ្នំពេញជាទីក្រុង',
    'abc北京xyz',
]


@pytest.mark.parametrize('kind', KINDS)
def test_characters_of_text_without_spaces_are_joined_to_subwords(kind):
    tokenizer = tokenizers.train(f'{kind}:400', [' '.join(UNSPACED), *UNSPACED] * 5, False)
    num_joined = 0
    for text in UNSPACED:
        characters = split_characters(text)
        words = alignment.join_words(tokenizer, text, characters)
        assert {a for a, _ in words} <= {a for a, _ in characters}
        assert {b for _, b in words} <= {b for _, b in characters}
        found = check(tokenizer, text, words)
        assert found.num_splits == 0
        num_joined += len(characters) - len(words)
    assert num_joined > 20


def test_words_with_spaces_are_not_joined(tokenizer):
    for text in LINES:
        words = tuple(match.span() for match in re.finditer(r'\w{1,3}', text))
        characters = split_characters(text)
        joined = alignment.join_words(tokenizer, text, words)
        assert len(words) - len(joined) <= text.count('京')
        assert len(characters) - len(alignment.join_words(tokenizer, text, characters)) <= 1


def test_the_parts_of_an_added_token_are_one_word(tokenizer):
    backend = library.Tokenizer.from_str(tokenizer.to_json())
    backend.add_special_tokens(['[e1]'])
    added = tokenizers.Tokenizer(backend.to_str())
    text = 'the [e1] cats[e1]'
    words = tuple(match.span() for match in re.finditer(r'\w+|[^\w\s]', text))
    joined = alignment.join_words(added, text, words)
    assert [text[start:end] for start, end in joined] == ['the', '[e1]', 'cats', '[e1]']
    assert check(added, text, joined).num_splits == 0
    assert alignment.join_words(tokenizer, text, words) == words

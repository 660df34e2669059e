"""Splitting raw text into words."""

import pytest

from bert_jax.labels import word_spans
from bert_jax.labels.examples import TaggedExample
from tests.parity.odd_strings import ODD


@pytest.mark.parametrize(
    ('text', 'expected'),
    [
        ("We don't, e.g. 3.5%!", "We don ' t , e . g . 3 . 5 % !"),
        ('naïve cafe\u0301s\u0301 x\u0301', 'naïve cafe\u0301s\u0301 x\u0301'),
        ('北京大學abc東京タワー', '北 京 大 學 abc 東 京 タワー'),
        ('می\u200cخواهم नमस्ते', 'می\u200cخواهم नमस्ते'),
        ('x😀y 👩\u200d👩\u200d👧 👍🏽❤\ufe0f.', 'x 😀 y 👩\u200d👩\u200d👧 👍 🏽 ❤\ufe0f .'),
        ('a\x00b\u00a0c\td\u200b, \u0301', 'a\x00b c d\u200b , \u0301'),
        (' \t\n\u3000', ''),
    ],
)
def test_split_words(text, expected):
    assert [text[start:end] for start, end in word_spans.split_words(text)] == expected.split()


@pytest.mark.parametrize(
    ('text', 'expected'),
    [
        ('서울에서 BTS는!', '서 울 에 서 BTS 는 !'),
        ('iPhoneを食べる。', 'iPhone を 食 べ る 。'),
        ('กินข้าวที่ไทย', 'กิ น ข้ า ว ที่ ไ ท ย'),
        ('ភ្នំពេញ ວຽງ', 'ភ្នំ ពេ ញ ວ ຽ ງ'),
        ('မန္တလေး\u200bမြို့', 'မ န္တ လေး မြို့'),
        ("We don't.", "We don ' t ."),
    ],
)
def test_split_characters(text, expected):
    found = [text[start:end] for start, end in word_spans.split_characters(text)]
    assert found == expected.split()


def test_words_are_in_order_and_only_whitespace_is_left_out():
    for text in ODD.values():
        found = word_spans.split_words(text)
        rest, place = '', 0
        for start, end in found:
            assert place <= start < end
            rest += text[place:start]
            place = end
        assert not (rest + text[place:]).strip()


@pytest.mark.parametrize(
    ('text', 'words', 'expected'),
    [
        ('Rail won 8-4 in the U.S. .', 'Rail won 8-4 in the U.S. .', 'whitespace'),
        ('Rail won (8-4), again.', 'Rail won ( 8-4 ) , again .', 'punctuation'),
        ('Rail won again', 'Rail won again', 'punctuation'),
        ('東京です', '東 京 で す', 'characters'),
    ],
)
def test_the_splitter_of_plain_text_is_the_one_that_finds_the_words_of_the_examples(
    text, words, expected
):
    offsets = word_spans.locate_words(words.split(), text)
    examples = [TaggedExample('', text, offsets, None)]
    assert word_spans.closest_splitter(examples) == expected

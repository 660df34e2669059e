"""Splitting raw text into words."""

import pytest

from bert_jax.data.labeled import word_spans
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


def test_words_are_in_order_and_only_whitespace_is_left_out():
    for text in ODD.values():
        found = word_spans.split_words(text)
        rest, place = '', 0
        for start, end in found:
            assert place <= start < end
            rest += text[place:start]
            place = end
        assert not (rest + text[place:]).strip()

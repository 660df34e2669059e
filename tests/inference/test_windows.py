"""Every token is answered for once, with as much context as can be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.inference import windows


@given(st.integers(0, 300), st.integers(1, 40), st.data())
def test_every_token_once_in_windows_that_are_full(num_tokens, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    found = windows.cut(num_tokens, size, overlap)
    answered = [token for w in found for token in range(w.first, w.last)]
    assert answered == list(range(num_tokens))
    for window in found:
        assert window.start <= window.first <= window.last <= window.stop
        assert window.stop - window.start == min(num_tokens, size)
    for left, right in zip(found[:-1], found[1:], strict=True):
        assert left.stop - right.start >= overlap
    assert num_tokens <= size or len(found) == -(-(num_tokens - overlap) // (size - overlap))


def test_a_token_belongs_to_the_window_that_shows_more_around_it():
    first, second, third = windows.cut(20, 10, 4)
    assert (first.start, second.start, third.start) == (0, 6, 10)
    assert (first.last, second.last) == (8, 13)


@pytest.mark.parametrize('num_tokens', [0, 1, 10])
def test_a_short_text_is_one_window(num_tokens):
    assert windows.cut(num_tokens, 10, 3) == [(0, num_tokens, 0, num_tokens)]

"""Every token is predicted in one window, the one with the most context."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.errors import UserError
from bert_jax.tokenizers import sliding_windows


@given(st.integers(0, 300), st.integers(1, 40), st.data())
def test_every_token_is_in_one_window_and_windows_are_full(num_tokens, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    found = sliding_windows.make_windows(num_tokens, size, overlap)
    answered = [token for w in found for token in range(w.first, w.last)]
    assert answered == list(range(num_tokens))
    for window in found:
        assert window.start <= window.first <= window.last <= window.stop
        assert window.stop - window.start == min(num_tokens, size)
    for left, right in zip(found[:-1], found[1:], strict=True):
        assert left.stop - right.start >= overlap
    assert num_tokens <= size or len(found) == -(-(num_tokens - overlap) // (size - overlap))


def test_a_token_belongs_to_the_window_with_more_context():
    first, second, third = sliding_windows.make_windows(20, 10, 4)
    assert (first.start, second.start, third.start) == (0, 6, 10)
    assert (first.last, second.last) == (8, 13)


@pytest.mark.parametrize('num_tokens', [0, 1, 10])
def test_a_short_text_is_one_window(num_tokens):
    assert sliding_windows.make_windows(num_tokens, 10, 3) == [(0, num_tokens, 0, num_tokens)]


@given(st.lists(st.integers(1, 9), max_size=40), st.integers(9, 20), st.data())
def test_windows_only_start_and_stop_at_split_points(lengths, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    places = [0, *itertools.accumulate(lengths)]
    found = sliding_windows.make_windows(places[-1], size, overlap, places)
    answered = [token for w in found for token in range(w.first, w.last)]
    assert answered == list(range(places[-1]))
    for window in found:
        assert set(window) <= set(places)
        assert window.start <= window.first <= window.last <= window.stop <= window.start + size
    for left, right in zip(found[:-1], found[1:], strict=True):
        assert left.start < right.start <= left.stop < right.stop
        if right.start < left.stop - overlap:  # more than asked: only for the last to be full
            assert right is found[-1]


def test_split_points_everywhere_are_no_restriction():
    for size, overlap in ((7, 0), (7, 3), (10, 9)):
        assert sliding_windows.make_windows(
            40, size, overlap, list(range(41))
        ) == sliding_windows.make_windows(40, size, overlap)


def test_a_size_of_zero_is_an_error():
    with pytest.raises(UserError, match='leaves 0 tokens for the text'):
        sliding_windows.make_windows(5, 0, 0)

"""Splits a text that is longer than a model's input into overlapping windows."""

import bisect
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from bert_jax.errors import UserError


class Window(NamedTuple):
    """Tokens [start, stop) of a text.

    Predictions are taken from the window only for the tokens [first, last), which have more context
    in this window than in its neighbors.
    """

    start: int
    stop: int
    first: int
    last: int


def make_windows(
    num_tokens: int, size: int, overlap: int, split_points: Sequence[int] | None = None
) -> list[Window]:
    """Cover a text with windows; every token is in [first, last) of exactly one window.

    Args:
        num_tokens: Length of the text in tokens.
        size: Maximum length of a window in tokens.
        overlap: Tokens that neighbors share, 0 ≤ overlap < size. The last window ends with the
            text and is full, so it may share more.
        split_points: Ascending token indices, from 0 to num_tokens and at most `size` apart, at
            which windows may start, stop and meet (see `alignment.Alignment.split_points`);
            anywhere if None. Windows may then be shorter and share fewer tokens.

    Raises:
        UserError: `size` is less than 1.
    """
    if size < 1:
        raise UserError(
            f'the sequence length leaves {size} tokens for the text: increase max_length'
        )
    points = range(num_tokens + 1) if split_points is None else split_points
    spans = [_longest_span(0, size, points)]
    while spans[-1][1] < num_tokens:
        stop = spans[-1][1]
        next_stop = points[bisect.bisect_right(points, stop)]  # every window must add tokens
        start = max(next_stop - size, stop - overlap)
        start = points[bisect.bisect_left(points, min(start, max(num_tokens - size, 0)))]
        spans.append(_longest_span(start, size, points))
    middles = [
        points[bisect.bisect_right(points, (right[0] + left[1]) // 2) - 1]
        for left, right in itertools.pairwise(spans)
    ]
    bounds = itertools.pairwise([0, *middles, num_tokens])
    return [Window(*span, *bound) for span, bound in zip(spans, bounds, strict=True)]


def _longest_span(start: int, size: int, points: Sequence[int]) -> tuple[int, int]:
    return start, points[bisect.bisect_right(points, start + size) - 1]

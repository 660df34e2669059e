"""Cutting a text that is longer than a model's input into overlapping windows."""

import bisect
from collections.abc import Sequence
from typing import NamedTuple

from bert_jax.errors import UserError


class Window(NamedTuple):
    """Tokens start … stop − 1 of a text, of which it answers for first … last − 1: those that have
    more context in it than in its neighbors."""

    start: int
    stop: int
    first: int
    last: int


def cut(
    num_tokens: int, size: int, overlap: int, places: Sequence[int] | None = None
) -> list[Window]:
    """Windows of at most `size` tokens that cover a text; each token is answered for by one.

    Neighbors share `overlap` tokens (0 ≤ overlap < size), the last two perhaps more: the last
    window ends with the text, so that it is full.
    places: where the text may be cut, ascending from 0 to num_tokens and nowhere more than `size`
    apart (see `alignment.Alignment.places`); everywhere if None. A window then starts, stops and
    divides its tokens with a neighbor at such places alone, so that it may be less than full and
    share fewer tokens.
    Raises UserError for a size below 1: nothing of a text has room.
    """
    if size < 1:
        raise UserError(
            f'no token of a text has room in a sequence ({size} are left); make it longer'
        )
    places = range(num_tokens + 1) if places is None else places
    spans = [_span(0, size, places)]
    while spans[-1][1] < num_tokens:
        stop = spans[-1][1]
        following = places[bisect.bisect_right(places, stop)]  # a window must get beyond the last
        start = max(following - size, stop - overlap)
        start = places[bisect.bisect_left(places, min(start, max(num_tokens - size, 0)))]
        spans.append(_span(start, size, places))
    middles = [
        places[bisect.bisect_right(places, (right[0] + left[1]) // 2) - 1]
        for left, right in zip(spans[:-1], spans[1:], strict=True)
    ]
    bounds = [0, *middles, num_tokens]
    return [Window(*span, *bounds[i : i + 2]) for i, span in enumerate(spans)]


def _span(start: int, size: int, places: Sequence[int]) -> tuple[int, int]:
    """From `start` as far as a window reaches."""
    return start, places[bisect.bisect_right(places, start + size) - 1]

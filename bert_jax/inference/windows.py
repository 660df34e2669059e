"""Cutting a text that is longer than a model's input into overlapping windows."""

from typing import NamedTuple


class Window(NamedTuple):
    """Tokens start … stop − 1 of a text, of which it answers for first … last − 1: those that have
    more context in it than in its neighbours."""

    start: int
    stop: int
    first: int
    last: int


def cut(num_tokens: int, size: int, overlap: int) -> list[Window]:
    """Windows of at most `size` tokens that cover a text; each token is answered for by one.

    Neighbours share `overlap` tokens (0 ≤ overlap < size), the last two perhaps more: the last
    window ends with the text, so that it is full.
    """
    if num_tokens <= size:
        return [Window(0, num_tokens, 0, num_tokens)]
    starts = [*range(0, num_tokens - size, size - overlap), num_tokens - size]
    middles = [
        (following + start + size) // 2
        for start, following in zip(starts[:-1], starts[1:], strict=True)
    ]
    bounds = [0, *middles, num_tokens]
    return [Window(s, s + size, bounds[i], bounds[i + 1]) for i, s in enumerate(starts)]

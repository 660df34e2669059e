"""A part of the examples set aside, the same for the same seed, without cutting a group in two."""

import hashlib
from typing import NamedTuple

from bert_jax.data.labeled.examples import Example


class Grouped(NamedTuple):
    """An example and what it shares with those that must stay on its side; '' = with none."""

    example: Example
    group: str


def set_aside(
    found: list[Grouped], fraction: float, seed: int
) -> tuple[list[Grouped], list[Grouped]]:
    """(the rest, about this fraction), each in the order it came; exactly, if there are no groups.

    Groups are taken in an order of their hashed names (examples without: numbers) until the
    fraction is reached as nearly as can be.
    """
    keys = [group or f'#{number}' for number, (_, group) in enumerate(found)]
    sizes: dict[str, int] = {}
    for key in keys:
        sizes[key] = sizes.get(key, 0) + 1
    wanted, taken, count = round(fraction * len(found)), set(), 0
    for key in sorted(sizes, key=lambda key: _hash(seed, key)):
        if abs(count + sizes[key] - wanted) < abs(count - wanted):
            taken.add(key)
            count += sizes[key]
        if count >= wanted:
            break
    rest = [one for one, key in zip(found, keys, strict=True) if key not in taken]
    return rest, [one for one, key in zip(found, keys, strict=True) if key in taken]


def _hash(seed: int, key: str) -> bytes:
    return hashlib.blake2b(f'{seed}/{key}'.encode('utf-8', 'surrogatepass')).digest()

"""Splits off dev and test examples, reproducibly and without separating the examples of a group."""

import collections
import hashlib
from typing import NamedTuple

from bert_jax.data.labeled.examples import Example


class GroupedExample(NamedTuple):
    """An example and the name of the group that must stay in one split; '' for no group."""

    example: Example
    group: str


def split_off(
    examples: list[GroupedExample], fraction: float, seed: int
) -> tuple[list[GroupedExample], list[GroupedExample]]:
    """Split off a fraction of the examples, exactly if there are no groups.

    Groups are drawn in the order of their hashed names (examples without a group: indices) until
    the fraction is reached as closely as possible.

    Returns:
        The remaining examples and those split off, both in their original order.
    """
    keys = [example.group or f'#{number}' for number, example in enumerate(examples)]
    sizes = collections.Counter(keys)
    target, drawn, count = round(fraction * len(examples)), set(), 0
    for key in sorted(sizes, key=lambda key: _hash(seed, key)):
        if abs(count + sizes[key] - target) < abs(count - target):
            drawn.add(key)
            count += sizes[key]
        if count >= target:
            break
    rest = [example for example, key in zip(examples, keys, strict=True) if key not in drawn]
    return rest, [example for example, key in zip(examples, keys, strict=True) if key in drawn]


def _hash(seed: int, key: str) -> bytes:
    return hashlib.blake2b(f'{seed}/{key}'.encode('utf-8', 'surrogatepass')).digest()

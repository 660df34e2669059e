"""Splits off dev and test examples reproducibly, keeping groups and copies together."""

import collections
import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from bert_jax.errors import UserError
from bert_jax.labels.examples import Example, texts_of
from bert_jax.text.held_out import text_hash


class GroupedExample(NamedTuple):
    """An example and its group, which must stay in one split; '' for no group."""

    example: Example
    group: str


class SplitOff(NamedTuple):
    """The result of `split_off`, in the original order.

    Attributes:
        rest: the remaining examples.
        drawn: the examples that are split off.
        left_out: number of examples dropped from drawn groups, as copies of remaining examples.
    """

    rest: list[GroupedExample]
    drawn: list[GroupedExample]
    left_out: int


def split_off(examples: list[GroupedExample], fraction: float, seed: int) -> SplitOff:
    """Split off a fraction of the examples, without copies of the remaining examples.

    Whole groups are drawn; examples without a group form groups of copies, which have the same
    texts up to case, whitespace and order (a pair and its reverse). Groups are drawn in the order
    of a hash until the fraction is reached as closely as possible.
    """
    texts = [text_name([grouped.example]) for grouped in examples]
    units = [grouped.group or text for grouped, text in zip(examples, texts, strict=True)]
    sizes = collections.Counter(units)
    target, chosen, count = round(fraction * len(examples)), set(), 0
    for unit in sorted(sizes, key=lambda unit: _hash(seed, unit)):
        if abs(count + sizes[unit] - target) < abs(count - target):
            chosen.add(unit)
            count += sizes[unit]
        if count >= target:
            break
    rows = list(zip(examples, texts, units, strict=True))
    rest = [grouped for grouped, _, unit in rows if unit not in chosen]
    rest_texts = {text for _, text, unit in rows if unit not in chosen}
    drawn = [grouped for grouped, text, unit in rows if unit in chosen and text not in rest_texts]
    return SplitOff(rest, drawn, count - len(drawn))


def draw(examples: list[GroupedExample], number: int, seed: int) -> list[GroupedExample]:
    """Draw a random subset of at most `number` examples, in their original order."""
    order = sorted(range(len(examples)), key=lambda index: _hash(seed, f'#{index}'))
    return [examples[index] for index in sorted(order[:number])]


def draw_per_class(
    examples: list[GroupedExample], number: int, seed: int
) -> tuple[list[GroupedExample], list[GroupedExample]]:
    """Draw a train and a dev split of `number` examples per class, in random order.

    No two examples have the same texts, and no group is in both splits. The classes of a regression
    are the lower and the upper half of its labels. Source: princeton-nlp/LM-BFF,
    generate_k_shot_data.py, which halves the scale of the labels instead.

    Raises:
        UserError: an example without a class, or a class with too few examples.
    """
    classes = _classes(examples)
    missing = collections.Counter(dict.fromkeys(classes, 2 * number))
    splits: tuple[list[GroupedExample], list[GroupedExample]] = ([], [])
    split_of_group: dict[str, int] = {}
    seen: set[str] = set()
    for index in sorted(range(len(examples)), key=lambda index: _hash(seed, f'#{index}')):
        grouped, label = examples[index], classes[index]
        text, split = text_name([grouped.example]), int(missing[label] <= number)
        if not missing[label] or text in seen or split_of_group.get(grouped.group, split) != split:
            continue
        missing[label] -= 1
        seen.add(text)
        splits[split].append(grouped)
        if grouped.group:
            split_of_group[grouped.group] = split
    if missing.total():
        label, num_missing = missing.most_common(1)[0]
        raise UserError(
            f'data.shots is {number}, but only {2 * number - num_missing} different examples of '
            f'class {label!r} can be drawn; train and dev need {2 * number}'
        )
    return splits


def _classes(examples: list[GroupedExample]) -> list[str]:
    """Return the class of each example; raise UserError unless every example has exactly one."""
    labels: list[Any] = [getattr(grouped.example, 'label', None) for grouped in examples]
    numbers = sorted(label for label in labels if isinstance(label, float))
    if not labels or any(label is None or isinstance(label, tuple) for label in labels):
        raise UserError('data.shots needs examples with one class each; set it to 0')
    if len(numbers) == len(labels):
        return ['upper half' if x >= numbers[len(numbers) // 2] else 'lower half' for x in labels]
    return [str(label) for label in labels]


def text_name(examples: Sequence[Example]) -> str:
    """Return a hash of the texts, which copies of these examples share."""
    texts = sorted(text.casefold() for example in examples for text in texts_of(example))
    return str(text_hash('\0'.join(texts)))


def _hash(seed: int, key: str) -> bytes:
    return hashlib.blake2b(f'{seed}/{key}'.encode('utf-8', 'surrogatepass')).digest()

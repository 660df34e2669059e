"""The settings of a sweep: values of config keys, all combinations or random draws."""

import dataclasses
import itertools
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from bert_jax import config_keys, sampling
from bert_jax.config_keys import Declaration
from bert_jax.errors import UserError, similar
from bert_jax.types import Config

Setting: TypeAlias = Mapping[str, Any]  # config key → value
_RANGE = re.compile(r'(log:)?([^.|]+(?:\.\d[^.|]*)?)\.\.(.+)')
_FORMS = 'KEY=A|B|C, KEY=LOW..HIGH or KEY=log:LOW..HIGH'
_KEPT = ('seed', 'workdir', 'task')  # keys that the sweep itself sets
# Key of `config.sweep` with values of another key → this key.
SHORTCUTS = {'learning_rates': 'schedule.learning_rate', 'ranks': 'transfer.rank'}


class Choice(NamedTuple):
    """One of some values."""

    values: tuple[Any, ...]

    def at(self, share: float) -> Any:
        """Return the value at a share in [0, 1) of the choices."""
        return self.values[int(share * len(self.values))]


@dataclasses.dataclass(frozen=True)
class Range:
    """A number between two others, both included if they are whole.

    Attributes:
        low: the lowest value.
        high: the highest value.
        is_log: whether the logarithm is drawn uniformly.
        is_whole: whether the values are whole numbers.
    """

    low: float
    high: float
    is_log: bool
    is_whole: bool

    def at(self, share: float) -> float | int:
        """Return the value at a share in [0, 1) of the range."""
        low, high = (self.low, self.high + 1) if self.is_whole else (self.low, self.high)
        value = low * (high / low) ** share if self.is_log else low + share * (high - low)
        return min(math.floor(value), int(self.high)) if self.is_whole else value


Axis: TypeAlias = Choice | Range


def settings(config: Config) -> list[Setting]:
    """Return the distinct settings of a sweep, in a fixed order; one without keys is {}.

    A draw depends on its number, so that more trials continue the same sequence.

    Raises:
        UserError: a key does not exist or cannot be searched, or a value is not valid.
    """
    axes = parse(config)
    trials = config.sweep.trials
    if not trials:
        if ranges := [key for key, axis in axes.items() if isinstance(axis, Range)]:
            raise UserError(
                f'sweep.keys has a range of {ranges[0]}, which needs random draws; set '
                'sweep.trials to their number, or list values: KEY=A|B|C'
            )
        values = [axis.values for axis in axes.values() if isinstance(axis, Choice)]
        return [dict(zip(axes, one, strict=True)) for one in itertools.product(*values)]
    drawn: list[Setting] = []
    for trial in range(trials):
        key = sampling.key(config.sweep.trial_seed, trial)
        setting = {
            name: axis.at(float(sampling.uniform(sampling.fold(key, number))[0]))
            for number, (name, axis) in enumerate(axes.items())
        }
        if setting not in drawn:
            drawn.append(setting)
    return drawn


def parse(config: Config) -> dict[str, Axis]:
    """Return the values of each key that is swept: of `sweep.keys` and of SHORTCUTS.

    Raises:
        UserError: see `settings`.
    """
    declared = config_keys.declarations(config)
    axes: dict[str, Axis] = {}
    for text in config.sweep['keys']:
        key, equals, values = text.partition('=')
        if not equals or not values:
            raise UserError(f'sweep.keys has {text!r}; write {_FORMS}')
        if key not in declared:
            close = ' or '.join(similar(key, declared))
            advice = f'did you mean {close}?' if close else 'docs/configs.md documents all keys'
            raise UserError(f'sweep.keys has the unknown config key {key}; {advice}')
        if key in _KEPT or key.startswith('sweep.'):
            raise UserError(f'sweep.keys has {key}, which cannot be searched (seeds: sweep.seeds)')
        if key in axes:
            raise UserError(f'sweep.keys has {key} twice')
        axes[key] = _parse_axis(key, values, declared[key])
    for name, key in SHORTCUTS.items():
        if not (given := config.sweep[name]):
            continue
        if key in axes:
            raise UserError(f'sweep.{name} and sweep.keys both have {key}; leave one of them out')
        for value in given:
            declared[key].check(f'sweep.{name}', value)
        axes[key] = _choice(f'sweep.{name} is {given}', given)
    return axes


def _parse_axis(key: str, text: str, declared: Declaration) -> Axis:
    """Return the values that a text stands for. Raises UserError if one is not valid."""
    found = _RANGE.fullmatch(text) if declared.kind in (int, float) else None
    if found:
        low, high = (
            config_keys.parse_value(f'sweep.keys: {key}', end, declared)
            for end in found.groups()[1:]
        )
        for end in (low, high):
            declared.check(key, end)
        is_log = bool(found[1])
        if not low < high or (is_log and low <= 0):
            above = ' above 0' if is_log else ''
            raise UserError(f'sweep.keys has {key}={text}; write LOW..HIGH with LOW < HIGH{above}')
        return Range(low, high, is_log, declared.kind is int)
    values = tuple(
        config_keys.parse_value(f'sweep.keys: {key}', one, declared) for one in text.split('|')
    )
    for value in values:
        declared.check(key, value)
    return _choice(f'sweep.keys has {key}={text}', values)


def _choice(source: str, values: tuple[Any, ...]) -> Choice:
    if len(set(values)) < len(values):
        raise UserError(f'{source}; its values must differ')
    return Choice(values)

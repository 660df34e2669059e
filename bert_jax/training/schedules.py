"""Learning-rate schedules by name: functions from step number to learning rate."""

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp

from bert_jax import errors
from bert_jax.types import Config

Schedule: TypeAlias = Callable[[jax.typing.ArrayLike], jax.Array]
_POSITIONS = 1_000_000  # least number of steps of a schedule over time


@dataclasses.dataclass(frozen=True)
class Shape:
    """The form of a schedule.

    Attributes:
        decay: function from the elapsed fraction t of the decay to the remaining fraction of the
            difference between `learning_rate` and the last learning rate.
        lowest: the first and the last learning rate as a share of `learning_rate`. None: the
            warmup starts at 0, and the last rate is `end_learning_rate`.
    """

    decay: Callable[[jax.Array], jax.Array]
    lowest: float | None = None


def _linear(t: jax.Array) -> jax.Array:
    return 1 - t


SHAPES: dict[str, Shape] = {
    'bert_linear': Shape(_linear),
    'linear': Shape(_linear),
    'slanted_triangular': Shape(_linear, lowest=1 / 32),
    'cosine': Shape(lambda t: 0.5 + 0.5 * jnp.cos(jnp.pi * t)),
    'sqrt': Shape(lambda t: 1 - jnp.sqrt(t)),
    'constant': Shape(jnp.ones_like),
}


def build(config: Config, total_steps: int, peak: float | None = None) -> Schedule:
    """Build the schedule `config.name`, a function of the number of previous steps.

    All schedules but 'slanted_triangular' start with a linear warmup from 0 to `learning_rate` (the
    very first update therefore has learning rate 0, as published) and reach `end_learning_rate` at
    `total_steps`:

    - 'bert_linear': linear from `learning_rate` at step 0; the warmup only replaces its beginning,
      so the learning rate drops a little where the warmup ends (google-research/bert,
      optimization.py).
    - 'linear', 'cosine', 'sqrt' (1 − √t): decay from `learning_rate` at the end of the warmup or,
      with `decay_steps`, over the last `decay_steps` steps, after a constant learning rate (a
      trapezoid; with 'sqrt' as ModernBERT, Warner et al. 2024, arXiv 2412.13663, section 2.2.2).
    - 'slanted_triangular': linear from `learning_rate` / 32 up to `learning_rate` and back (ULMFiT,
      Howard & Ruder 2018, arXiv 1801.06146, section 3.2, with its `ratio` 32; its `cut_frac` is
      `warmup_fraction`).
    - 'constant': `learning_rate`.

    Args:
        config: has the attributes `name`, `learning_rate`, `end_learning_rate`, `decay_steps`, and
            those of `warmup_length`.
        total_steps: number of steps of the run; the learning rate is constant afterwards.
        peak: the learning rate, if not `config.learning_rate`.

    Raises:
        UserError: `end_learning_rate` is above `learning_rate`, or warmup and
            decay do not fit into the run.
    """
    peak, shape = peak or config.learning_rate, SHAPES[config.name]
    lowest = 0.0 if shape.lowest is None else shape.lowest * peak
    end = config.end_learning_rate if shape.lowest is None else lowest
    if end > peak:
        raise errors.UserError(
            f'schedule.end_learning_rate is {end}; it must not be above learning_rate, {peak}'
        )
    warmup = warmup_length(config, total_steps)
    if warmup >= total_steps:
        raise errors.UserError(
            f'schedule.warmup_steps is {warmup}, but the run has {total_steps} steps; make the '
            'warmup shorter than the run'
        )
    start = _decay_start(config, warmup, total_steps)

    def schedule(step: jax.typing.ArrayLike) -> jax.Array:
        step = jnp.minimum(step, total_steps).astype(jnp.float32)
        elapsed = jnp.maximum(step - start, 0) / (total_steps - start)
        decayed = end + (peak - end) * shape.decay(elapsed)
        warming = lowest + (peak - lowest) * step / max(warmup, 1)
        return jnp.where(step < warmup, warming, decayed)

    return schedule


def build_timed(config: Config, total_steps: int, peak: float | None = None) -> Schedule:
    """Build a schedule that is a function of the elapsed share of the run's time, in [0, 1].

    Args:
        config: see `build`. Numbers of steps are shares of `total_steps`.
        total_steps: the unit of the config's numbers of steps.
        peak: see `build`.

    Raises:
        UserError: see `build`.
    """
    from ml_collections import ConfigDict  # steps are measured on machines without it

    finer = -(-_POSITIONS // total_steps)
    scaled = ConfigDict(config.to_dict())
    scaled.decay_steps *= finer
    if config.warmup_steps is not None:
        scaled.warmup_steps *= finer
    schedule = build(scaled, finer * total_steps, peak)
    return lambda position: schedule(position * jnp.float32(finer * total_steps))


def warmup_length(config: Config, total_steps: int) -> int:
    """Return the steps of the warmup: `warmup_steps`, or `warmup_fraction` of the run if unset."""
    if config.warmup_steps is not None:
        return int(config.warmup_steps)
    return int(round(config.warmup_fraction * total_steps))


def duration(config: Config, key: str, total_steps: int) -> int:
    """Return a number of steps, set by the config's `KEY_steps` or `KEY_fraction` (of the run).

    Args:
        config: the section of the config that has these keys.
        key: the key with its section, such as 'transfer.unfreeze_every'.
        total_steps: number of steps of the run.

    Raises:
        UserError: both are set.
    """
    name = key.rpartition('.')[2]
    steps, fraction = config[f'{name}_steps'], config[f'{name}_fraction']
    if steps and fraction:
        raise errors.UserError(
            f'{key}_steps is {steps} and {key}_fraction is {fraction}; set one of them to 0'
        )
    return int(steps or round(fraction * total_steps))


def _decay_start(config: Config, warmup: int, total_steps: int) -> int:
    """The step at which the decay starts."""
    if config.name == 'bert_linear':
        return 0
    if not config.decay_steps:
        return warmup
    if config.decay_steps > total_steps - warmup:
        raise errors.UserError(
            f'schedule.decay_steps is {config.decay_steps}; it must fit into the '
            f'{total_steps - warmup} steps after the warmup'
        )
    return int(total_steps - config.decay_steps)

"""Learning-rate schedules by name: a step number in, a rate out."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax import errors

Schedule = Callable[[jax.typing.ArrayLike], jax.Array]

# What is left of the way from the peak to the end, where `done` of the decay lies behind.
_DECAYS = {
    'bert_linear': lambda done: 1 - done,
    'linear': lambda done: 1 - done,
    'cosine': lambda done: 0.5 + 0.5 * jnp.cos(jnp.pi * done),
    'sqrt': lambda done: 1 - jnp.sqrt(done),
    'constant': jnp.ones_like,
}


def build(config: Any, total_steps: int) -> Schedule:
    """The schedule `config.name`, a function of the number of updates already done.

    All begin with a linear warmup from 0 to `learning_rate` over `warmup_steps`, or over
    `warmup_fraction` of the run (the very first update therefore has rate 0, as published) and end
    at `end_learning_rate`, reached at `total_steps` and kept from there on:

    - 'bert_linear': straight from `learning_rate` at step 0 to the end; the warmup only replaces
      its beginning, so the rate drops a little where the warmup ends (google-research/bert,
      optimization.py).
    - 'linear', 'cosine', 'sqrt' (1 − √t): from `learning_rate` at the end of the warmup to the end
      or, with `decay_steps`, over that many last steps after a constant rate (a trapezoid; with
      'sqrt' as ModernBERT, Warner et al. 2024, section 2.2.2).
    - 'constant': `learning_rate` to the end, whatever `end_learning_rate` says.

    `config` has the attributes name, learning_rate, end_learning_rate, warmup_steps,
    warmup_fraction and decay_steps. Raises UserError for an unknown name, a rate that is not
    positive, and steps of warmup and decay that do not fit into the run.
    """
    peak, end = config.learning_rate, config.end_learning_rate
    if config.name not in _DECAYS:
        raise errors.unknown('schedule', config.name, _DECAYS)
    if not 0 <= end <= peak or peak == 0:
        raise errors.UserError(
            f'schedule: learning_rate {peak} must be above 0 and end_learning_rate {end} between'
            ' 0 and it'
        )
    warmup = duration(config, 'warmup', total_steps)
    if warmup >= total_steps:
        raise errors.UserError(
            f'schedule: warmup_steps is {warmup} but the run has {total_steps} steps; the warmup'
            ' must be shorter than the run'
        )
    start, decay = _decay_start(config, warmup, total_steps), _DECAYS[config.name]

    def schedule(step: jax.typing.ArrayLike) -> jax.Array:
        step = jnp.minimum(step, total_steps).astype(jnp.float32)
        done = jnp.maximum(step - start, 0) / (total_steps - start)
        decayed = end + (peak - end) * decay(done)
        return jnp.where(step < warmup, peak * step / max(warmup, 1), decayed)

    return schedule


def duration(config: Any, name: str, total_steps: int) -> int:
    """Steps, from `config`'s NAME_steps or its NAME_fraction of the run, of which one must be 0.

    Raises UserError if both are set or one is out of range.
    """
    steps, fraction = config[f'{name}_steps'], config[f'{name}_fraction']
    if steps and fraction:
        raise errors.UserError(
            f'{name}_steps is {steps} and {name}_fraction {fraction}; set one of them to 0'
        )
    if steps < 0 or not 0 <= fraction < 1:
        raise errors.UserError(
            f'{name}_steps is {steps} and {name}_fraction {fraction}; steps must be at least 0 and '
            'a fraction of the run below 1'
        )
    return steps or round(fraction * total_steps)


def _decay_start(config: Any, warmup: int, total_steps: int) -> int:
    """The step from which the rate falls."""
    if not config.decay_steps:
        return 0 if config.name == 'bert_linear' else warmup
    if config.name in ('bert_linear', 'constant'):
        raise errors.UserError(f'schedule: decay_steps has no meaning for {config.name!r}; set 0')
    if not 0 < config.decay_steps <= total_steps - warmup:
        raise errors.UserError(
            f'schedule: decay_steps is {config.decay_steps}, must be at least 0 and fit into the '
            f'{total_steps - warmup} steps after the warmup'
        )
    return total_steps - config.decay_steps

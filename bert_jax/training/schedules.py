"""Learning-rate schedules by name: a step number in, a rate out."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax import errors

Schedule = Callable[[jax.typing.ArrayLike], jax.Array]

# What is left of the way from the peak to the end, at a step of the decay: 1 at first, 0 at last.
_DECAYS = {
    'bert_linear': lambda step, warmup, total: 1 - step / total,
    'linear': lambda step, warmup, total: 1 - (step - warmup) / (total - warmup),
    'cosine': lambda step, warmup, total: (
        0.5 + 0.5 * jnp.cos(jnp.pi * (step - warmup) / (total - warmup))
    ),
    'constant': lambda step, warmup, total: jnp.ones_like(step),
}


def build(config: Any, total_steps: int) -> Schedule:
    """The schedule `config.name`, a function of the number of updates already done.

    All begin with a linear warmup from 0 to `learning_rate` over `warmup_steps` (the very first
    update therefore has rate 0, as published) and end at `end_learning_rate`, reached at
    `total_steps` and kept from there on:

    - 'bert_linear': straight from `learning_rate` at step 0 to the end; the warmup only replaces
      its beginning, so the rate drops a little where the warmup ends (google-research/bert,
      optimization.py).
    - 'linear', 'cosine': from `learning_rate` at the end of the warmup to the end.
    - 'constant': `learning_rate` to the end, whatever `end_learning_rate` says.

    `config` has the attributes name, learning_rate, end_learning_rate and warmup_steps. Raises
    UserError for an unknown name, a rate that is not positive, and a warmup that does not end
    before the run does.
    """
    peak, end, warmup = config.learning_rate, config.end_learning_rate, config.warmup_steps
    if config.name not in _DECAYS:
        raise errors.unknown('schedule', config.name, _DECAYS)
    if not 0 <= end <= peak or peak == 0:
        raise errors.UserError(
            f'schedule: learning_rate {peak} must be above 0 and end_learning_rate {end} between'
            ' 0 and it'
        )
    if not 0 <= warmup < total_steps:
        raise errors.UserError(
            f'schedule: warmup_steps is {warmup} but the run has {total_steps} steps; the warmup'
            ' must be shorter than the run'
        )
    decay = _DECAYS[config.name]

    def schedule(step: jax.typing.ArrayLike) -> jax.Array:
        step = jnp.minimum(step, total_steps).astype(jnp.float32)
        decayed = end + (peak - end) * decay(step, warmup, total_steps)
        return jnp.where(step < warmup, peak * step / max(warmup, 1), decayed)

    return schedule

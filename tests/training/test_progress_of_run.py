"""The loss of a step is told which share of the run has passed."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.averages import Term
from bert_jax.training.state import TrainState
from bert_jax.training.step import make_train_step


class Progress:
    """Its loss is the share of the run that has passed, times a parameter."""

    weights = {'loss': 1.0}

    def terms(self, params, batch, key, train, progress=1.0):
        rows = jnp.float32(len(batch['x']))
        return {'loss': Term(rows * progress * params['w'], rows)}


def state(step):
    params = {'w': jnp.float32(1)}
    optimizer = optax.GradientTransformationExtraArgs(
        lambda params: (), lambda updates, state, params, **extra: (updates, state)
    )
    zero = jnp.int32(0)
    return optimizer, TrainState(jnp.int32(step), zero, zero, params, (), None, None)


@pytest.mark.parametrize('accumulation', [1, 2])
@pytest.mark.parametrize(
    ('step', 'total_steps', 'position', 'expected'),
    [(0, 8, None, 0), (2, 8, None, 0.25), (9, 8, None, 1), (2, 0, None, 1), (2, 8, 0.75, 0.75)],
)
def test_the_share_counts_steps_or_time(accumulation, step, total_steps, position, expected):
    optimizer, before = state(step)
    train_step = make_train_step(Progress(), optimizer, accumulation, total_steps=total_steps)
    batch = {'x': np.zeros((4, 1), np.float32)}
    given = [] if position is None else [jnp.float32(position)]
    _, metrics = jax.jit(train_step)(before, batch, jax.random.key(0), *given)
    assert float(metrics['loss']) == expected
    assert float(metrics['gradient_norm']) == expected

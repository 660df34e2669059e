"""A loss on the whole batch trains the same on any mesh and in any micro-batches, with dropout."""

import dataclasses
import functools

import flax.linen as nn
import jax
import numpy as np
import pytest

from bert_jax.training import optimizers, sharding
from bert_jax.training.state import abstract_state, initial_state
from bert_jax.training.step import make_train_step
from configs import base
from tests.multidevice.test_invariance import MESHES, make_mesh
from tests.problems.embedding.small import task_of
from tests.training import synthetic

pytestmark = pytest.mark.eight_devices

RULES = base.get_config().sharding_rules
STEPS, ROWS = 3, 16


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    """A function that trains on a mesh of MESHES and returns losses, accuracies and parameters."""
    folder = tmp_path_factory.mktemp('pairs')
    one = task_of(folder, dropout=0.3, training__batch_size=9)

    @functools.cache
    def train(name, accumulation=1):
        config = one.config.copy_and_resolve_references()
        config.training.accumulation = accumulation
        task = dataclasses.replace(one, config=config)
        source = task.source.with_shape(task.source.shape._replace(rows=ROWS))
        optimizer = optimizers.build(synthetic.OPTIMIZER, lambda step: 1e-3)
        mesh, terms = make_mesh(MESHES[name]), []
        with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
            state = initial_state(task, optimizer, abstract_state(task, optimizer, mesh, RULES), 0)
            step = jax.jit(make_train_step(task, optimizer), donate_argnums=0)
            for number in range(STEPS):
                batch = jax.device_put(source.batch(number), sharding.batch_sharding(mesh))
                state, metrics = step(state, batch, jax.random.key(1))
                found = metrics['terms']
                assert float(found['embedding'].count) == pytest.approx(9)
                terms.append([float(metrics['loss']), float(found['accuracy'].sum)])
            return terms, jax.device_get(state.params)

    return train


@pytest.mark.parametrize(
    ('name', 'accumulation'),
    [
        ('8 × data', 2),
        pytest.param('8 × data', 1, marks=pytest.mark.slow),
        pytest.param('one device', 16, marks=pytest.mark.slow),
        pytest.param('8 × fsdp', 1, marks=pytest.mark.slow),
        pytest.param('2 × 2 × 2', 2, marks=pytest.mark.slow),
    ],
)
def test_losses_and_parameters_are_those_of_one_device(run, name, accumulation):
    terms, params = run(name, accumulation)
    expected, expected_params = run('one device')
    np.testing.assert_allclose(terms, expected, rtol=1e-5)
    assert terms[0] != terms[1]
    # Adam divides by √v: for a gradient close to 0 the rounding decides the sign of the update.
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-5), params, expected_params
    )

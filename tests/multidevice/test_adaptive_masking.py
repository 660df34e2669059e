"""Adaptive masking learns the same weights on any mesh and in micro-batches."""

import flax.linen as nn
import jax
import numpy as np
import pytest

from bert_jax.tasks.pretraining import builder
from bert_jax.training import optimizers, sharding
from bert_jax.training.state import abstract_state, initial_state
from bert_jax.training.step import make_train_step
from configs import base
from tests.end_to_end import small
from tests.multidevice.test_invariance import MESHES, make_mesh
from tests.training import synthetic

pytestmark = pytest.mark.eight_devices

RULES = base.get_config().sharding_rules


@pytest.fixture(scope='module')
def task(tmp_path_factory):
    adaptive = {'masking__scheme': 'adaptive', 'masking__adapt_every': 2}
    config = small.config(tmp_path_factory.mktemp('adaptive'), **small.ONE_STAGE | adaptive)
    return builder.build(config)


@pytest.fixture(scope='module')
def run(task):
    """A function that trains 3 steps on a mesh of MESHES and returns memory and loss."""
    optimizer = optimizers.build(synthetic.OPTIMIZER, lambda step: 0.02)

    def train(name, accumulation):
        mesh = make_mesh(MESHES[name])
        with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
            abstract = abstract_state(task, optimizer, mesh, RULES)
            state = initial_state(task, optimizer, abstract, seed=0)
            step = jax.jit(make_train_step(task, optimizer, accumulation), donate_argnums=0)
            for number in range(3):
                batch = task.stages[0].source.batch(number)
                batch = jax.device_put(batch, sharding.batch_sharding(mesh))
                state, metrics = step(state, batch, jax.random.key(1))
            return jax.device_get((state.memory, metrics['loss']))

    return train


@pytest.fixture(scope='module')
def reference(run):
    return run('one device', 1)


@pytest.mark.parametrize('name', ['8 × data', pytest.param('2 × 2 × 2', marks=pytest.mark.slow)])
def test_memory_does_not_depend_on_mesh_and_micro_batches(run, reference, name):
    (memory, loss), (expected, expected_loss) = run(name, 2), reference
    assert np.ptp(expected.weights_V) > 0.01
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)
    np.testing.assert_allclose(memory.weights_V, expected.weights_V, atol=1e-6)
    np.testing.assert_array_equal(memory.hidden_V, expected.hidden_V)
    np.testing.assert_array_equal(memory.correct_V, expected.correct_V)

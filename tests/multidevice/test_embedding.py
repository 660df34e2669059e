"""Losses train the same on any mesh and in any micro-batches, with dropout and noise."""

import dataclasses
import functools

import flax.linen as nn
import jax
import numpy as np
import pytest

from bert_jax.tasks import make_task
from bert_jax.training import optimizers, sharding
from bert_jax.training.state import abstract_state, initial_state
from bert_jax.training.step import make_train_step
from configs import base
from tests.multidevice.test_invariance import MESHES, make_mesh
from tests.problems.embedding.small import config_of, task_of, texts
from tests.training import synthetic

pytestmark = pytest.mark.eight_devices

RULES = base.get_config().sharding_rules
STEPS, ROWS = 3, 16


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    """A function that trains on a mesh of MESHES and returns losses, accuracies and parameters."""

    @functools.cache
    def task_with(loss):
        folder = tmp_path_factory.mktemp(loss)
        keys = dict(problem__loss=loss, training__batch_size=9)
        if loss == 'tsdae':
            return make_task(config_of(folder, texts(30), dropout=0.3, **keys))
        return task_of(folder, dropout=0.3, **keys)

    @functools.cache
    def train(loss, name, accumulation=1):
        one = task_with(loss)
        config = one.config.copy_and_resolve_references()
        config.training.accumulation = accumulation
        task = dataclasses.replace(one, config=config)
        source = task.source.with_shape(task.source.shape._replace(rows=ROWS))
        optimizer = optimizers.build(synthetic.OPTIMIZER, lambda step: 1e-3)
        mesh, terms = make_mesh(MESHES[name]), []
        with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
            state = initial_state(task, optimizer, abstract_state(task, optimizer, mesh, RULES), 0)
            micro_batches = 1 if task.problem.loss.reads_whole_batch else accumulation
            step = jax.jit(make_train_step(task, optimizer, micro_batches), donate_argnums=0)
            for number in range(STEPS):
                batch = jax.device_put(source.batch(number), sharding.batch_sharding(mesh))
                state, metrics = step(state, batch, jax.random.key(1))
                found = metrics['terms']
                if loss == 'in_batch':
                    assert float(found['embedding'].count) == pytest.approx(9)
                accuracy = found['token_accuracy' if loss == 'tsdae' else 'accuracy']
                terms.append([float(metrics['loss']), float(accuracy.sum)])
            return terms, jax.device_get(state.params)

    return train


@pytest.mark.parametrize('loss', ['in_batch', pytest.param('tsdae', marks=pytest.mark.slow)])
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
def test_losses_and_parameters_are_those_of_one_device(run, loss, name, accumulation):
    terms, params = run(loss, name, accumulation)
    expected, expected_params = run(loss, 'one device')
    np.testing.assert_allclose(terms, expected, rtol=1e-5)
    assert terms[0] != terms[1]
    # Adam divides by √v: for a gradient close to 0 the rounding decides the sign of the update.
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-5), params, expected_params
    )

"""SPLADE trains the same on eight devices and in micro-batches, its warm-up included."""

import dataclasses

import flax.linen as nn
import jax
import numpy as np
import pytest

from bert_jax.tasks import make_task
from bert_jax.training import optimizers, sharding
from bert_jax.training.state import abstract_state, initial_state
from bert_jax.training.step import make_train_step
from configs import base
from tests.end_to_end.test_sparse_embedding import config_of
from tests.interop import published
from tests.multidevice.test_invariance import MESHES, make_mesh
from tests.training import synthetic

pytestmark = pytest.mark.eight_devices

RULES = base.get_config().sharding_rules


@pytest.fixture(scope='module')
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp('sparse')
    return make_task(config_of(published.folder(folder / 'mlm', 'BertForMaskedLM'), folder))


def train(task, name, accumulation=1):
    """Two steps; the losses and regularizers of both, and the parameters."""
    config = task.config.copy_and_resolve_references()
    config.training.accumulation = accumulation
    task = dataclasses.replace(task, config=config)
    source = task.source.with_shape(task.source.shape._replace(rows=16))
    optimizer = optimizers.build(synthetic.OPTIMIZER, lambda step: 1e-3)
    mesh, terms = make_mesh(MESHES[name]), []
    with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
        state = initial_state(task, optimizer, abstract_state(task, optimizer, mesh, RULES), 0)
        step = jax.jit(make_train_step(task, optimizer, total_steps=9), donate_argnums=0)
        for number in range(2):
            batch = jax.device_put(source.batch(number), sharding.batch_sharding(mesh))
            state, metrics = step(state, batch, jax.random.key(1))
            found = metrics['terms']
            terms.append([float(metrics['loss']), float(found['regularizer'].sum)])
        return terms, jax.device_get(state.params)


@pytest.mark.parametrize('accumulation', [pytest.param(1, marks=pytest.mark.slow), 2])
def test_loss_and_parameters_are_those_of_one_device(task, accumulation):
    expected, params = train(task, 'one device')
    assert expected[0][1] == 0  # the warm-up begins at 0
    assert expected[1][1] > 0
    found, own = train(task, '8 × data', accumulation)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), own, params)

"""The memory estimate of a compiled step, checked against the arrays, and its advice."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.training import devices, sharding
from bert_jax.training.state import TrainState
from bert_jax.training.step import compile_train_step

pytestmark = pytest.mark.eight_devices

ROWS, WIDTH, CLASSES = 64, 32, 4096


def compile_step(mesh):
    """Compile the step of a linear classifier: (compiled, state, batch)."""
    optimizer = optax.adam(1e-3)

    def train_step(state, batch, key):
        def loss(params):
            logits = jnp.tanh(batch['x'] @ params['w'])
            return jnp.mean(jax.nn.logsumexp(jnp.sin(logits), axis=-1))

        updates, opt_state = optimizer.update(jax.grad(loss)(state.params), state.opt_state)
        params = optax.apply_updates(state.params, updates)
        return state._replace(params=params, opt_state=opt_state), {}

    params = {'w': jnp.ones((WIDTH, CLASSES))}
    state = TrainState(*jnp.zeros((3,), jnp.int32), params, optimizer.init(params))
    state = jax.device_put(state, sharding.replicated(mesh))
    batch = jax.device_put({'x': jnp.ones((ROWS, WIDTH))}, sharding.batch_sharding(mesh))
    return compile_train_step(train_step, state, batch), state, batch


@pytest.fixture
def mesh():
    return sharding.make_mesh({'data': 8, 'fsdp': 1, 'tensor': 1})


@pytest.fixture
def estimate(mesh):
    with jax.set_mesh(mesh):
        return devices.MemoryEstimate.of(*compile_step(mesh))


def test_sizes_are_those_of_the_arrays_on_one_device(estimate):
    assert estimate.parameters == 4 * WIDTH * CLASSES
    assert estimate.optimizer == 2 * estimate.parameters + 4  # a counter
    assert estimate.batch == 4 * ROWS * WIDTH // 8
    gradients, logits = estimate.parameters, 4 * ROWS // 8 * CLASSES
    assert estimate.temporaries >= gradients + logits
    assert estimate.temporaries < 4 * (gradients + logits)
    parts = estimate.parameters + estimate.optimizer + estimate.batch + estimate.temporaries
    assert estimate.total == parts


def test_an_evaluation_that_needs_more_than_a_training_step_counts(estimate, mesh):
    def evaluate(logits):
        return jnp.sort(jnp.sin(logits), axis=-1).sum()

    logits = jax.ShapeDtypeStruct((64 * ROWS, CLASSES), jnp.float32)
    with jax.set_mesh(mesh):
        step = compile_step(mesh)
        found = devices.MemoryEstimate.of(*step, jax.jit(evaluate).lower(logits).compile())
    assert found.evaluation >= 4 * 64 * ROWS * CLASSES > estimate.temporaries
    assert found.total == estimate.total - estimate.temporaries + found.evaluation


def test_the_table_names_every_part(estimate):
    title, *lines = estimate.table(3 * 2**30)
    assert 'each device' in title
    assert [line.split()[0] for line in lines] == [
        *('parameters', 'optimizer', 'batch', 'gradients,', 'or', 'total')
    ]
    assert lines[1].split()[-1] == f'{estimate.optimizer / 2**20:,.0f}'
    assert lines[5].endswith('of 3,072')
    assert 'unknown' in estimate._replace(temporaries=None).table(None)[4]


def test_advice_names_only_what_can_be_changed(estimate, mesh):
    stage = types.SimpleNamespace(source=types.SimpleNamespace(batch_size=64), accumulation=4)
    with jax.set_mesh(mesh):
        assert estimate.warning(stage, remat=False, limit=estimate.total) is None
        assert estimate.warning(stage, remat=False, limit=None) is None
        line = estimate.warning(stage, remat=False, limit=estimate.total - 1)
        for part in ('accumulation', 'compute.remat=True', 'mesh.fsdp=8', 'smaller'):
            assert part in line
        stage.accumulation = 8  # one row on each device
        line = estimate.warning(stage, remat=True, limit=estimate.total - 1)
    assert 'accumulation' not in line
    assert 'remat' not in line


def test_simulated_devices_share_the_memory_of_the_machine():
    shared = devices.device_bytes() * jax.local_device_count()
    assert devices.peak_bytes() < shared
    with open('/proc/meminfo') as file:
        kib = int(file.readline().split()[1])
    assert shared <= 1024 * kib
    assert np.isclose(devices.local_bytes({'x': jnp.ones((3, 5))}), 60)

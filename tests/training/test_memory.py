"""The table of memory: counted against the arrays themselves, and what it advises."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.training import allocator, compilation, hardware, memory, sharding
from bert_jax.training.state import TrainState
from bert_jax.training.step import TrainStep

ROWS, WIDTH, CLASSES = 64, 32, 4096


def compile_step(mesh):
    """A linear classifier's step: (compiled, state, batch)."""
    optimizer = optax.adam(1e-3)

    def gradients(params, step, batch):
        def loss(params):
            logits = jnp.tanh(batch['x'] @ params['w'])
            return jnp.mean(jax.nn.logsumexp(jnp.sin(logits), axis=-1))

        value, grads = jax.value_and_grad(loss)(params)
        return value, {}, optax.tree.norm(grads), grads

    def update(state, loss, terms, norm, grads):
        updates, opt_state = optimizer.update(grads, state.opt_state)
        params = optax.apply_updates(state.params, updates)
        return state._replace(params=params, opt_state=opt_state), {}

    same = sharding.replicated(mesh)
    params = {'w': jnp.ones((WIDTH, CLASSES))}
    state = TrainState(*jnp.zeros((3,), jnp.int32), params, optimizer.init(params))
    state = jax.device_put(state, same)
    batch = jax.device_put({'x': jnp.ones((ROWS, WIDTH))}, sharding.batch_sharding(mesh))
    step = TrainStep(gradients, update, trained=lambda params: params)
    return compilation.compile_step(step, state, batch), state, batch


@pytest.fixture(scope='module')
def mesh():
    return sharding.make_mesh({'data': 8, 'fsdp': 1, 'tensor': 1})


@pytest.fixture(scope='module')
def needs(mesh):
    with jax.set_mesh(mesh):
        return memory.MemoryEstimate.of(*compile_step(mesh))


def test_sizes_are_those_of_the_arrays_of_one_device(needs):
    assert needs.parameters == 4 * WIDTH * CLASSES
    assert needs.optimizer == 2 * needs.parameters + 4  # a counter
    assert needs.batch == 4 * ROWS * WIDTH // 8
    logits = (ROWS // 8, CLASSES)
    assert needs.largest.shape == logits
    gradients = needs.parameters
    assert needs.temporaries >= gradients + 4 * np.prod(logits)
    parts = needs.parameters + needs.optimizer + needs.batch + needs.temporaries
    assert needs.total == parts


def test_memory_is_given_back_after_compiling_and_after_the_first_step(mesh, monkeypatch):
    times = []
    monkeypatch.setattr(allocator, 'give_back_freed_memory', lambda: times.append(len(times)))
    with jax.set_mesh(mesh):
        step, state, batch = compile_step(mesh)
        assert len(times) == 1
        for _ in range(3):
            state, _ = step(state, batch)
            assert len(times) == 2


def test_the_table_names_every_part(needs, monkeypatch):
    monkeypatch.setattr(memory, 'device_bytes', lambda: 3 * 2**30)
    title, *lines = needs.table()
    assert 'each device' in title
    assert [line.split()[0] for line in lines] == [
        *('parameters', 'optimizer', 'batch', 'gradients,', 'total')
    ]
    assert lines[3].endswith(f'largest f32[{ROWS // 8},{CLASSES}] 0')
    assert lines[4].endswith('of 3,072')


def test_advice_names_only_what_can_be_changed(needs, mesh, monkeypatch):
    stage = types.SimpleNamespace(source=types.SimpleNamespace(batch_size=64), accumulation=4)
    with jax.set_mesh(mesh):
        monkeypatch.setattr(memory, 'device_bytes', lambda: needs.total)
        assert needs.warning(stage, remat=False) == []
        monkeypatch.setattr(memory, 'device_bytes', lambda: needs.total - 1)
        (line,) = needs.warning(stage, remat=False)
        for part in ('accumulation', 'compute.remat=True', 'mesh.fsdp=8', 'smaller'):
            assert part in line
        stage.accumulation = 8  # one row on each device
        (line,) = needs.warning(stage, remat=True)
    assert 'accumulation' not in line
    assert 'remat' not in line


def test_a_cpu_has_the_memory_of_the_machine():
    shared = memory.device_bytes() * jax.local_device_count()
    assert hardware.peak_memory_bytes() < shared
    with open('/proc/meminfo') as file:
        kib = int(file.readline().split()[1])
    assert shared <= 1024 * kib

"""Training is the same on any mesh and with any number of micro-batches, with dropout."""

import dataclasses
import functools
import json

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest
from ml_collections import ConfigDict

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.models import tuning
from bert_jax.models.architecture import Compute
from bert_jax.tasks import make_task
from bert_jax.training import loop, optimizers, sharding
from bert_jax.training.state import TrainState, abstract_state, initial_state
from bert_jax.training.step import make_train_step
from bert_jax.training.transfer import TRAIN_ALL, Transfer
from bert_jax.training.workdir import Workdir
from configs import base, finetune
from tests.training import synthetic

pytestmark = pytest.mark.eight_devices

RULES = base.get_config().sharding_rules
MESHES = {
    'one device': {'data': 1, 'fsdp': 1, 'tensor': 1},
    '8 × data': {'data': 8, 'fsdp': 1, 'tensor': 1},
    '8 × fsdp': {'data': 1, 'fsdp': 8, 'tensor': 1},
    '2 × 2 × 2': {'data': 2, 'fsdp': 2, 'tensor': 2},
}
STEPS = 5
MUON = (synthetic.ARCHITECTURE, TRAIN_ALL, 'muon')


def make_mesh(sizes):
    shape = tuple(sizes.values())
    devices = np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape)
    return jax.sharding.Mesh(
        devices, sharding.AXES, axis_types=(jax.sharding.AxisType.Auto,) * len(shape)
    )


@functools.cache
def run(
    name,
    accumulation=1,
    architecture=synthetic.ARCHITECTURE,
    chosen=TRAIN_ALL,
    optimizer_name='bert_adam',
    scan_layers=False,
):
    """Train 5 steps on a mesh of MESHES and return (losses, parameters)."""
    task = synthetic.SyntheticTask(architecture, Compute(scan_layers=scan_layers))
    config = ConfigDict(synthetic.OPTIMIZER.to_dict() | {'name': optimizer_name})
    optimizer = optimizers.build(config, lambda step: 1e-3)
    mesh = make_mesh(MESHES[name])
    with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
        abstract = abstract_state(task, optimizer, mesh, RULES, chosen)
        state = initial_state(task, optimizer, abstract, 0, chosen)
        step = jax.jit(make_train_step(task, optimizer, accumulation, chosen), donate_argnums=0)
        losses = []
        for number in range(STEPS):
            batch = jax.device_put(synthetic.batch(number), sharding.batch_sharding(mesh))
            state, metrics = step(state, batch, jax.random.key(1))
            losses.append(float(metrics['loss']))
        return losses, jax.device_get(state.params)


def agree(ours, *arguments):
    reference = run('one device', *arguments)
    np.testing.assert_allclose(ours[0], reference[0], rtol=1e-5)
    # Adam divides by √v, so for a gradient close to 0 the rounding decides the sign of the update.
    # The bound is therefore absolute; the values are between about 0.02 and 1.
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), ours[1], reference[1]
    )


SLOW = pytest.mark.slow


# '2 × 2 × 2' divides over all axes; micro-batches on this mesh are a quick test below.
@pytest.mark.slow
@pytest.mark.parametrize('name', [name for name in MESHES if name != 'one device'])
def test_every_mesh_trains_the_same(name):
    agree(run(name))


@pytest.mark.parametrize('scan_layers', [pytest.param(False, marks=SLOW), True])
def test_muon_is_the_same_with_kernels_divided_over_devices(scan_layers):
    agree(run('2 × 2 × 2', 1, *MUON, scan_layers), 1, *MUON, scan_layers)


@pytest.mark.parametrize('name', ['2 × 2 × 2', pytest.param('one device', marks=SLOW)])
def test_four_micro_batches_train_the_same(name):
    agree(run(name, accumulation=4))


@pytest.mark.parametrize(
    'method', ['mam', *(pytest.param(name, marks=pytest.mark.slow) for name in ('lora', 'prompt'))]
)
def test_parameter_efficient_tuning_is_the_same_on_any_mesh(method):
    architecture = dataclasses.replace(synthetic.ARCHITECTURE, tuning=tuning.build(method, {}))
    task = synthetic.SyntheticTask()
    frozen = tree_paths.flatten(nn.unbox(jax.eval_shape(task.init, jax.random.key(0))))
    chosen = Transfer(frozen=frozenset(name for name in frozen if name.startswith('encoder/')))
    arguments = (1, architecture, chosen)
    agree(run('2 × 2 × 2', *arguments), *arguments)


def test_fsdp_shards_parameters_and_moments():
    task, mesh = synthetic.SyntheticTask(), make_mesh(MESHES['8 × fsdp'])
    optimizer = optimizers.build(synthetic.OPTIMIZER, lambda step: 1e-3)
    abstract = abstract_state(task, optimizer, mesh, RULES)
    for tree in (abstract.params, abstract.opt_state):
        sizes = [
            (leaf.size, np.prod(leaf.sharding.shard_shape(leaf.shape)))
            for leaf in jax.tree.leaves(tree)
        ]
        whole, local = np.sum(sizes, axis=0)
        assert local < whole / 5


def test_a_spike_or_a_step_that_is_not_finite_is_skipped_and_counted():
    task = synthetic.SyntheticTask()
    good_terms = task.terms

    def terms(params, batch, key, train, progress=1.0):
        found = good_terms(params, batch, key, train, progress)
        return {
            name: term._replace(sum=term.sum * batch['spoil'][0]) for name, term in found.items()
        }

    task.terms = terms
    optimizer = optimizers.build(synthetic.OPTIMIZER, lambda step: 1e-3)
    params = nn.unbox(task.init(jax.random.key(0)))
    zero = np.zeros((), np.int32)
    state = TrainState(zero, zero, zero, params, optimizer.init(params), np.zeros((), np.float32))
    step = jax.jit(make_train_step(task, optimizer, spike_factor=4.0))
    spoils = [1, np.nan, np.inf, 1, 50, 2, 1000, 1]
    counts, norms = [], []
    for number, spoil in enumerate(spoils):
        batch = synthetic.batch(number) | {'spoil': np.full(16, spoil, np.float32)}
        before, (state, metrics) = state, step(state, batch, jax.random.key(1))
        *moments, scheduled = state.opt_state
        assert int(scheduled.count) == number + 1
        ours, theirs = (
            (one.params, one.opt_state[: len(moments)], one.usual_norm) for one in (before, state)
        )
        same = jax.tree.map(np.array_equal, ours, theirs)
        assert all(jax.tree.leaves(same)) == (spoil not in (1, 2))
        assert np.isfinite(optax.tree.norm(state.params))
        counts.append((int(metrics['skipped']), int(metrics['skipped_in_row'])))
        norms += [float(metrics['gradient_norm'])] if spoil in (1, 2) else []
    assert counts == [(0, 0), (1, 1), (2, 2), (2, 0), (3, 1), (3, 0), (4, 1), (4, 0)]
    assert int(state.step) == len(spoils)
    mean = norms[0]
    for norm in norms[1:]:
        mean += 0.02 * (norm - mean)
    np.testing.assert_allclose(state.usual_norm, mean, rtol=1e-5)


@pytest.mark.slow
def test_dropout_of_fine_tuning_is_the_same_on_any_devices(tmp_path, monkeypatch):
    """The number of rows, 4, is rounded up to a multiple of devices × micro-batches."""
    found = [
        fine_tune(tmp_path / str(devices), monkeypatch, devices, accumulation)
        for devices, accumulation in [(1, 3), (8, 1)]
    ]
    np.testing.assert_allclose(*found, rtol=1e-6)


def fine_tune(folder, monkeypatch, devices: int, accumulation: int) -> list[float]:
    """The losses of two steps of fine-tuning with much dropout."""
    config = finetune.get_config('sample_sentiment')
    sizes = dict(hidden_size=16, num_layers=1, num_heads=2, intermediate_size=16)
    config.model.update(architecture='bert', hidden_dropout=0.5, attention_dropout=0.5, **sizes)
    config.data.tokenizer = 'train:wordpiece:400'
    config.training.update(steps=2, epochs=0.0, batch_size=5, accumulation=accumulation)
    config.logging.every_steps, config.workdir = 1, str(folder)
    mesh = make_mesh({'data': devices, 'fsdp': 1, 'tensor': 1})
    monkeypatch.setattr(sharding, 'make_mesh', lambda sizes: mesh)
    loop.train(make_task(config), config, Workdir.of(config.workdir))
    records = map(json.loads, (folder / 'metrics.jsonl').read_text().splitlines())
    return [record['loss'] for record in records if record['kind'] == 'train']


@pytest.mark.parametrize(
    ('sizes', 'word'),
    [
        ({'data': 16, 'fsdp': 1, 'tensor': 1}, 'does not fit 8'),
        ({'data': 3, 'fsdp': -1, 'tensor': 1}, 'does not fit 8'),
        ({'data': -1, 'fsdp': -1, 'tensor': 1}, 'at most one'),
        ({'data': 0, 'fsdp': 1, 'tensor': 1}, 'positive'),
    ],
)
def test_a_mesh_that_does_not_fit_is_refused(sizes, word):
    with pytest.raises(UserError, match=word):
        sharding.make_mesh(sizes)


def test_an_axis_of_minus_one_gets_the_remaining_devices():
    assert dict(sharding.make_mesh({'data': -1, 'fsdp': 2, 'tensor': 2}).shape)['data'] == 2


def test_a_batch_that_the_devices_do_not_divide_is_refused():
    mesh = sharding.make_mesh({'data': -1, 'fsdp': 1, 'tensor': 1})
    sharding.check_batch(32, 4, mesh)
    with pytest.raises(UserError, match='multiple of 32'):
        sharding.check_batch(24, 4, mesh)


def test_the_error_names_a_parameter_that_a_mesh_axis_does_not_divide():
    mesh = make_mesh({'data': 1, 'fsdp': 1, 'tensor': 8})
    boxed = jax.eval_shape(synthetic.SyntheticTask().init, jax.random.key(0))
    with pytest.raises(UserError, match='query|key|value|attention'):
        sharding.param_shardings(boxed, mesh, RULES)


@pytest.mark.parametrize(
    ('rules', 'message'),
    [
        ((('batch', ('data', 'fsdb')),), "'fsdb'; did you mean fsdp. known: data"),
        ((('batch', 5),), 'unknown mesh axis in sharding_rules 5'),
        (('batch', 'data'), "sharding_rules has 'batch'; write"),
    ],
)
def test_a_rule_that_is_not_valid_is_refused(rules, message):
    with pytest.raises(UserError, match=message):
        sharding.check_rules(rules)

"""The compiled step: gradients are summed once, the optimizer state is sharded and donated."""

import re

import flax.linen as nn
import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from bert_jax import objectives
from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.training import optimizers, sharding
from bert_jax.training.devices import local_bytes
from bert_jax.training.state import TrainState, abstract_state, initial_state
from bert_jax.training.step import compile_train_step, make_train_step
from configs import base
from experiments.compiled import hlo
from tests.training import synthetic

pytestmark = pytest.mark.eight_devices

RULES = base.get_config().sharding_rules
OPTIMIZER = optimizers.build(synthetic.OPTIMIZER, lambda step: 1e-3)


def make_mesh(*sizes):
    return sharding.make_mesh(dict(zip(sharding.AXES, sizes, strict=True)))


def compile_step(mesh, accumulation=1):
    """(abstract state, compiled step)."""
    task = synthetic.SyntheticTask()
    rows = sharding.batch_sharding(mesh)
    with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
        state = abstract_state(task, OPTIMIZER, mesh, RULES)
        batch = {
            name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=rows)
            for name, leaf in synthetic.batch(0).items()
        }
        step = make_train_step(task, OPTIMIZER, accumulation)
        return state, compile_train_step(step, state, batch)


@pytest.mark.parametrize('accumulation', [pytest.param(1, marks=pytest.mark.slow), 2])
def test_gradients_are_summed_over_the_devices_once_and_together(accumulation):
    state, compiled = compile_step(make_mesh(8, 1, 1), accumulation)
    size = local_bytes(state.params)
    collectives = hlo.collectives(compiled.as_text())
    assert {collective.kind for collective in collectives} == {'all-reduce'}
    assert sum(collective.bytes for collective in collectives) <= 1.02 * size
    assert max(collective.bytes for collective in collectives) >= 0.98 * size


@pytest.mark.parametrize(
    'sizes',
    [*(pytest.param(own, marks=pytest.mark.slow) for own in [(8, 1, 1), (1, 8, 1)]), (2, 2, 2)],
)
def test_initial_parameters_do_not_depend_on_the_mesh(sizes):
    task, mesh = synthetic.SyntheticTask(), make_mesh(*sizes)
    with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
        abstract = abstract_state(task, OPTIMIZER, mesh, RULES)
        state = initial_state(task, OPTIMIZER, abstract, seed=1)
    expected = jax.jit(lambda: nn.unbox(task.init(jax.random.key(1))))()
    jax.tree.map(
        lambda ours, compiled: np.testing.assert_allclose(ours, compiled, rtol=1e-6, atol=1e-8),
        state.params,
        expected,
    )
    for leaf, wanted in zip(jax.tree.leaves(state), jax.tree.leaves(abstract), strict=True):
        assert leaf.sharding == wanted.sharding


def test_the_new_state_has_the_shardings_of_the_old_one():
    mesh = make_mesh(2, 2, 2)
    state, compiled = compile_step(mesh)
    wanted = jax.tree.map(lambda leaf: leaf.sharding, state)
    found, _ = compiled.output_shardings
    ranks = jax.tree.map(lambda leaf: len(leaf.shape), state)
    same = jax.tree.map(lambda a, b, rank: a.is_equivalent_to(b, rank), found, wanted, ranks)
    assert all(jax.tree.leaves(same))


@pytest.mark.parametrize(
    'name',
    [
        'bert_adam',
        'albert_lamb',
        *(pytest.param(name, marks=pytest.mark.slow) for name in ('adamw', 'lamb', 'stable_adamw')),
    ],
)
def test_the_old_state_is_overwritten_and_not_copied(name):
    """On one device, where XLA keeps the names of the arguments."""
    config = ConfigDict(synthetic.OPTIMIZER.to_dict() | {'name': name})
    task, optimizer = synthetic.SyntheticTask(), optimizers.build(config, lambda step: 1e-3)

    def init():
        params = nn.unbox(task.init(jax.random.key(0)))
        return TrainState(0, 0, 0, params, optimizer.init(params))

    step = make_train_step(task, optimizer)
    compiled = compile_train_step(step, jax.eval_shape(init), synthetic.batch(0))
    text = compiled.as_text()
    assert '%state_opt_state' in text
    assert not re.findall(r'copy\(%state_(?:params|opt_state)', text)


def test_fsdp_divides_the_optimizer_state_of_bert_base():
    class Base(synthetic.SyntheticTask):
        def __init__(self):
            architecture = architectures.build('bert_base')
            self.model = objectives.build_model(architecture, Compute(), synthetic.OBJECTIVES)

    state = abstract_state(Base(), OPTIMIZER, make_mesh(1, 8, 1), RULES)
    total = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state.opt_state))
    assert local_bytes(state.opt_state) <= total / 7
    assert np.isclose(local_bytes(state.params), total / 2 / 8, rtol=0.1)

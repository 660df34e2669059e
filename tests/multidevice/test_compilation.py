"""What the compiled step does, read from XLA's text: one sum of the gradients, optimizer state cut
into parts and overwritten in place.
"""

import functools
import re

import flax.linen as nn
import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.objectives.model import PretrainingModel
from bert_jax.training import compilation, optimizers, runtime, sharding
from bert_jax.training.compilation import Array, Collective
from bert_jax.training.state import TrainState, abstract_state, initial_state
from bert_jax.training.step import make_train_step
from configs import base
from tests.training import synthetic

RULES = base.get_config().sharding_rules
OPTIMIZER = optimizers.build(synthetic.OPTIMIZER, lambda step: 1e-3)


def compile_step(mesh, accumulation):
    """(parameters by shape and sharding, the compiled step)."""
    task = synthetic.SyntheticTask()
    rows = sharding.batch_sharding(mesh)
    with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
        state = abstract_state(task, OPTIMIZER, mesh, RULES)
        batch = {
            name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=rows)
            for name, leaf in synthetic.batch(0).items()
        }
        step = make_train_step(task, OPTIMIZER, accumulation, seed=1)
        return state.params, compilation.compile_step(step, state, batch)


@pytest.mark.parametrize('accumulation', [1, 2])
def test_gradients_are_summed_over_the_devices_once_and_together(accumulation):
    mesh = sharding.make_mesh({'data': 8, 'fsdp': 1, 'tensor': 1})
    params, compiled = compile_step(mesh, accumulation)
    size = compilation.local_bytes(params)
    exchanged = compilation.collectives(compiled)
    assert {collective.kind for collective in exchanged} == {'all-reduce'}
    assert sum(collective.bytes for collective in exchanged) <= 1.02 * size
    assert max(collective.bytes for collective in exchanged) >= 0.98 * size


@pytest.mark.parametrize('sizes', [(8, 1, 1), (1, 8, 1), (2, 2, 2)])
def test_initializing_exchanges_nothing(sizes, monkeypatch):
    """So no host waits for another that is still compiling."""
    monkeypatch.setattr(runtime, 'compiler_options', dict)  # refused inside another jit
    task = synthetic.SyntheticTask()
    mesh = sharding.make_mesh(dict(zip(('data', 'fsdp', 'tensor'), sizes, strict=True)))
    with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
        abstract = abstract_state(task, OPTIMIZER, mesh, RULES)
        make = jax.jit(lambda seed: initial_state(task, OPTIMIZER, abstract, seed))
        compiled = make.lower(1).compile()
    assert 'while' in compiled.as_text()  # the random numbers
    assert compilation.collectives(compiled) == []


def test_the_two_programs_do_what_the_step_does():
    task = synthetic.SyntheticTask()
    mesh = sharding.make_mesh({'data': 2, 'fsdp': 2, 'tensor': 2})
    with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
        abstract = abstract_state(task, OPTIMIZER, mesh, RULES)
        rows = sharding.batch_sharding(mesh)
        batches = [jax.device_put(synthetic.batch(number), rows) for number in range(3)]
        step = make_train_step(task, OPTIMIZER, 1, seed=1)
        after = []
        for function in (jax.jit(step), compilation.compile_step(step, abstract, batches[0])):
            state = initial_state(task, OPTIMIZER, abstract, seed=1)
            for batch in batches:
                state, metrics = function(state, batch)
            after.append(jax.device_get((state, metrics)))
    assert after[0][0].step == 3
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7), *after)


@pytest.mark.parametrize('name', ['bert_adam', 'adamw', 'lamb', 'stable_adamw'])
def test_the_old_state_is_overwritten_and_never_copied(name):
    """On one device, where XLA keeps the names of the arguments."""
    config = ConfigDict(synthetic.OPTIMIZER.to_dict() | {'name': name})
    task, optimizer = synthetic.SyntheticTask(), optimizers.build(config, lambda step: 1e-3)

    def init():
        params = nn.unbox(task.init(jax.random.key(0)))
        return TrainState(0, 0, 0, params, optimizer.init(params))

    step = make_train_step(task, optimizer, 1, seed=1)
    compiled = compilation.compile_step(step, jax.eval_shape(init), synthetic.batch(0))
    text = compiled.update.as_text()
    assert '%state_opt_state' in text
    assert not re.findall(r'copy\(%state_(?:params|opt_state)', text)


def test_optimizer_memory_with_fsdp():
    class Base(synthetic.SyntheticTask):
        def __init__(self):
            self.model = PretrainingModel(
                architectures.build('bert_base'), Compute(), ('mlm', 'nsp')
            )

    mesh = sharding.make_mesh({'data': 1, 'fsdp': 8, 'tensor': 1})
    state = abstract_state(Base(), OPTIMIZER, mesh, RULES)
    whole = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state.opt_state))
    assert compilation.local_bytes(state.opt_state) <= whole / 7


def test_reading_the_text_of_a_program():
    class Compiled:
        def as_text(self):
            return """
              %a = (f32[8,4]{1,0}, bf16[3]{0}) all-reduce(%b, %c), channel_id=1
              %d = f32[16]{0} all-gather(f32[2]{0} %e), dimensions={0}
              %f = pred[7]{0} all-reduce-start(%g)
              %h = f32[2,2]{1,0} add(%i, %j)
            """

    assert compilation.collectives(Compiled()) == [
        Collective('all-reduce', (Array('f32', (8, 4)), Array('bf16', (3,)))),
        Collective('all-gather', (Array('f32', (16,)),)),
        Collective('all-reduce', (Array('pred', (7,)),)),
    ]
    assert [collective.bytes for collective in compilation.collectives(Compiled())] == [134, 64, 7]
    largest = compilation.largest_array(Compiled(), other_than={(8, 4)})
    assert (str(largest), largest.bytes) == ('f32[16]', 64)

"""Shapes of parameters from one traced layer, and drawing them without one large program."""

import functools
import logging

import jax
import numpy as np
import pytest
from flax import linen as nn

from bert_jax import tree_paths
from bert_jax.loaded import loaded_model
from bert_jax.models import architectures, initial_values, layer_stack, module

SIZES = dict(num_layers=3, hidden_size=64, num_heads=2, vocab_size=100)
FAMILIES = (
    'bert',
    'albert',
    'deberta_v3_base',
    'electra',
    'gpt2',
    'modernbert',
    'bart',
    't5',
    'xlnet',
)


def init_of(family):
    architecture = architectures.build(family, **SIZES)
    heads = ('mlm',) if architecture.decoder is None else ('seq2seq',)
    return functools.partial(loaded_model.init, architecture, heads)


@pytest.mark.parametrize('family', FAMILIES)
def test_shapes_are_those_of_all_layers(family):
    init = init_of(family)
    expected = jax.eval_shape(lambda: init(jax.random.key(0)))
    shapes = layer_stack.abstract(init)
    assert jax.tree.structure(shapes) == jax.tree.structure(expected)
    assert jax.tree.leaves(shapes) == jax.tree.leaves(expected)


def test_one_layer_of_a_kind_is_traced(monkeypatch):
    calls, dropout = [], module.dropout
    monkeypatch.setattr(module, 'dropout', lambda *inputs: calls.append(1) or dropout(*inputs))
    layer_stack.abstract(init_of('bert'))
    of_one_layer = len(calls)
    jax.eval_shape(lambda: init_of('bert')(jax.random.key(0)))
    assert len(calls) == (1 + SIZES['num_layers']) * of_one_layer > 0


@pytest.mark.parametrize('family', ['bert', 'modernbert', 'bart'])
def test_drawn_parameters_are_those_of_one_program(family):
    init = init_of(family)
    expected = tree_paths.flatten(nn.unbox(jax.jit(init)(jax.random.key(3))))
    drawn = initial_values.draw(init, 3)
    assert drawn.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(drawn[name], array, rtol=1e-6, atol=1e-8, err_msg=name)


@pytest.mark.parametrize('shape', [(), (7,), (2**16,), (3, 2**16 - 1), (2, 3, 5)])
@pytest.mark.parametrize('kind', ['normal', 'truncated_normal'])
def test_blocks_have_the_numbers_of_jax_random(kind, shape):
    def init(key):
        return {'x': getattr(initial_values, kind)(0.3)(key, shape)}

    key = jax.random.key(5)
    if kind == 'normal':
        expected = jax.random.normal(key, shape) * np.float32(0.3)
    else:
        expected = jax.random.truncated_normal(key, -2.0, 2.0, shape) * np.float32(0.3)
    drawn = initial_values.draw(init, 5)['x']
    assert (drawn.dtype, drawn.shape) == (np.float32, shape)
    np.testing.assert_array_equal(drawn, expected)


@pytest.mark.parametrize('implementation', ['threefry2x32', 'rbg'])
def test_stacked_layers_and_other_generators_are_drawn_as_one_program(implementation):
    def init(key):
        keys = jax.random.split(key, 3)
        return {'x': jax.vmap(lambda key: initial_values.normal(1.0)(key, (4, 5)))(keys)}

    with jax.default_prng_impl(implementation):
        expected = jax.jit(init)(jax.random.key(5))
        np.testing.assert_array_equal(initial_values.draw(init, 5)['x'], expected['x'])
        single = initial_values.draw(lambda key: initial_values.normal(1.0)(key, (9,)), 5)
        np.testing.assert_array_equal(*single.values(), jax.random.normal(jax.random.key(5), (9,)))


def test_only_the_named_parameters_are_drawn():
    init = init_of('bert')
    drawn = initial_values.draw(init, 3, {'encoder/layers_1/attention/query/kernel'})
    ((name, array),) = drawn.items()
    np.testing.assert_array_equal(array, initial_values.draw(init, 3)[name])


def test_more_layers_and_sizes_need_no_more_programs(caplog):
    def programs(num_layers, hidden_size):
        sizes = SIZES | {'num_layers': num_layers, 'hidden_size': hidden_size}
        architecture = architectures.build('bert_base', **sizes)
        jax.clear_caches()
        caplog.clear()
        with jax.log_compiles(), caplog.at_level(logging.WARNING):
            initial_values.draw(functools.partial(loaded_model.init, architecture, ('mlm',)), 0)
        return sum('Finished XLA compilation' in record.message for record in caplog.records)

    assert 0 < programs(1, 64) == programs(4, 96) < 12

"""Shapes of parameters from one traced layer, and drawing them without one large program."""

import functools
import logging

import jax
import numpy as np
import pytest
from flax import linen as nn

from bert_jax import tree_paths
from bert_jax.loaded import loaded_model
from bert_jax.models import architectures, block, layer_stack

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
    calls, dropout = [], block.dropout
    monkeypatch.setattr(block, 'dropout', lambda *inputs: calls.append(1) or dropout(*inputs))
    layer_stack.abstract(init_of('bert'))
    of_one_layer = len(calls)
    jax.eval_shape(lambda: init_of('bert')(jax.random.key(0)))
    assert len(calls) == (1 + SIZES['num_layers']) * of_one_layer > 0


@pytest.mark.parametrize('family', ['bert', 'modernbert', 'bart'])
def test_drawn_parameters_are_those_of_one_program(family):
    init = init_of(family)
    expected = tree_paths.flatten(nn.unbox(jax.jit(init)(jax.random.key(3))))
    drawn = layer_stack.draw(init, 3)
    assert drawn.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(drawn[name], array, rtol=1e-6, atol=1e-8, err_msg=name)


def test_only_the_named_parameters_are_drawn():
    init = init_of('bert')
    drawn = layer_stack.draw(init, 3, {'encoder/layers_1/attention/query/kernel'})
    ((name, array),) = drawn.items()
    np.testing.assert_array_equal(array, layer_stack.draw(init, 3)[name])


def test_more_layers_need_no_more_programs(caplog):
    def programs(num_layers):
        architecture = architectures.build('bert_base', **SIZES | {'num_layers': num_layers})
        jax.clear_caches()
        caplog.clear()
        with jax.log_compiles(), caplog.at_level(logging.WARNING):
            layer_stack.draw(functools.partial(loaded_model.init, architecture, ('mlm',)), 0)
        return sum('Finished XLA compilation' in record.message for record in caplog.records)

    assert 0 < programs(1) == programs(4)

"""Shortcuts of loading compute what the long way computes."""

import functools

import numpy as np
import pytest

from bert_jax import tree_paths
from bert_jax.interop import state_dict_map
from bert_jax.loaded import loaded_model
from bert_jax.models import architectures, initial_values

_SIZES = dict(hidden_size=16, num_layers=3, num_heads=2, intermediate_size=24, vocab_size=50)


@pytest.mark.parametrize('name', ['bert', 'modernbert'])
def test_new_parameters_outside_layers_are_those_of_the_whole_model(name):
    """Equal layers are traced once then, which must not change a bit."""
    architecture = architectures.build(name, **_SIZES)
    heads = ('mlm', 'sequence_classification')
    init = functools.partial(loaded_model.init, architecture, heads)
    every = initial_values.draw(init, 0)
    known = {key: array for key, array in every.items() if '/layers_' in key}
    params, missing = loaded_model.fill(known, architecture, heads)
    assert set(missing) == every.keys() - known.keys()
    found = tree_paths.flatten(params)
    assert all(np.array_equal(found[key], every[key]) for key in every)
    assert any(np.ptp(found[key]) > 0 for key in missing)


def test_new_parameters_of_a_layer_are_its_own():
    architecture = architectures.build('bert', **_SIZES)
    params, _ = loaded_model.fill({}, architecture, ())
    found = tree_paths.flatten(params)
    kernels = [found[f'encoder/layers_{n}/feedforward/input/kernel'] for n in range(3)]
    assert len({kernel.tobytes() for kernel in kernels}) == 3


@pytest.mark.parametrize('shape', [(1, 1), (130, 3), (64, 64), (5, 200), (7,)])
def test_blocks_are_transposed_to_their_places(shape):
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    copy = state_dict_map._transposed(array)
    assert np.array_equal(copy, array.T)
    assert copy.flags.c_contiguous
    assert not np.shares_memory(copy, array)

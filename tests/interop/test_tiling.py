"""A larger model starts from the repeated weights of a smaller one."""

import dataclasses

import numpy as np
import pytest

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.interop import tiling
from bert_jax.loaded import loaded_model
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.models import architectures

SIZES = dict(vocab_size=40, hidden_size=8, num_layers=2, num_heads=2, intermediate_size=12) | dict(
    max_position_embeddings=16
)


def small(name='bert', **changes):
    architecture = architectures.build(name, **SIZES | changes)
    leaves = loaded_model.abstract_leaves(architecture, ('mlm',))
    rng = np.random.default_rng(0)
    arrays = {key: rng.normal(size=leaf.value.shape).astype('f4') for key, leaf in leaves.items()}
    params, _ = loaded_model.fill(arrays, architecture, ('mlm',))
    return LoadedModel(None, architecture, params)


def grow(model, **sizes):
    grown, lines = tiling.grow(model, model.architecture.changed(sizes))
    return tree_paths.flatten(model.params), tree_paths.flatten(grown.params), lines


def test_an_axis_is_repeated_around_its_middle():
    row = np.array([1, 2, 3])
    assert tiling._tile(row, (3,)).tolist() == [1, 2, 3]
    assert tiling._tile(row, (5,)).tolist() == [3, 1, 2, 3, 1]
    assert tiling._tile(row, (8,)).tolist() == [2, 3, 1, 2, 3, 1, 2, 3]
    both = tiling._tile(np.array([[1, 2], [3, 4]]), (2, 4))
    assert both.tolist() == [[2, 1, 2, 1], [4, 3, 4, 3]]


@pytest.mark.parametrize('name', ['bert', 'modernbert', 'neobert'])
def test_every_parameter_of_a_wider_model_is_a_tile_of_the_smaller_one(name):
    before, after, (line,) = grow(small(name), hidden_size=16, num_heads=4, intermediate_size=20)
    assert line.startswith('tiled: hidden_size 8 → 16, num_heads 2 → 4, intermediate_size 12 → 20')
    assert before.keys() == after.keys()
    for key, array in after.items():
        slices = tuple(
            slice((new - old) // 2, (new - old) // 2 + old)
            for new, old in zip(array.shape, before[key].shape, strict=True)
        )
        np.testing.assert_array_equal(array[slices], before[key], err_msg=key)


def test_layers_of_a_deeper_model_are_copies_in_order():
    before, after, (line,) = grow(small(), num_layers=5)
    assert line == 'tiled: num_layers 2 → 5; layers from 0, 0, 0, 1, 1'
    name = 'attention/query/kernel'
    for layer, origin in enumerate([0, 0, 0, 1, 1]):
        np.testing.assert_array_equal(
            after[f'encoder/layers_{layer}/{name}'], before[f'encoder/layers_{origin}/{name}']
        )


def test_layers_keep_their_windows_and_the_first_has_no_norm():
    windows = dict(num_layers=3, windows=(None, 4, 4))
    before, after, (line,) = grow(small('modernbert', **windows), num_layers=6)
    assert line.endswith('layers from 0, 1, 1, 0, 2, 2')
    assert {key.split('/')[1] for key in after if 'layers' in key} == {
        f'layers_{n}' for n in range(6)
    }


@pytest.mark.parametrize(
    ('sizes', 'message'),
    [
        ({'intermediate_size': 6}, 'intermediate_size is 12 in the weights and 6 here'),
        ({'hidden_size': 16}, 'width of heads, which is 4 in the weights and 8 here; .* to 4'),
    ],
)
def test_what_cannot_be_tiled_is_refused(sizes, message):
    model = small()
    with pytest.raises(UserError, match=message):
        tiling.grow(model, model.architecture.changed(sizes))


def test_a_parameter_without_a_place_is_refused():
    model = small()
    more = dataclasses.replace(
        model, params={**model.params, 'encoder': {**model.params['encoder'], 'extra': np.ones(3)}}
    )
    with pytest.raises(UserError, match='no place for encoder/extra'):
        grow(more, num_layers=4)

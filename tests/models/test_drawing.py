"""Parameters drawn beside layers that are traced once are those of `init`."""

import functools

import jax
import numpy as np
import pytest
from flax import linen as nn

from bert_jax import tree_paths
from bert_jax.loaded import loaded_model
from bert_jax.models import architectures, initial_values, layer_stack

HEADS = ('mlm', 'sequence_classification')


def build(name: str, num_layers: int):
    sizes = dict(hidden_size=8, num_heads=2, intermediate_size=8, num_layers=num_layers)
    return architectures.build(f'{name}_base', vocab_size=20, **sizes)


@pytest.mark.parametrize('name', ['bert', 'albert'])
def test_equal_layers_leave_other_parameters_as_they_are(name):
    init = functools.partial(loaded_model.init, build(name, 3), HEADS)
    expected = initial_values.draw(init, 0)
    others = [one for one in expected if '/layers_' not in one]
    drawn = initial_values.draw(layer_stack.with_equal_layers(init), 0, others)
    assert list(drawn) == others
    for one, value in drawn.items():
        np.testing.assert_array_equal(value, expected[one])


@pytest.mark.parametrize('missing', ['heads', 'layer'])
def test_missing_parameters_are_filled_as_init_draws_them(missing):
    architecture = build('bert', 3)
    init = functools.partial(loaded_model.init, architecture, HEADS)
    expected = initial_values.draw(init, 0)
    lacking = {
        one for one in expected if ('/layers_2/' in one if missing == 'layer' else 'mlm' in one)
    }
    known = {one: np.asarray(value) for one, value in expected.items() if one not in lacking}
    filled, new = loaded_model.fill(known, architecture, HEADS)
    assert set(new) == lacking
    for one, value in tree_paths.flatten(filled).items():
        np.testing.assert_array_equal(value, expected[one])


def test_many_equal_layers_are_traced_once_if_none_is_drawn():
    """A config may claim a thousand layers that share their parameters."""
    architecture = build('albert', 40)
    init = layer_stack.with_equal_layers(functools.partial(loaded_model.init, architecture, HEADS))
    program = str(jax.make_jaxpr(lambda key: nn.unbox(init(key)))(jax.random.key(0)))
    assert program.count('dot_general') < 40

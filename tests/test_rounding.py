"""The differences that rounding explains follow the function and the size of its outputs."""

import numpy as np
import pytest

from bert_jax import rounding

WIDTH = 512
RNG = np.random.default_rng(0)
MATRICES = {name: RNG.normal(size=(WIDTH, WIDTH)).astype(np.float32) for name in 'ab'}
X = RNG.normal(size=WIDTH).astype(np.float32)


def layers(params, order=slice(None), sharpness=1.0):
    """Two layers; `order` is that of the terms of all sums, which are added one by one."""
    hidden = np.tanh(np.cumsum((X[:, None] * params['a'])[order], 0)[-1] / 10)
    sums = np.cumsum((hidden[:, None] * params['b'])[order], 0)[-1]
    return {'sums': sums, 'tanh': np.tanh(sharpness * sums)}


@pytest.mark.parametrize('factor', [1e-3, 1, 1e3])
def test_sums_in_another_order_are_within_and_a_wrong_weight_is_not(factor):
    params = MATRICES | {'b': np.float32(factor) * MATRICES['b']}
    limit = rounding.tolerances(layers, params, WIDTH)['sums']
    wrong = {name: array.copy() for name, array in params.items()}
    wrong['b'][0, 0] *= 2
    ours = layers(params)['sums']
    assert 0 < np.abs(ours - layers(params, slice(None, None, -1))['sums']).max() <= limit
    assert np.abs(ours - layers(wrong)['sums']).max() > 10 * limit


def test_steep_functions_are_allowed_more():
    allowed = [
        rounding.tolerances(lambda params, s=s: layers(params, sharpness=s), MATRICES, WIDTH)
        for s in (1e-3, 1)
    ]
    assert allowed[0]['sums'] == allowed[1]['sums']
    assert allowed[0]['tanh'] < allowed[1]['tanh'] / 5


def test_padding_is_ignored_and_constant_outputs_may_move_by_a_rounding_error():
    constant = np.array([1e4, np.nan], np.float32)
    allowed = rounding.tolerances(lambda _: {'x': constant, 'zero': 0 * constant}, MATRICES, 4)
    assert 1e4 * 2**-24 < allowed['x'] < 1e4 * 2**-18
    assert allowed['zero'] < 2**-18

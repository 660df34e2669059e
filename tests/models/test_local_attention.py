"""Attention in blocks agrees with attention of whole rows, with gradients and dropout."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import architectures, local_attention
from bert_jax.models.architecture import Compute
from bert_jax.models.dropout import weight_dropout
from bert_jax.models.encoders import build_encoder
from bert_jax.models.encoders.layer_scan import scan_layers
from bert_jax.models.encoders.transformer import attention_probabilities
from bert_jax.models.parameters import stack_layers
from bert_jax.models.rows import Rows
from bert_jax.models.visibility import Visibility, alibi_slopes
from tests import jaxprs
from tests.random_parameters import random_parameters

ROWS, LENGTH, HEADS, SIZE, WINDOW = 2, 150, 2, 4, 5  # 150 is not a multiple of the block size
MASK = (np.arange(LENGTH) < [[LENGTH], [101]]).astype(np.int32)
SEGMENTS = np.repeat([[0, 1, 2], [0, 1, 3]], [40, 61, 49], axis=1).astype(np.int32)
CASES = {
    'padded': {},
    'packed': {'segment_ids_BT': SEGMENTS},
    'causal': {'is_causal': True},
    'alibi': {'slopes_H': alibi_slopes(HEADS)},
    'wide': {'window': 70},
    'all': {
        'segment_ids_BT': SEGMENTS,
        'is_causal': True,
        'slopes_H': alibi_slopes(HEADS),
    },
}


def attend_densely(query, key, value, visibility, rate, seeds_B):
    scores_BHTU = jnp.einsum('BTHK,BUHK->BHTU', query, key) * SIZE**-0.5
    weights_BHTU = jax.nn.softmax(scores_BHTU + visibility.bias(LENGTH, LENGTH))
    return jnp.einsum('BHTU,BUHK->BTHK', weight_dropout(weights_BHTU, rate, seeds_B), value)


@pytest.mark.parametrize('rate', [0.0, 0.4])
@pytest.mark.parametrize('case', CASES)
def test_blocks_agree_with_whole_rows(case, rate):
    visibility = Visibility(MASK, **{'window': WINDOW} | CASES[case])
    rng = np.random.default_rng(0)
    states = [rng.normal(size=(ROWS, LENGTH, HEADS, SIZE)).astype(np.float32) for _ in range(4)]
    *states, weight_BTHK = states
    weight_BTHK *= MASK[:, :, None, None]
    seeds_B = jnp.array([7, 8], jnp.uint32)

    def run(attend):
        def loss(*states):
            result_BTHK = attend(*states, visibility, rate, seeds_B) * weight_BTHK
            return result_BTHK.sum(), result_BTHK

        return jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))(*states)

    found, expected = run(local_attention.attend), run(attend_densely)
    for mine, theirs in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)
        assert np.abs(theirs).max() > 1


def test_rows_are_split_where_blocks_have_fewer_keys():
    assert not Visibility(None).is_local(8192)
    assert not Visibility(None, window=64).is_local(128)
    assert Visibility(None, window=64).is_local(512)
    assert not Visibility(None, window=256).is_local(512)


@pytest.fixture(scope='module')
def modernbert():
    """Four layers, of which the second and third have windows; and their parameters."""
    architecture = architectures.build(
        'modernbert',
        vocab_size=50,
        hidden_size=8,
        num_layers=4,
        num_heads=2,
        intermediate_size=8,
        windows=(None, WINDOW, WINDOW),
        attention_dropout=0.1,
    )
    architecture = architecture.changed({'norms.placement': 'pre'})  # layers can be stacked
    encoder = build_encoder(architecture, Compute())
    ids = np.random.default_rng(0).integers(0, 50, (ROWS, LENGTH)).astype(np.int32)
    return (
        architecture,
        ids,
        random_parameters(encoder, Rows(ids[:, :8], MASK[:, :8]), deviation=0.3),
    )


def states_and_gradients(architecture, compute, params, ids):
    encoder = build_encoder(architecture, compute)

    def loss(params):
        seeds_B = jnp.array([7, 8], jnp.uint32)
        hidden_BTD = encoder.apply({'params': params}, Rows(ids, MASK), seeds_B).hidden_BTD
        hidden_BTD *= MASK[:, :, None]
        return jnp.mean(hidden_BTD**3), hidden_BTD

    return jax.jit(jax.grad(loss, has_aux=True))(params)


def test_scanned_layers_with_different_windows_equal_separate_ones(modernbert):
    architecture, ids, params = modernbert
    expected, expected_BTD = states_and_gradients(architecture, Compute(), params, ids)
    compute = Compute(scan_layers=True, remat=True)
    found, found_BTD = states_and_gradients(architecture, compute, stack_layers(params), ids)
    np.testing.assert_allclose(found_BTD, expected_BTD, rtol=0, atol=1e-5)
    for mine, theirs in zip(*map(jax.tree.leaves, (found, stack_layers(expected))), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())


def test_attention_probabilities_are_those_of_whole_rows(modernbert):
    architecture, ids, params = modernbert
    shown = []
    for scan in (False, True):
        encoder = build_encoder(architecture, Compute(scan_layers=scan))
        of_scan = {'params': stack_layers(params) if scan else params}
        apply = jax.jit(
            lambda params, e=encoder: e.apply(params, Rows(ids, MASK), mutable='intermediates')
        )
        _, variables = apply(of_scan)
        shown.append(attention_probabilities(architecture, variables['intermediates']))
    assert shown[0].shape == (4, ROWS, 2, LENGTH, LENGTH)
    np.testing.assert_allclose(*shown, rtol=0, atol=1e-6)
    distance_TU = np.abs(np.subtract.outer(np.arange(LENGTH), np.arange(LENGTH)))
    reach_L = [distance_TU[np.asarray(weights_BHTU)[0, 0] > 0].max() for weights_BHTU in shown[0]]
    assert reach_L == [LENGTH - 1, WINDOW, WINDOW, LENGTH - 1]


def test_local_layers_have_no_arrays_of_queries_and_keys(modernbert):
    """In the forward and the backward pass."""
    architecture, ids, params = modernbert
    architecture = dataclasses.replace(architecture, windows=(WINDOW,))
    traced = jax.make_jaxpr(lambda p: states_and_gradients(architecture, Compute(), p, ids))(params)
    shapes = set(jaxprs.shapes(traced.jaxpr))
    assert (ROWS, LENGTH, 8) in shapes
    assert not [shape for shape in shapes if shape.count(LENGTH) > 1]


@pytest.mark.parametrize(
    'windows', [(1,), (1, 2), (1, 2, 2), (1, 2, 2, 1), (1, 2, 1, 2, 1), (2, 1, 1)]
)
def test_the_loop_gives_every_layer_its_inputs_and_window(windows):
    def apply_layer(x, number, window):
        return 10 * x + window, number

    x, numbers_L = scan_layers(apply_layer, jnp.int32(0), jnp.arange(len(windows)), windows)
    assert str(x) == ''.join(map(str, windows))
    assert numbers_L.tolist() == list(range(len(windows)))

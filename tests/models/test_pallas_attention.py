"""The TPU kernels, interpreted on CPU with small tiles, agree with materialized scores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import pallas_attention
from bert_jax.models.dropout import random_bits, weight_dropout
from bert_jax.models.visibility import Distances, Visibility, alibi_slopes

ROWS, LENGTH, HEADS, HEAD_SIZE = 2, 40, 3, 8  # 3 blocks of 16 positions, and 2 tiles of 2 heads
SEGMENTS = np.repeat([[0, 1, 2, 3], [4, 5, 5, 3]], [16, 5, 11, 8], axis=1).astype(np.int32)
SEEDS = np.array([5, 6], np.uint32)
CASES = {
    'segments': {'segment_ids_BT': SEGMENTS},
    'window': {'window': 3, 'slopes_H': alibi_slopes(HEADS)},
    'causal': {'is_causal': True, 'dropout_rate': 0.3},
    'everything': {
        'segment_ids_BT': SEGMENTS,
        'window': 9,
        'is_causal': True,
        'slopes_H': alibi_slopes(HEADS),
        'dropout_rate': 0.1,
    },
    'one block': {'max_block': 64, 'segment_ids_BT': SEGMENTS, 'dropout_rate': 0.1},
    'wide heads': {'head_size': 20, 'window': 20},
    'distances': {'distances': 'both', 'segment_ids_BT': SEGMENTS, 'dropout_rate': 0.1},
    'distances of keys': {'distances': 'key', 'is_causal': True},
    'distances of queries': {'distances': 'query', 'max_block': 64},
}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(pallas_attention, 'INTERPRET', True)
    monkeypatch.setattr(pallas_attention, 'LANES', 16)
    monkeypatch.setattr(pallas_attention, 'MAX_BLOCK', 32)
    monkeypatch.setattr(pallas_attention, 'NARROW_BLOCK', 16)
    monkeypatch.setattr(pallas_attention, 'CHUNK', 16)


def dense(
    query_BTHK,
    key_BUHK,
    value_BUHK,
    tables=(None, None),
    segment_ids_BT=None,
    dropout_rate=0.0,
    **visibility,
):
    visibility = Visibility(None, segment_ids_BT, **visibility)
    scores_BHTU = jnp.einsum('BTHK,BUHK->BHTU', query_BTHK, key_BUHK)
    ahead_TU = np.arange(LENGTH) - np.arange(LENGTH)[:, None]
    if tables[0] is not None:
        keys_BTUHK = tables[0][:, LENGTH + ahead_TU]
        scores_BHTU += jnp.einsum('BTHK,BTUHK->BHTU', query_BTHK, keys_BTUHK)
    if tables[1] is not None:
        queries_BTUHK = tables[1][:, LENGTH - ahead_TU]
        scores_BHTU += jnp.einsum('BTUHK,BUHK->BHTU', queries_BTUHK, key_BUHK)
    scores_BHTU *= query_BTHK.shape[3] ** -0.5
    weights_BHTU = jax.nn.softmax(scores_BHTU + visibility.bias(LENGTH, LENGTH))
    weights_BHTU = weight_dropout(weights_BHTU, dropout_rate, SEEDS)
    return jnp.einsum('BHTU,BUHK->BTHK', weights_BHTU, value_BUHK)


def flash(
    query_BTHK,
    key_BUHK,
    value_BUHK,
    tables=(None, None),
    segment_ids_BT=None,
    dropout_rate=0.0,
    **visibility,
):
    visibility, distances = Visibility(None, segment_ids_BT, **visibility), None
    if tables != (None, None):
        distances = Distances(*tables, query_BTHK.shape[3] ** -0.5)
    bits_BHT = random_bits((ROWS, HEADS, LENGTH), SEEDS)
    states = (query_BTHK, key_BUHK, value_BUHK)
    return pallas_attention.attend(*states, visibility, distances, bits_BHT, dropout_rate)


def random_states(head_size: int = HEAD_SIZE, dtype=np.float32) -> list[jax.Array]:
    random = np.random.default_rng(0)
    shape = (ROWS, LENGTH, HEADS, head_size)
    return [jnp.asarray(random.normal(size=shape), dtype) for _ in range(4)]


def result_and_gradients(function, states, **options):
    @jax.jit
    def run(query, key, value, gradient, *tables):
        result, pullback = jax.vjp(lambda *x: function(*x, **options), query, key, value, *tables)
        return result, *pullback(gradient)

    return run(*states)


@pytest.mark.parametrize('case', CASES)
def test_kernels_agree_with_materialized_scores(case, monkeypatch):
    options = dict(CASES[case])
    monkeypatch.setattr(pallas_attention, 'MAX_BLOCK', options.pop('max_block', 32))
    states = random_states(options.pop('head_size', HEAD_SIZE))
    terms = options.pop('distances', None)
    if terms:
        random = np.random.default_rng(1)
        shape = (ROWS, 2 * LENGTH, HEADS, HEAD_SIZE)
        tables = {name: random.normal(size=shape).astype(np.float32) for name in ('key', 'query')}
        used = tuple(x if terms in (name, 'both') else None for name, x in tables.items())
        states.append(used)
    found = result_and_gradients(flash, states, **options)
    expected = result_and_gradients(dense, states, **options)
    for mine, theirs in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())


def test_kernels_run_within_scan_and_rematerialization():
    state_BTHK, *_, gradient_BTHK = random_states()

    def gradient(function, is_scanned):
        def layer(x_BTHK, _=None):
            return x_BTHK + function(x_BTHK, x_BTHK, x_BTHK, dropout_rate=0.2), None

        def loss(x_BTHK):
            if is_scanned:
                x_BTHK, _ = jax.lax.scan(jax.checkpoint(layer), x_BTHK, length=2)
            else:
                x_BTHK = layer(layer(x_BTHK)[0])[0]
            return (x_BTHK * gradient_BTHK).sum()

        return jax.jit(jax.grad(loss))(state_BTHK)

    expected = gradient(dense, is_scanned=False)
    found = gradient(flash, is_scanned=True)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_dropout_is_reproducible_and_differs_between_examples_and_heads():
    query, key, value, _ = (jnp.ones_like(x) for x in random_states())
    result_BTHK = np.asarray(flash(query, key, value, dropout_rate=0.3))
    np.testing.assert_array_equal(result_BTHK, flash(query, key, value, dropout_rate=0.3))
    rows = result_BTHK[..., 0].transpose(0, 2, 1).reshape(-1, LENGTH)
    assert len(np.unique(rows, axis=0)) == ROWS * HEADS


def test_bfloat16_states_give_bfloat16_results():
    states = random_states(dtype=jnp.bfloat16)
    found = result_and_gradients(flash, states)
    assert {x.dtype for x in found} == {jnp.dtype(jnp.bfloat16)}
    expected = result_and_gradients(dense, [x.astype(jnp.float32) for x in states])
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine.astype(np.float32), theirs, rtol=0, atol=0.05)


@pytest.mark.parametrize('is_backward', [False, True])
def test_the_stated_cost_of_a_window_is_linear_in_the_length(is_backward):
    def visits(length):
        plan = pallas_attention.make_plan(length, HEADS, HEAD_SIZE, 3, False, 0.0)
        assert plan.num_inner(is_backward).max() <= 4
        return plan.num_inner(is_backward).sum()

    assert visits(640) <= 2 * visits(320) + 4

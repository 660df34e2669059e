"""Properties of the Transformer, mostly read from gradients."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from bert_jax.errors import UserError
from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.encoders import build_encoder
from bert_jax.models.heads.prediction import MaskedLanguageModelHead
from bert_jax.models.parameters import stack_layers, unstack_layers
from bert_jax.models.rows import Rows
from tests.random_parameters import random_parameters

ARCHITECTURE = architectures.build(
    'bert',
    vocab_size=100,
    hidden_size=16,
    num_layers=2,
    num_heads=2,
    intermediate_size=24,
    max_position_embeddings=9,
    initializer_range=0.2,
)
IDS = np.random.default_rng(0).integers(0, 100, (3, 8)).astype(np.int32)
MASK = (np.arange(8) < np.array([[8], [5], [1]])).astype(np.int32)
ROWS = Rows(IDS, MASK)
SEEDS = np.array([1, 2, 3], np.uint32)


@functools.cache
def make_params():
    encoder = build_encoder(ARCHITECTURE, Compute())
    return random_parameters(encoder, ROWS)


@functools.cache
def compiled(compute, **options):
    encoder = build_encoder(ARCHITECTURE, compute)
    return jax.jit(functools.partial(encoder.apply, **options))


def encode(params, ids, mask, types=None, seeds=None, compute=None, **options):
    rows = Rows(ids, mask, types)
    return compiled(compute or Compute(), **options)({'params': params}, rows, seeds)


@functools.cache
def influence():
    """[B, T, U]: how much the state of position t depends on the embedding of position u."""
    encoder = build_encoder(ARCHITECTURE, Compute())
    params = make_params()

    def hidden_of(position_UD, ids_T, mask_T):
        moved = params | {'embeddings': params['embeddings'] | {'position': position_UD}}
        return encoder.apply({'params': moved}, Rows(ids_T[None], mask_T[None])).hidden_BTD[0]

    jacobian = jax.jit(jax.vmap(jax.jacrev(hidden_of), (None, 0, 0)))
    grads_BTDUE = jacobian(params['embeddings']['position'], IDS, MASK)
    return np.abs(grads_BTDUE).max((2, 4))[:, :, : IDS.shape[1]]


def test_padding_has_no_influence_on_real_positions():
    pairs_BTU = (MASK[:, :, None] > 0) & (MASK[:, None, :] == 0)
    assert pairs_BTU.any()
    assert not influence()[pairs_BTU].any()


def test_tokens_attend_to_all_tokens():
    pairs_BTU = (MASK[:, :, None] > 0) & (MASK[:, None, :] > 0)
    assert (influence()[pairs_BTU] > 1e-4).all()


def test_ids_of_padding_have_no_effect():
    other = np.where(MASK == 0, (IDS + 1) % 100, IDS)
    ours, theirs = encode(make_params(), IDS, MASK), encode(make_params(), other, MASK)
    assert np.array_equal(ours.pooled_BD, theirs.pooled_BD)
    assert np.array_equal(ours.hidden_BTD[MASK > 0], theirs.hidden_BTD[MASK > 0])


def test_the_order_of_examples_has_no_effect():
    order = np.array([2, 0, 1])
    straight = encode(make_params(), IDS, MASK, None, SEEDS)
    turned = encode(make_params(), IDS[order], MASK[order], None, SEEDS[order])
    np.testing.assert_allclose(turned.hidden_BTD, straight.hidden_BTD[order], atol=1e-5)


def test_token_types_default_to_zero():
    given = encode(make_params(), IDS, MASK, np.zeros_like(IDS)).hidden_BTD
    np.testing.assert_allclose(encode(make_params(), IDS, MASK).hidden_BTD, given, atol=1e-6)
    ones = encode(make_params(), IDS, MASK, np.ones_like(IDS)).hidden_BTD
    assert np.abs(ones - given).max() > 0.01


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_an_example_of_padding_has_finite_states_and_gradients(dtype):
    mask = MASK * np.array([[1], [0], [1]])

    def loss(params):
        output = encode(params, IDS, mask, compute=Compute(dtype))
        return jnp.square(output.hidden_BTD.astype(jnp.float32)).sum()

    value, grads = jax.value_and_grad(loss)(make_params())
    assert np.isfinite(value)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(grads))


@pytest.mark.parametrize('length', [1, 9])
def test_the_shortest_and_the_longest_sequence_are_encoded(length):
    ids = np.ones((2, length), np.int32)
    output = encode(make_params(), ids, ids, all_hidden=True)
    assert output.all_hidden_LBTD.shape == (3, 2, length, 16)
    assert np.array_equal(output.all_hidden_LBTD[-1], output.hidden_BTD)


def test_a_sequence_longer_than_the_positions_is_an_error():
    ids = np.ones((1, 10), np.int32)
    with pytest.raises(UserError, match='length 10 exceeds the 9 positions'):
        encode(make_params(), ids, ids)


@pytest.mark.parametrize('dtype', ['float32', pytest.param('bfloat16', marks=pytest.mark.slow)])
def test_scan_and_remat_change_nothing(dtype):
    """Neither dropout masks nor gradients."""

    def run(compute, params):
        def loss(params):
            output = build_encoder(ARCHITECTURE, compute).apply(
                {'params': params}, Rows(IDS, MASK, IDS % 2), SEEDS
            )
            return jnp.sin(output.hidden_BTD.astype(jnp.float32)).sum(), output

        return jax.jit(jax.grad(loss, has_aux=True))(params)

    params = make_params()
    tolerance = {'float32': 1e-5, 'bfloat16': 0.05}[dtype]
    expected_grads, expected = run(Compute(dtype), params)
    for scan_layers, remat in ((False, True), (True, False), (True, True)):
        arranged = stack_layers(params) if scan_layers else params
        grads, output = run(Compute(dtype, scan_layers=scan_layers, remat=remat), arranged)
        grads = unstack_layers(grads) if scan_layers else grads
        np.testing.assert_allclose(
            *(np.float32(x.hidden_BTD) for x in (output, expected)), atol=tolerance
        )
        for path, leaf in jax.tree.leaves_with_path(expected_grads):
            ours = functools.reduce(lambda tree, key: tree[key.key], path, grads)
            scale = max(1, np.abs(leaf).max())
            np.testing.assert_allclose(ours, leaf, rtol=0, atol=tolerance * scale)


def test_equal_layers_are_traced_and_lowered_once():
    def num_products(num_layers):
        encoder = build_encoder(dataclasses.replace(ARCHITECTURE, num_layers=num_layers), Compute())
        params = jax.eval_shape(encoder.init, jax.random.key(0), ROWS)
        return jax.jit(encoder.apply).lower(params, ROWS).as_text().count('dot_general')

    assert num_products(2) == num_products(5) > 6


def test_attention_weights_are_dropped_out():
    """With no other dropout, states still differ between seeds."""
    architecture = dataclasses.replace(ARCHITECTURE, hidden_dropout=0.0, attention_dropout=0.5)
    encoder = build_encoder(architecture, Compute())
    apply = jax.jit(functools.partial(encoder.apply, {'params': make_params()}))
    first, second, evaluated = (apply(ROWS, seeds).hidden_BTD for seeds in (SEEDS, SEEDS + 3, None))
    assert (np.abs(first - second).max((1, 2))[:2] > 0.01).all()
    assert (np.abs(first - evaluated).max((1, 2))[:2] > 0.01).all()


def test_dropout_differs_between_examples_and_keeps_the_mean():
    ids = np.tile(IDS[:1], (256, 1))
    seeds = np.asarray(jax.random.bits(jax.random.key(0), (256,)))
    evaluated = encode(make_params(), ids[:1], np.ones_like(ids[:1])).all_hidden_LBTD
    assert evaluated is None
    run = functools.partial(encode, make_params(), ids, np.ones_like(ids), None, all_hidden=True)
    hidden_BTD = run(seeds).all_hidden_LBTD[0]
    assert np.array_equal(hidden_BTD, run(seeds).all_hidden_LBTD[0])
    assert len(np.unique(np.asarray(hidden_BTD).reshape(256, -1), axis=0)) == 256
    clean = run(None).all_hidden_LBTD[0]
    assert np.abs(hidden_BTD.mean(0) - clean[0]).max() < 0.15 * np.abs(clean).max()


def test_a_float32_residual_stream_is_closer_to_float32():
    architecture = architectures.build(
        'modernbert',
        vocab_size=100,
        hidden_size=16,
        num_layers=12,
        num_heads=2,
        intermediate_size=24,
    )
    computes = [Compute(), Compute('bfloat16'), Compute('bfloat16', float32_residual=True)]
    encoders = [build_encoder(architecture, compute) for compute in computes]
    params = random_parameters(encoders[0], ROWS)
    hidden = [jax.jit(e.apply)({'params': params}, ROWS).hidden_BTD for e in encoders]
    assert [array.dtype.name for array in hidden] == ['float32', 'bfloat16', 'float32']
    rounded, precise = (np.abs(hidden[0] - array.astype(np.float32)).mean() for array in hidden[1:])
    assert 0 < precise < 0.8 * rounded


def test_bfloat16_is_close_to_float32():
    low, high = (
        encode(make_params(), IDS, MASK, compute=Compute(dtype)).hidden_BTD
        for dtype in ('bfloat16', 'float32')
    )
    assert low.dtype == jnp.bfloat16
    error = np.abs(np.float32(low) - high)
    assert 0 < error.mean() < 0.01 * np.abs(high).mean() * 2
    assert error.max() < 0.1


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_padding_rows_of_the_vocabulary_are_neither_predicted_nor_trained(dtype):
    compute = Compute(dtype)
    head = MaskedLanguageModelHead(ARCHITECTURE, compute)
    hidden = jax.random.normal(jax.random.key(1), (3, 4, 16))
    # as if something had written to the padding rows
    table = jax.random.normal(jax.random.key(2), (ARCHITECTURE.padded_vocab_size, 16))
    params = nn.unbox(head.init(jax.random.key(3), hidden, table, method='predict'))['params']

    def loss(params, table):
        logits_BPV = head.apply({'params': params}, hidden, table, method='predict')
        return -jax.nn.log_softmax(logits_BPV)[..., 7].sum(), logits_BPV

    (grads, grad_table), logits_BPV = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(params, table)
    assert logits_BPV.dtype == jnp.float32
    assert not jax.nn.softmax(logits_BPV)[..., 100:].any()
    assert not grad_table[100:].any()
    assert grad_table[:100].any()
    assert not grads['bias'][100:].any()
    assert grads['bias'][:100].all()

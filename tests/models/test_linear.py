"""Mixed-precision products and biases: values, gradients, and bf16 in every shape."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import rows
from bert_jax.models.linear import add_bias, add_bias_of_heads, product
from bert_jax.models.rows import gather_positions
from tests import jaxprs

SPECS = {
    'BTD,DHK->BTHK': 'projection',
    'BTHK,HKD->BTD': 'output',
    'BTHK,BUHK->BHTU': 'scores',
    'BHTU,BUHK->BTHK': 'mix',
    'BPD,VD->BPV': 'vocabulary',
    'BD,DE->BE': 'pooler',
    'BTD,DGE->BTGE': 'gate',
}
SIZES = [
    dict(B=4, T=16, U=16, D=64, E=64, G=2, H=4, K=16, P=3, V=128),
    dict(B=2, T=7, U=7, D=15, E=15, G=2, H=3, K=5, P=1, V=130),
    dict(B=1, T=1, U=1, D=8, E=8, G=2, H=1, K=8, P=1, V=128),
    dict(B=3, T=32, U=32, D=24, E=24, G=3, H=1, K=24, P=5, V=256),
]


@pytest.mark.parametrize('spec', SPECS)
@pytest.mark.parametrize('sizes', SIZES, ids=range(len(SIZES)))
def test_products_and_their_gradients_agree_with_einsum(spec, sizes):
    inputs, _ = spec.split('->')
    keys = jax.random.split(jax.random.key(0))
    a, b = (
        jax.random.normal(key, [sizes[letter] for letter in letters])
        for key, letters in zip(keys, inputs.split(','), strict=True)
    )

    def run(multiply, a, b):
        def loss(a, b):
            result = multiply(a, b)
            return jnp.sin(result).sum(), result

        return jax.jit(jax.grad(loss, (0, 1), has_aux=True))(a, b)

    for dtype, tolerance in ((jnp.float32, 1e-5), (jnp.bfloat16, 0.03)):
        a, b = a.astype(dtype).astype(a.dtype), b.astype(dtype).astype(b.dtype)
        expected = run(lambda a, b: jnp.einsum(spec, a, b, precision='highest'), a, b)
        # Activations are in the compute dtype, the second operand is an fp32 parameter.
        ours = run(lambda a, b, dtype=dtype: product(spec, a, b, dtype), a.astype(dtype), b)
        assert ours[1].dtype == jnp.float32
        assert [grad.dtype for grad in ours[0]] == [dtype, jnp.float32]
        for mine, theirs in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
            scale = max(1, np.abs(theirs).max())
            np.testing.assert_allclose(np.float32(mine), theirs, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize('spec', ['BTD,DE->BTE', 'BTD,DGE->BTGE', 'BPD,VD->BPV'])
def test_on_cpu_products_of_float32_and_their_gradients_copy_nothing(spec):
    sizes = dict(B=4, T=16, P=16, D=64, E=48, G=2, V=128)
    inputs, out = spec.split('->')
    shapes = [[sizes[letter] for letter in letters] for letters in (*inputs.split(','), out)]
    a, b, gradient = map(jnp.ones, shapes)

    def run(a, b, gradient):
        return jax.vjp(lambda a, b: product(spec, a, b, jnp.float32), a, b)[1](gradient)

    program = jax.jit(run).lower(a, b, gradient).compile().as_text()
    assert not re.search(r' (copy|transpose)\(', program)


def test_bfloat16_products_sum_in_float32():
    ones = jnp.ones((1, 1, 4096), jnp.bfloat16)
    weights = jnp.full((4096, 1, 1), 1 + 2**-7)
    expected = 4096 * (1 + 2**-7)  # not representable in bf16
    assert product('BTD,DHK->BTHK', ones, weights, jnp.bfloat16).item() == expected
    grad = jax.grad(lambda a: product('BTD,DHK->BTHK', a, weights, jnp.bfloat16).sum())(ones)
    assert (grad == 1 + 2**-7).all()


@pytest.mark.parametrize('bias_shape', [(5,), (3, 5)])
def test_the_gradient_of_a_bias_is_the_sum_over_rows(bias_shape):
    x = jax.random.normal(jax.random.key(0), (4, 6, 3, 5))
    bias = jax.random.normal(jax.random.key(1), bias_shape)
    check_bias(add_bias, x, bias)


def test_the_gradient_of_a_bias_of_heads_on_tpu_is_the_sum_over_rows():
    x = jax.random.normal(jax.random.key(0), (4, 6, 15))
    bias = jax.random.normal(jax.random.key(1), (15,))
    check_bias(lambda x, bias: add_bias_of_heads(x, bias, jnp.float32), x, bias)


def check_bias(add, x, bias):
    assert np.array_equal(add(x, bias), x + bias)
    grads = jax.grad(lambda x, bias: jnp.sin(add(x, bias)).sum(), (0, 1))(x, bias)
    expected = jax.grad(lambda x, bias: jnp.sin(x + bias).sum(), (0, 1))(x, bias)
    for ours, theirs in zip(grads, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize('platform', ['cpu', 'gpu'])
def test_gathering_positions_and_its_gradient_agree_with_numpy(platform, monkeypatch):
    monkeypatch.setattr(rows, 'platform', lambda: platform)
    hidden = jax.random.normal(jax.random.key(0), (2, 5, 3))
    positions = np.array([[4, 0, 4], [1, 2, 3]])  # one position twice
    expected = np.stack([np.asarray(h)[p] for h, p in zip(hidden, positions, strict=True)])
    assert np.array_equal(gather_positions(hidden, positions), expected)
    weights = jax.random.normal(jax.random.key(1), expected.shape)
    grad = jax.grad(lambda hidden: (gather_positions(hidden, positions) * weights).sum())(hidden)
    counted = np.zeros(hidden.shape, np.float32)
    for b, row in enumerate(positions):
        np.add.at(counted[b], row, np.asarray(weights)[b])
    np.testing.assert_allclose(grad, counted, atol=1e-6)
    # A scatter makes XLA's GPU compiler transpose the states of all layers.
    program = jax.make_jaxpr(jax.grad(lambda hidden: gather_positions(hidden, positions).sum()))
    primitives = jaxprs.primitives(program(hidden).jaxpr)
    assert ('scatter-add' in primitives) == (platform == 'cpu')

"""GELU agrees with jax.nn and keeps one array for the backward pass; gates are split."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import feedforward
from tests import jaxprs

GELUS = (feedforward.gelu_keeping_input, feedforward.gelu_keeping_derivative)


@pytest.mark.parametrize('gelu', GELUS)
@pytest.mark.parametrize(('dtype', 'tolerance'), [('float32', 1e-6), ('bfloat16', 0.01)])
def test_exact_gelu_and_its_gradient_agree_with_jax(gelu, dtype, tolerance):
    x = jnp.concatenate([jnp.linspace(-6, 6, 4001), jnp.array([-1e4, -30.0, 0.0, 30.0, 1e4])])
    x = x.astype(dtype)
    ours = jax.jit(jax.vmap(jax.value_and_grad(gelu)))(x)
    expected = jax.vmap(jax.value_and_grad(lambda x: jax.nn.gelu(x, approximate=False)))(
        x.astype(jnp.float32)
    )
    for mine, theirs in zip(ours, expected, strict=True):
        assert mine.dtype == x.dtype
        bound = tolerance * np.maximum(1, abs(theirs))
        assert (abs(mine.astype(jnp.float32) - theirs) <= bound).all()


@pytest.mark.parametrize('gelu', GELUS)
def test_gelu_keeps_one_array_for_the_backward_pass(gelu):
    x = jnp.ones((8, 32), jnp.bfloat16)
    _, backward = jax.vjp(gelu, x)
    assert [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(backward)] == [(x.shape, x.dtype)]


@pytest.mark.parametrize(('platform', 'keeps_derivative'), [('cpu', False), ('tpu', True)])
def test_gelu_is_chosen_by_platform(platform, keeps_derivative, monkeypatch):
    monkeypatch.setattr(feedforward, 'platform', lambda: platform)
    jaxpr = jax.make_jaxpr(lambda x: feedforward.gelu(x))(1.0)
    assert ('custom_vjp_call' in str(jaxpr)) == keeps_derivative


def test_the_gelu_without_erf_is_exact_to_rounding():
    x = np.linspace(-8, 8, 100_001, dtype=np.float32)
    exact = [0.5 * value * (1 + math.erf(value * 0.5**0.5)) for value in x.astype(float)]
    np.testing.assert_allclose(feedforward.gelu_rational(x), exact, atol=1e-6, rtol=4e-7)
    assert 'erf' not in str(jax.make_jaxpr(feedforward.gelu_rational)(x))


def test_the_gradients_of_gate_and_value_are_stacked():
    x_BTGF, gradient = jax.random.normal(jax.random.key(0), (2, 3, 4, 2, 5))

    def run(x_BTGF):
        return jax.vjp(feedforward.split_gate, x_BTGF)[1]((gradient[:, :, 0], gradient[:, :, 1]))[0]

    assert np.array_equal(run(x_BTGF), gradient)
    assert 'pad' not in jaxprs.primitives(jax.make_jaxpr(run)(x_BTGF).jaxpr)

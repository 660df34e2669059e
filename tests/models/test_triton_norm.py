"""The kernel of residual, dropout and norm against plain JAX, in interpret mode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import triton_norm
from bert_jax.models.dropout import dropout
from bert_jax.models.module import layer_norm, rms_norm

EPSILON = 1e-5


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch):
    monkeypatch.setattr(triton_norm, 'INTERPRET', True)


def reference(settings, residual, update, scale, bias, seeds):
    x = residual + dropout(update, settings.rate, seeds)
    if settings.is_centered:
        return layer_norm(x, scale, bias, EPSILON)
    return rms_norm(x, scale, EPSILON) + bias


def inputs_of(length, width, dtype=jnp.float32):
    keys = jax.random.split(jax.random.key(0), 4)
    residual, update = (jax.random.normal(k, (3, length, width), dtype) for k in keys[:2])
    scale, bias = (1 + jax.random.normal(k, (width,)) / 2 for k in keys[2:])
    return residual, update, scale, bias, jnp.arange(3, dtype=jnp.uint32) * 7


@pytest.mark.parametrize(
    ('length', 'width', 'rate', 'is_centered'),
    [(8, 24, 0.3, True), (128, 32, 0.3, True), (4, 24, 0.0, True), (12, 40, 0.3, False)],
)
def test_values_and_gradients_are_those_of_plain_jax(length, width, rate, is_centered):
    settings = triton_norm.Settings(EPSILON, rate, is_centered)
    *floats, seeds = inputs_of(length, width)
    weights = jax.random.normal(jax.random.key(9), floats[0].shape)

    def loss(function, *floats):
        return (function(settings, *floats, seeds) * weights).sum()

    numbers = tuple(range(1, 5))
    for function in (reference, triton_norm.norm_of_sum):
        value = function(settings, *floats, seeds)
        gradients = jax.grad(loss, numbers)(function, *floats)
        if function is reference:
            expected = (value, *gradients)
    for mine, theirs in zip((value, *gradients), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)


def test_bfloat16_states_are_rounded_once():
    settings = triton_norm.Settings(EPSILON, 0.1, True)
    inputs = inputs_of(8, 24, jnp.bfloat16)
    output = triton_norm.norm_of_sum(settings, *inputs)
    assert output.dtype == jnp.bfloat16
    exact = reference(settings, *(x.astype(jnp.float32) for x in inputs[:4]), inputs[4])
    np.testing.assert_array_equal(output, exact.astype(jnp.bfloat16))


@pytest.mark.parametrize(
    ('length', 'width', 'dtype', 'fits'),
    [
        (128, 768, jnp.bfloat16, True),
        (128, 768, jnp.float32, False),
        (13, 768, jnp.bfloat16, False),
        (128, 8192, jnp.bfloat16, False),
    ],
)
def test_which_states_fit(length, width, dtype, fits):
    states = jax.ShapeDtypeStruct((2, length, width), dtype)
    assert triton_norm.fits(states, states) == fits

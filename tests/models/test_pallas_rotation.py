"""The TPU kernel of rotary positions, interpreted on CPU, agrees with the formula."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import kernels, pallas_rotation

SHAPES = {'two heads in a register': (4, 64), 'one': (1, 128), 'two registers': (2, 256)}


@pytest.fixture
def on_tpu(monkeypatch):
    monkeypatch.setattr(pallas_rotation, 'INTERPRET', True)
    monkeypatch.setattr(pallas_rotation, '_BLOCK', 16)  # the last one is not full
    monkeypatch.setattr(kernels, 'platform', lambda: 'tpu')


@pytest.mark.parametrize('shape', SHAPES)
@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
def test_the_rotation_and_its_gradient_agree_with_complex_numbers(on_tpu, shape, dtype):
    num_heads, size = SHAPES[shape]
    random = np.random.default_rng(0)
    x_BTHK, gradient_BTHK = random.normal(size=(2, 2, 40, num_heads, size))
    angles_TJ = random.normal(size=(40, size // 2)).astype(np.float32)
    rotations = kernels.Rotations(np.cos(angles_TJ), np.sin(angles_TJ))

    def turned(x_BTHK, sign):
        halves = np.split(x_BTHK, 2, axis=-1)
        turned_BTHJ = (halves[0] + 1j * halves[1]) * np.exp(sign * 1j * angles_TJ)[:, None]
        return np.concatenate([turned_BTHJ.real, turned_BTHJ.imag], axis=-1)

    x, gradient = jnp.asarray(x_BTHK, dtype), jnp.asarray(gradient_BTHK, dtype)
    run = jax.jit(lambda x: jax.vjp(lambda x: kernels.rotate(x, rotations), x)[1](gradient)[0])
    assert 'pallas_call' in str(jax.make_jaxpr(run)(x))
    tolerance = 1e-5 if dtype == jnp.float32 else 0.05
    found = np.asarray(kernels.rotate(x, rotations), np.float32)
    np.testing.assert_allclose(found, turned(x_BTHK, 1), rtol=0, atol=tolerance)
    found = np.asarray(run(x), np.float32)
    np.testing.assert_allclose(found, turned(gradient_BTHK, -1), rtol=0, atol=tolerance)


@pytest.mark.parametrize(('num_heads', 'size'), [(3, 64), (4, 48), (2, 192)])
def test_other_sizes_of_heads_are_rotated_without_the_kernel(on_tpu, num_heads, size):
    x_BTHK = jnp.ones((1, 3, num_heads, size))
    rotations = kernels.Rotations(*jnp.ones((2, 3, size // 2)))
    run = jax.make_jaxpr(lambda x: kernels.rotate(x, rotations))
    assert 'pallas_call' not in str(run(x_BTHK))

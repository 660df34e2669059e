"""The kernel of residual, dropout and norm on a mesh: the numbers of one device."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import triton_norm
from bert_jax.training import sharding
from configs import base

pytestmark = pytest.mark.eight_devices


def test_values_and_gradients_do_not_depend_on_the_mesh(monkeypatch):
    monkeypatch.setattr(triton_norm, 'INTERPRET', True)
    keys = jax.random.split(jax.random.key(0), 4)
    residual, update = (jax.random.normal(key, (8, 8, 24)) for key in keys[:2])
    scale, bias = (jax.random.normal(key, (24,)) for key in keys[2:])
    seeds = jnp.arange(8, dtype=jnp.uint32)

    def loss(residual, update, scale, bias):
        inputs = (residual, update, 0.3, seeds, scale, bias)
        return (triton_norm.apply(*inputs, epsilon=1e-5, is_centered=True) ** 3).sum()

    def run():
        function = jax.jit(jax.value_and_grad(loss, (0, 1, 2, 3)))
        return jax.device_get(function(residual, update, scale, bias))

    expected = run()
    mesh = sharding.make_mesh({'data': 2, 'fsdp': 2, 'tensor': 2})
    with jax.set_mesh(mesh), nn.logical_axis_rules(base.get_config().sharding_rules):
        found = run()
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)

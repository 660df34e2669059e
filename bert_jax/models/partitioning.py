"""Logical axis names, by which sharding rules lay out parameters and activations on a mesh.

Parameters:  vocab, positions, types, embed, features (output of a square D × D kernel), heads,
             kv_heads (of keys and values if they are fewer; never sharded), head_dim, mlp, labels,
             norm (scales and biases of norms), layers (stacked by scan).
Activations: batch, length, embed, heads, kv_heads, head_dim, mlp, vocab.

Rules are pairs (logical name, mesh axis or tuple of axes or None). Earlier rules win, and each mesh
axis is used once per array: with ('batch', ('data', 'fsdp')) before ('embed', 'fsdp') parameters
are sharded along embed but activations along batch, although both have a dimension named embed.

`nn.with_logical_constraint` works under `jax.set_mesh(mesh)` (flax 0.12.8, jax 0.10.2), inside and
outside jit. `with nn.logical_axis_rules(rules)` must surround tracing. All mesh axes must be of
AxisType.Auto: jax rejects a constraint by PartitionSpec on an Explicit axis. Without a mesh or
without rules a constraint has no effect.
"""

from collections.abc import Callable
from typing import Any

import jax
from flax import linen as nn


def param(
    module: nn.Module,
    name: str,
    init: Callable[..., jax.Array],
    shape: tuple[int, ...],
    axes: tuple[str | None, ...],
) -> jax.Array:
    """Declare an fp32 parameter of a module, with the logical names of its axes."""
    boxed_init: Callable[..., Any] = nn.with_logical_partitioning(init, axes)
    array: jax.Array = module.param(name, boxed_init, shape)
    return array


def platform() -> str:
    """Return 'cpu', 'gpu' or 'tpu': the current mesh's platform, or JAX's default backend."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return jax.default_backend() if device is None else device.platform


def constrain(x: jax.Array, names: tuple[str | None, ...]) -> jax.Array:
    """Shard x over the current mesh by the current rules for these logical axes."""
    array: jax.Array = nn.with_logical_constraint(x, names)
    return array

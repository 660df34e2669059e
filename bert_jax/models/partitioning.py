"""Logical axis names, by which parameters and activations are laid out over a mesh.

Parameters:  vocab, positions, types, embed, features (output of a square D × D kernel), heads,
             head_dim, mlp, labels, norm (scales and biases of norms), layers (stacked by scan).
Activations: batch, length, embed, heads, head_dim, mlp, vocab.

A table of rules, pairs (logical name, mesh axis or tuple of axes or None), turns them into mesh
axes. Earlier rules win and a mesh axis is used once per array. So with ('batch', ('data', 'fsdp'))
ahead of ('embed', 'fsdp') parameters are cut along embed and activations along batch, although both
have a dimension named embed.

With flax 0.12.8 and jax 0.10.2 `nn.with_logical_constraint` works under `jax.set_mesh(mesh)`: flax
asks for jax's abstract mesh, which set_mesh defines inside and outside jit. The rules come from
`with nn.logical_axis_rules(rules)`, which must surround the tracing. All mesh axes must be of
AxisType.Auto, since a constraint by PartitionSpec is refused for an Explicit axis. Without a mesh
or without rules a constraint does nothing.
"""

import jax
from flax import linen as nn


def constrain(x: jax.Array, names: tuple[str | None, ...]) -> jax.Array:
    """x, laid out over the mesh in use as the rules in use say for these dimension names."""
    return nn.with_logical_constraint(x, names)

"""The layout of arrays over devices: a mesh, and rules from logical axis names to mesh axes.

Parameters carry logical axis names ('vocab', 'embed', 'mlp', …); `sharding_rules` in the config
maps them to the mesh axes `data`, `fsdp` and `tensor`. The same code runs on one CPU and on a pod.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from bert_jax import tree_paths
from bert_jax.errors import UserError, unknown
from bert_jax.types import Tree

AXES = ('data', 'fsdp', 'tensor')
BATCH_AXES = ('data', 'fsdp')
# Logical names of the axes of activations; the boxes of parameters hold the names of their axes.
ACTIVATION_AXES = ('batch', 'length', 'embed', 'heads', 'head_dim', 'mlp', 'vocab')

Rules: TypeAlias = Sequence[tuple[str, str | tuple[str, ...] | None]]


def make_mesh(sizes: Mapping[str, int], devices: Sequence[jax.Device] | None = None) -> Mesh:
    """Make a mesh of devices.

    Args:
        sizes: size of every axis in AXES; one size may be -1, which takes the remaining devices.
        devices: by default all devices of all processes.

    Raises:
        UserError: the sizes do not multiply to the number of devices.
    """
    shape = [sizes[axis] for axis in AXES]
    devices = jax.devices() if devices is None else devices
    if any(size == 0 or size < -1 for size in shape) or shape.count(-1) > 1:
        raise UserError(f'mesh {dict(sizes)}: sizes must be positive, at most one may be -1')
    if -1 in shape:
        shape[shape.index(-1)] = len(devices) // -math.prod(shape)
    if math.prod(shape) != len(devices):
        raise UserError(
            f'mesh {dict(sizes)} does not fit {len(devices)} device(s): choose sizes whose product '
            f'is {len(devices)}, or -1 for one size'
        )
    auto = (AxisType.Auto,) * len(AXES)
    return jax.make_mesh(tuple(shape), AXES, axis_types=auto, devices=devices)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Shard the rows of a batch over the data and fsdp axes."""
    return NamedSharding(mesh, PartitionSpec(BATCH_AXES))


def replicated(mesh: Mesh) -> NamedSharding:
    """Place a copy of the array on every device."""
    return NamedSharding(mesh, PartitionSpec())


def batch_shards(mesh: Mesh) -> int:
    """Number of shards into which the rows of a batch are split."""
    return math.prod(mesh.shape[axis] for axis in BATCH_AXES)


def check_batch(batch_size: int, accumulation: int, mesh: Mesh) -> None:
    """Raise UserError unless micro-batches divide evenly over the devices."""
    shards = batch_shards(mesh)
    if batch_size % (accumulation * shards):
        raise UserError(
            f'batch size {batch_size} does not divide into {accumulation} micro-batch(es) over '
            f'{shards} device(s) (mesh data × fsdp); use a multiple of {accumulation * shards}'
        )


def local_rows(sharding: NamedSharding, batch_size: int) -> np.ndarray:
    """Rows of the global batch on the devices of this process, int64, ascending."""
    indices = sharding.addressable_devices_indices_map((batch_size,)).values()
    rows = {row for index in indices if index for row in range(*index[0].indices(batch_size))}
    return np.array(sorted(rows))


def param_shardings(boxed_params: Tree, mesh: Mesh, rules: Rules) -> Tree:
    """Return the NamedSharding of every parameter, from its logical axis names.

    Args:
        boxed_params: abstract parameters in the boxes that hold their logical names.
        mesh: the devices.
        rules: pairs of a logical axis name and the mesh axes that the axis is sharded over.

    Raises:
        UserError: a logical axis does not exist, or a mesh axis does not divide a parameter.
    """
    specs = nn.get_partition_spec(boxed_params)
    known = {name for spec in jax.tree.leaves(specs) for name in spec if name}
    for name, _ in rules:  # Flax ignores names that it does not find
        if name not in known.union(ACTIVATION_AXES):
            raise unknown('logical axis in sharding_rules', name, known.union(ACTIVATION_AXES))
    shardings = nn.logical_to_mesh_sharding(specs, mesh, rules)
    jax.tree_util.tree_map_with_path(_check_divides, unbox(boxed_params), shardings)
    return shardings


def check_rules(rules: Rules) -> None:
    """Raise UserError for a rule that is not a pair, or whose mesh axes do not exist."""
    for rule in rules:
        if not (isinstance(rule, tuple) and len(rule) == 2):
            raise UserError(f'sharding_rules has {rule!r}; write (logical axis, mesh axis)')
        axes = rule[1]
        for axis in axes if isinstance(axes, tuple) else () if axes is None else (axes,):
            if axis not in AXES:
                raise unknown('mesh axis in sharding_rules', axis, AXES)


def unbox(boxed_params: Tree) -> Tree:
    """Take every array of a tree out of the box that holds its logical axis names."""
    return jax.tree.map(
        lambda box: box.unbox(apply_constraint=False),
        boxed_params,
        is_leaf=lambda leaf: isinstance(leaf, nn.LogicallyPartitioned),
    )


def _check_divides(
    path: tuple[object, ...], param: jax.ShapeDtypeStruct, sharding: NamedSharding
) -> None:
    for size, axes in zip(param.shape, sharding.spec, strict=False):
        names = (axes,) if isinstance(axes, str) else axes or ()
        shards = math.prod(sharding.mesh.shape[name] for name in names)
        if size % shards:
            raise UserError(
                f'parameter {tree_paths.path_name(path)} of shape {param.shape} cannot be split '
                f'into {shards} shards along its axis of size {size}: choose mesh sizes that '
                'divide it'
            )

"""Which part of every array lives on which device: a mesh, and one table from logical axis names to
its axes.

Parameters carry logical names ('vocab', 'embed', 'mlp', …); the config's `sharding_rules` map them
to the mesh axes `data`, `fsdp` and `tensor`. The same code runs on one CPU and on a pod.
"""

import math

import flax.linen as nn
import jax
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from bert_jax import tree_paths
from bert_jax.errors import UserError

AXES = ('data', 'fsdp', 'tensor')
BATCH_AXES = ('data', 'fsdp')


def make_mesh(sizes: dict[str, int]) -> Mesh:
    """A mesh over all devices; one size may be −1: as many as are left.

    Raises UserError if the sizes do not multiply to the number of devices.
    """
    shape = [sizes[axis] for axis in AXES]
    devices = jax.device_count()
    if any(size == 0 or size < -1 for size in shape) or shape.count(-1) > 1:
        raise UserError(f'mesh {dict(sizes)}: sizes must be positive, at most one of them -1')
    if -1 in shape:
        fixed = -math.prod(shape)
        shape[shape.index(-1)] = devices // fixed
    if math.prod(shape) != devices:
        raise UserError(
            f'mesh {dict(sizes)} does not fit {devices} device(s): '
            'choose sizes whose product is that number, or -1 for one of them'
        )
    return jax.make_mesh(tuple(shape), AXES, axis_types=(AxisType.Auto,) * len(AXES))


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Rows over the data and fsdp axes."""
    return NamedSharding(mesh, PartitionSpec(BATCH_AXES))


def replicated(mesh: Mesh) -> NamedSharding:
    """The whole array on every device."""
    return NamedSharding(mesh, PartitionSpec())


def batch_shards(mesh: Mesh) -> int:
    """Into how many parts the rows of a batch are cut."""
    return math.prod(mesh.shape[axis] for axis in BATCH_AXES)


def check_batch(batch_size: int, accumulation: int, mesh: Mesh):
    """Raises UserError unless every device gets the same number of rows of every micro-batch."""
    shards = batch_shards(mesh)
    if batch_size % (accumulation * shards):
        raise UserError(
            f'batch size {batch_size} does not divide into {accumulation} micro-batch(es) over '
            f'{shards} device(s) (mesh data × fsdp); use a multiple of {accumulation * shards}'
        )


def local_rows(sharding: NamedSharding, batch_size: int) -> np.ndarray:
    """int64 rows of the global batch that this process' devices hold, ascending."""
    slices = sharding.addressable_devices_indices_map((batch_size,)).values()
    rows = {row for (index,) in slices for row in range(*index.indices(batch_size))}
    return np.array(sorted(rows))


def param_shardings(boxed_params, mesh: Mesh, rules):
    """NamedSharding for every parameter from its logical names (`boxed_params`: abstract, with its
    metadata).

    Raises UserError naming the parameter whose size a mesh axis does not divide.
    """
    specs = nn.get_partition_spec(boxed_params)
    shardings = nn.logical_to_mesh_sharding(specs, mesh, rules)
    jax.tree_util.tree_map_with_path(_check_divides, unbox(boxed_params), shardings)
    return shardings


def unbox(boxed_params):
    """The bare arrays, or abstract arrays, of a tree with logical names."""
    return jax.tree.map(
        lambda box: box.unbox(apply_constraint=False),
        boxed_params,
        is_leaf=lambda leaf: isinstance(leaf, nn.LogicallyPartitioned),
    )


def _check_divides(path, param, sharding: NamedSharding):
    for size, axes in zip(param.shape, sharding.spec, strict=False):
        axes = (axes,) if isinstance(axes, str) else axes or ()
        shards = math.prod(sharding.mesh.shape[axis] for axis in axes)
        if size % shards:
            name = tree_paths.path_name(path)
            raise UserError(
                f'parameter {name} {param.shape} cannot be cut into {shards} parts along its axis '
                f'of {size}: choose a mesh size that divides it'
            )


def optimizer_shardings(optimizer, abstract_params, shardings, mesh: Mesh):
    """Moments lie where their parameters lie; everything else is on every device."""
    state = jax.eval_shape(optimizer.init, abstract_params)
    return optax.tree.map_params(
        optimizer,
        lambda _, sharding: sharding,
        state,
        shardings,
        transform_non_params=lambda _: replicated(mesh),
    )

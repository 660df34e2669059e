"""Attention that never writes its scores to memory: cuDNN's on NVIDIA GPUs, Pallas' on TPUs.

Up to rounding they are to give what models/attention.py computes from scores, at every position
that sees another. Neither has run on its hardware: Pallas' is tested interpreted, of cuDNN's what
it is given. They cannot drop out attention weights, for which they would have to draw other bits.
"""

import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, PartitionSpec

from bert_jax.errors import UserError
from bert_jax.models.architecture import Architecture, Compute

PLATFORMS = {'cudnn': 'gpu', 'flash': 'tpu'}
CUDNN = 'cudnn'  # of jax.nn.dot_product_attention
BLOCK = 128  # positions that the Pallas kernel takes at once


def check(architecture: Architecture, compute: Compute):
    """Raises UserError if the kernel that was chosen cannot run this encoder here."""
    kernel = compute.attention_kernel
    if kernel not in PLATFORMS:
        return
    name, platform = f'compute.attention_kernel={kernel}', jax.default_backend()
    if platform != PLATFORMS[kernel]:
        raise UserError(f'{name} is for a {PLATFORMS[kernel]}, this is a {platform}; use xla')
    if architecture.attention == 'disentangled':
        raise UserError(f'{name} cannot score distances as this encoder does; use xla')
    if kernel == 'cudnn' and (compute.dtype != 'bfloat16' or architecture.head_size % 8):
        raise UserError(
            f'{name} takes bfloat16 and heads whose size is a multiple of 8, not {compute.dtype} '
            f'and {architecture.head_size}'
        )


def check_dropout(architecture: Architecture, compute: Compute, seeds_B: jax.Array | None):
    """Raises UserError if the kernel would have to drop out attention weights: there are seeds."""
    rate = architecture.attention_dropout
    if rate and seeds_B is not None:
        raise UserError(
            f'compute.attention_kernel={compute.attention_kernel} cannot drop out attention '
            f'weights, of which model.attention_dropout is {rate}: set that to 0, or use xla'
        )


def attend(
    kernel: str,
    query_BTHK: jax.Array,
    key_BSHK: jax.Array,
    value_BSHK: jax.Array,
    bias_BHTS: jax.Array,
    group_BT: jax.Array | None,
) -> jax.Array:
    """softmax(query · key / √K + bias) · value, [B, T, H, K] in the dtype of the values (Vaswani et
    al. 2017, equation 1), every device of a mesh for its own rows and heads.

    bias_BHTS: fp32, H and T may be 1: with large negative numbers where nothing is seen.
    group_BT: int32: positions see those of their own number, all of them; that is all the bias says
        then, and the Pallas kernel does without it. None: it says more.
    Raises UserError for a length the Pallas kernel cannot take.
    """
    states = ('batch', None, 'heads', None)
    arrays, names = [query_BTHK, key_BSHK, value_BSHK], [states, states, states]
    if kernel == 'flash' and group_BT is not None:
        function = _flash_in_groups
        arrays, names = [*arrays, group_BT], [*names, ('batch', None)]
    else:
        function = {'cudnn': _cudnn, 'flash': _flash}[kernel]
        heads = 'heads' if bias_BHTS.shape[1] > 1 else None
        arrays, names = [*arrays, bias_BHTS], [*names, ('batch', heads, None, None)]
    return _over_mesh(function, names)(*arrays)


def _cudnn(query_BTHK, key_BSHK, value_BSHK, bias_BHTS):
    shape = (*bias_BHTS.shape[:2], query_BTHK.shape[1], key_BSHK.shape[1])
    bias_BHTS = jnp.broadcast_to(bias_BHTS, shape).astype(query_BTHK.dtype)
    return jax.nn.dot_product_attention(
        query_BTHK, key_BSHK, value_BSHK, bias_BHTS, implementation=CUDNN
    )


def _flash(query_BTHK, key_BSHK, value_BSHK, bias_BHTS):
    num_rows, length, num_heads, head_size = query_BTHK.shape
    shape = (num_rows, num_heads, length, key_BSHK.shape[1])
    bias_BHTS = jnp.broadcast_to(bias_BHTS, shape) * head_size**0.5  # the kernel scales the sum
    return _pallas(query_BTHK, key_BSHK, value_BSHK, ab=bias_BHTS)


def _flash_in_groups(query_BTHK, key_BSHK, value_BSHK, group_BT):
    from jax.experimental.pallas.ops.tpu.flash_attention import SegmentIds

    groups = SegmentIds(group_BT, group_BT)
    return _pallas(query_BTHK, key_BSHK, value_BSHK, segment_ids=groups)


def _pallas(*states, **seen):
    from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention  # half a second

    length, head_size = states[0].shape[1], states[0].shape[3]
    if length % BLOCK:
        raise UserError(
            f'compute.attention_kernel=flash takes sequences of a multiple of {BLOCK} positions, '
            f'not {length}; use xla'
        )
    states = (x_BTHK.transpose(0, 2, 1, 3) for x_BTHK in states)
    result_BHTK = flash_attention(*states, sm_scale=head_size**-0.5, **seen)
    return result_BHTK.transpose(0, 2, 1, 3)


def _over_mesh(function: Callable, names: list[tuple]) -> Callable:
    """function, whose result is laid out as its first argument, run by every device on its part: no
    compiler cuts a kernel. names: the logical axes of each argument."""
    mesh = jax.sharding.get_abstract_mesh()
    if AxisType.Auto not in mesh.axis_types:  # none, or the devices have their parts already
        return function

    def run(*arrays):
        specs = tuple(map(_spec, arrays, names))
        return jax.shard_map(function, in_specs=specs, out_specs=specs[0], check_vma=False)(*arrays)

    return run


def _spec(array: jax.Array, names: tuple[str | None, ...]) -> PartitionSpec:
    """Where the parts of an array lie; on every device along a dimension that cannot be cut, such
    as the one row with which parameters are initialized."""
    sizes = dict(jax.sharding.get_abstract_mesh().shape)
    parts = []
    for size, axes in zip(array.shape, nn.logical_to_mesh_axes(names), strict=True):
        axes = (axes,) if isinstance(axes, str) else axes or ()
        parts.append(axes if size % math.prod(sizes[axis] for axis in axes) == 0 else None)
    return PartitionSpec(*parts)

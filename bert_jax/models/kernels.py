"""Attention kernels that never write scores to memory: cuDNN on NVIDIA GPUs, Pallas on TPUs.

Up to rounding they compute what attention.py computes from materialized scores, at every position
that attends to another. Neither has run on its hardware: Pallas is tested in interpret mode, cuDNN
by its arguments. They have no dropout of attention weights, for which they would draw other bits.
"""

import math
from collections.abc import Callable
from typing import Literal, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, PartitionSpec

from bert_jax.errors import UserError
from bert_jax.models import partitioning
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.visibility import Visibility

PLATFORMS = {'cudnn': 'gpu', 'flash': 'tpu'}
CUDNN: Literal['xla', 'cudnn'] = 'cudnn'  # implementation of jax.nn.dot_product_attention
BLOCK = 128  # positions per block of the Pallas kernel
_Axes: TypeAlias = tuple[str | None, ...]  # logical axis names


def check(architecture: Architecture, compute: Compute) -> None:
    """Raise UserError if the chosen kernel cannot run this encoder on this machine."""
    kernel = compute.attention_kernel
    if kernel not in PLATFORMS:
        return
    name, platform = f'compute.attention_kernel={kernel}', partitioning.platform()
    if platform != PLATFORMS[kernel]:
        raise UserError(
            f'{name} runs on {PLATFORMS[kernel]}, but the backend is {platform}; set it to xla'
        )
    if architecture.attention == 'disentangled':
        raise UserError(f'{name} does not support disentangled attention; use xla')
    if kernel == 'cudnn' and (compute.dtype != 'bfloat16' or architecture.head_size % 8):
        raise UserError(
            f'{name} needs bfloat16 and a head size that is a multiple of 8, not {compute.dtype} '
            f'and {architecture.head_size}'
        )


def check_dropout(architecture: Architecture, compute: Compute, seeds_B: jax.Array | None) -> None:
    """Raise UserError if training would need dropout of attention weights (there are seeds)."""
    rate = architecture.attention_dropout
    if rate and seeds_B is not None:
        raise UserError(
            f'compute.attention_kernel={compute.attention_kernel} has no dropout of attention '
            f'weights, but model.attention_dropout is {rate}: set it to 0, or use xla'
        )


def attend(
    kernel: str,
    query_BTHK: jax.Array,
    key_BUHK: jax.Array,
    value_BUHK: jax.Array,
    visibility: Visibility,
) -> jax.Array:
    """softmax(query · key / √K + bias) · value (Vaswani et al. 2017, equation 1).

    Every device of a mesh computes its own rows and heads.

    Returns:
        [B, T, H, K] in the dtype of the values.

    Raises:
        UserError: the Pallas kernel does not support the sequence length.
    """
    states, names = (query_BTHK, key_BUHK, value_BUHK), [('batch', None, 'heads', None)] * 3
    groups_BT = visibility.groups() if kernel == 'flash' else None
    if groups_BT is not None:
        run = _over_mesh(_flash_in_groups, [*names, ('batch', None)])
        return run(*states, groups_BT)
    bias_BHTU = visibility.bias(query_BTHK.shape[1], key_BUHK.shape[1])
    heads = 'heads' if bias_BHTU.shape[1] > 1 else None
    function = {'cudnn': _cudnn, 'flash': _flash}[kernel]
    return _over_mesh(function, [*names, ('batch', heads, None, None)])(*states, bias_BHTU)


def _cudnn(
    query_BTHK: jax.Array, key_BUHK: jax.Array, value_BUHK: jax.Array, bias_BHTU: jax.Array
) -> jax.Array:
    shape = (*bias_BHTU.shape[:2], query_BTHK.shape[1], key_BUHK.shape[1])
    bias_BHTU = jnp.broadcast_to(bias_BHTU, shape).astype(query_BTHK.dtype)
    return jax.nn.dot_product_attention(
        query_BTHK, key_BUHK, value_BUHK, bias_BHTU, implementation=CUDNN
    )


def _flash(
    query_BTHK: jax.Array, key_BUHK: jax.Array, value_BUHK: jax.Array, bias_BHTU: jax.Array
) -> jax.Array:
    num_rows, length, num_heads, head_size = query_BTHK.shape
    shape = (num_rows, num_heads, length, key_BUHK.shape[1])
    bias_BHTU = jnp.broadcast_to(bias_BHTU, shape) * head_size**0.5  # the kernel scales the sum
    return _pallas(query_BTHK, key_BUHK, value_BUHK, ab=bias_BHTU)


def _flash_in_groups(
    query_BTHK: jax.Array, key_BUHK: jax.Array, value_BUHK: jax.Array, groups_BT: jax.Array
) -> jax.Array:
    from jax.experimental.pallas.ops.tpu.flash_attention import SegmentIds

    segment_ids = SegmentIds(groups_BT, groups_BT)
    return _pallas(query_BTHK, key_BUHK, value_BUHK, segment_ids=segment_ids)


def _pallas(
    query_BTHK: jax.Array, key_BUHK: jax.Array, value_BUHK: jax.Array, **options: object
) -> jax.Array:
    from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention  # takes 0.5 s

    length, head_size = query_BTHK.shape[1], query_BTHK.shape[3]
    if length % BLOCK:
        raise UserError(
            f'compute.attention_kernel=flash needs sequence lengths that are multiples of {BLOCK}, '
            f'not {length}; use xla'
        )
    states = (x_BTHK.transpose(0, 2, 1, 3) for x_BTHK in (query_BTHK, key_BUHK, value_BUHK))
    result_BHTK = flash_attention(*states, sm_scale=head_size**-0.5, **options)
    return result_BHTK.transpose(0, 2, 1, 3)


def _over_mesh(function: Callable[..., jax.Array], names: list[_Axes]) -> Callable[..., jax.Array]:
    """Run `function` on each device's part of the arrays: XLA cannot partition a kernel.

    The result is laid out like the first argument. names: the logical axes of each argument.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if AxisType.Auto not in mesh.axis_types:  # no mesh, or already within shard_map
        return function

    def run(*arrays: jax.Array) -> jax.Array:
        specs = tuple(map(_spec, arrays, names))
        return jax.shard_map(function, in_specs=specs, out_specs=specs[0], check_vma=False)(*arrays)

    return run


def _spec(array: jax.Array, names: _Axes) -> PartitionSpec:
    """The sharding of an array by the current rules.

    A dimension that does not divide evenly is replicated, such as the single row with which
    parameters are initialized.
    """
    sizes = dict(jax.sharding.get_abstract_mesh().shape)
    parts: list[tuple[str, ...] | None] = []
    for size, axes in zip(array.shape, nn.logical_to_mesh_axes(names) or (), strict=True):
        axes = (axes,) if isinstance(axes, str) else axes or ()
        parts.append(axes if size % math.prod(sizes[axis] for axis in axes) == 0 else None)
    return PartitionSpec(*parts)

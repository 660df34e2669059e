"""Attention kernels that never write scores to memory: cuDNN on NVIDIA GPUs, Pallas on TPUs.

Up to rounding they agree with attention.py, which materializes scores, at every position that
attends to another. cuDNN was compared on an H100 (experiments/accelerator). Pallas has not run on
a TPU: it is tested in interpret mode and by compiling for TPUs.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, PartitionSpec

from bert_jax.errors import UserError
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.dropout import random_bits
from bert_jax.models.partitioning import platform
from bert_jax.models.visibility import (
    MAX_ROW,
    MAX_ROW_WITH_DISTANCES,
    Distances,
    Pattern,
    Visibility,
)

PLATFORMS = {'cudnn': 'gpu', 'flash': 'tpu'}
CUDNN: Literal['xla', 'cudnn'] = 'cudnn'  # implementation of jax.nn.dot_product_attention
_PLAIN = Pattern()
_AMPERE_OR_LATER = r'([89]|\d\d)\.\d'  # compute capability of an NVIDIA GPU
_Axes: TypeAlias = tuple[str | None, ...]  # logical axis names


def choose(
    architecture: Architecture,
    compute: Compute,
    length: int,
    is_training: bool,
    pattern: Pattern = _PLAIN,
) -> str:
    """Choose the attention kernel: 'xla', 'cudnn' or 'flash'.

    Args:
        architecture: of the encoder.
        compute: `attention_kernel` 'auto' takes the platform's kernel if it can run the encoder,
            else 'xla'.
        length: of the sequences.
        is_training: whether dropout is active.
        pattern: of the rows' visibility.

    Raises:
        UserError: the kernel that compute names cannot run this encoder on this machine.
    """
    is_auto = compute.attention_kernel == 'auto'
    kernel = _kernel_of_platform() if is_auto else compute.attention_kernel
    limitation = _limitation(kernel, architecture, compute, length, is_training, pattern)
    if limitation and not is_auto:
        raise UserError(f'compute.attention_kernel={kernel} {limitation}; set it to auto')
    return 'xla' if limitation else kernel


def describe(
    architecture: Architecture, compute: Compute, length: int, pattern: Pattern = _PLAIN
) -> str:
    """Return a log line: the kernel for training, and why it is not the platform's kernel."""
    settings = (architecture, compute, length, True, pattern)
    line = f'attention kernel {choose(*settings)}'
    kernel = _kernel_of_platform()
    limitation = _limitation(kernel, *settings)
    if compute.attention_kernel == 'auto' and limitation:
        line += f': {kernel} {limitation}'
    return line


def _kernel_of_platform() -> str:
    return next((kernel for kernel, name in PLATFORMS.items() if name == platform()), 'xla')


def _limitation(
    kernel: str,
    architecture: Architecture,
    compute: Compute,
    length: int,
    is_training: bool,
    pattern: Pattern,
) -> str | None:
    """Return why a kernel cannot run this encoder; None if it can."""
    if kernel == 'xla':
        return None
    if platform() != PLATFORMS[kernel]:
        return f'runs on {PLATFORMS[kernel]}, but the backend is {platform()}'
    if pattern.has_causal_rows:
        return 'does not support causal attention in some of the rows'
    if architecture.attention.kind == 'relative':
        return 'does not support relative attention'
    if architecture.attention.kind == 'relative_bias':
        return 'does not support a relative bias'
    if pattern.has_prefix:
        return 'does not support a prefix that all positions see (prefix_lm)'
    is_disentangled = architecture.attention.kind == 'disentangled'
    if kernel == 'flash':
        limit = MAX_ROW_WITH_DISTANCES if is_disentangled else MAX_ROW
        return f'takes rows of at most {limit:,} tokens, not {length:,}' if length > limit else None
    if is_disentangled:
        return 'does not support disentangled attention'
    if architecture.tuning is not None and architecture.tuning.needs_scores:
        return f'does not support the prefixes of transfer.method={architecture.tuning.method}'
    rate, size = architecture.attention_dropout, architecture.head_size
    if rate and is_training:
        return f'has no dropout of attention weights, but model.attention_dropout is {rate}'
    if compute.dtype != 'bfloat16' or size % 8 or size > 128:
        return (
            'needs compute.dtype=bfloat16 and a head size that is a multiple of 8 and at most 128, '
            f'not {compute.dtype} and {size}'
        )
    if length % 2:
        return f'needs an even sequence length, not {length}'
    capability = compute_capability()
    if not re.fullmatch(_AMPERE_OR_LATER, capability):
        return f'needs an NVIDIA GPU of compute capability 8.0 or higher, not {capability}'
    return None


def compute_capability() -> str:
    """Return the compute capability of the first GPU."""
    # The attribute is missing when compiling for GPUs on a machine without one.
    return str(getattr(jax.local_devices()[0], 'compute_capability', '9.0'))


def runs_triton() -> bool:
    """Whether the platform is a GPU whose kernels Triton compiles."""
    return platform() == 'gpu' and bool(re.fullmatch(_AMPERE_OR_LATER, compute_capability()))


def check_padding(
    architecture: Architecture,
    compute: Compute,
    x_BTD: jax.Array,
    visibility: Visibility,
    is_training: bool,
) -> tuple[jax.Array, Visibility]:
    """Check once, before the layers, what cuDNN asks of padding in each of them.

    Args:
        architecture, compute: of the layers.
        x_BTD: the states before the layers.
        visibility: that all layers share.
        is_training: whether dropout is active.

    Returns:
        The states, NaN in rows whose lengths are not what the mask says, and the visibility.
    """
    settings = (architecture, compute, x_BTD.shape[1], is_training, visibility.pattern)
    uses_lengths = visibility.segment_ids_BT is None and visibility.query_positions_BT is None
    if not uses_lengths or None not in architecture.layer_windows or choose(*settings) != 'cudnn':
        return x_BTD, visibility
    is_last_B = _is_padding_last(visibility)
    x_BTD = jnp.where(is_last_B[:, None, None], x_BTD, jnp.nan)
    return x_BTD, dataclasses.replace(visibility, is_padding_checked=True)


def _is_padding_last(visibility: Visibility) -> jax.Array:
    """Whether the keys of each row are as many as its length and in front, bool [B]."""
    mask_BU = visibility.attention_mask_BU
    assert mask_BU is not None
    return jnp.all(mask_BU[:, :-1] >= mask_BU[:, 1:], axis=1)


def attend(
    kernel: str,
    query_BTHK: jax.Array,
    key_BUHK: jax.Array,
    value_BUHK: jax.Array,
    visibility: Visibility,
    dropout_rate: float = 0.0,
    seeds_B: jax.Array | None = None,
    distances: Distances | None = None,
) -> jax.Array:
    """softmax(query · key / √K + bias) · value (Vaswani et al. 2017, equation 1).

    Every device of a mesh computes its own rows and heads.

    Args:
        kernel: 'cudnn' or 'flash'.
        query_BTHK: queries.
        key_BUHK: keys.
        value_BUHK: values.
        visibility: which keys a query attends to.
        dropout_rate: of attention weights; 'flash' drops the same weights as `weight_dropout`.
        seeds_B: uint32, one per example; None for evaluation.
        distances: further terms of the scores, for 'flash' only.

    Returns:
        [B, T, H, K] in the dtype of the values.
    """
    arguments: tuple[Any, ...] = (query_BTHK, key_BUHK, value_BUHK, visibility, distances)
    states = ('batch', None, 'heads', None)
    # Masks and segment ids [B, T], slopes [H].
    visible = jax.tree.map(lambda x: ('batch', None) if x.ndim == 2 else ('heads',), visibility)
    tables = jax.tree.map(lambda x: states, distances)
    axes: tuple[Any, ...] = (states, states, states, visible, tables)
    if dropout_rate and seeds_B is not None:
        num_rows, length, num_heads, _ = query_BTHK.shape
        arguments += (random_bits((num_rows, num_heads, length), seeds_B),)
        axes += (('batch', 'heads', None),)
    function: Callable[..., jax.Array] = _cudnn
    if kernel == 'flash':
        from bert_jax.models import pallas_attention  # Pallas takes 0.5 s to import

        function = functools.partial(pallas_attention.attend, dropout_rate=dropout_rate)
    return over_mesh(function, axes)(*arguments)


def _cudnn(
    query_BTHK: jax.Array,
    key_BUHK: jax.Array,
    value_BUHK: jax.Array,
    visibility: Visibility,
    distances: None,
) -> jax.Array:
    """Attention by cuDNN; in blocks within a window, since cuDNN has one-sided windows only."""
    states = (query_BTHK, key_BUHK, value_BUHK)
    if visibility.is_local(query_BTHK.shape[1]):
        from bert_jax.models import local_attention  # few encoders have windows

        return local_attention.attend_in_blocks(_cudnn_of_rows, *states, visibility)
    return _cudnn_of_rows(*states, visibility)


def _cudnn_of_rows(
    query_BTHK: jax.Array, key_BUHK: jax.Array, value_BUHK: jax.Array, visibility: Visibility
) -> jax.Array:
    """Attention of whole rows by cuDNN."""
    # Pass lengths instead of a bias where they suffice: gradients of a bias are expensive.
    options: dict[str, Any] = {}
    mask_BU, given = visibility.attention_mask_BU, visibility
    uses_lengths = visibility.segment_ids_BT is None and visibility.window is None
    if uses_lengths:
        assert mask_BU is not None
        lengths_B = jnp.sum(mask_BU > 0, axis=1, dtype=jnp.int32)
        options['key_value_seq_lengths'] = jnp.maximum(lengths_B, 1)
        options['is_causal'] = visibility.is_causal
        visibility = dataclasses.replace(visibility, attention_mask_BU=None, is_causal=False)
    if not uses_lengths or visibility.slopes_H is not None:
        shape = (query_BTHK.shape[1], key_BUHK.shape[1])
        bias_BHTU = visibility.bias(*shape).astype(query_BTHK.dtype)
        options['bias'] = jnp.broadcast_to(bias_BHTU, (*bias_BHTU.shape[:2], *shape))
    states = (query_BTHK, key_BUHK, value_BUHK)
    result_BTHK: jax.Array = jax.nn.dot_product_attention(*states, **options, implementation=CUDNN)
    if not uses_lengths or given.is_padding_checked:
        return result_BTHK
    # Lengths are wrong if padding is not last: return NaN instead of wrong numbers.
    return jnp.where(_is_padding_last(given)[:, None, None, None], result_BTHK, jnp.nan)


class Rotations(NamedTuple):
    """Cosine and sine of the angle of each position and pair of features.

    Attributes:
        cos_XTJ: fp32 [T, J], or [B, T, J] for rows with different positions.
        sin_XTJ: likewise.
    """

    cos_XTJ: jax.Array | np.ndarray
    sin_XTJ: jax.Array | np.ndarray


def rotate(x_BTHK: jax.Array, rotations: Rotations) -> jax.Array:
    """Rotate features k and k + K/2 of the heads of queries or keys, in fp32."""
    if platform() == PLATFORMS['flash'] and rotations.cos_XTJ.ndim == 2:
        from bert_jax.models import pallas_rotation

        if pallas_rotation.fits(*x_BTHK.shape[2:]):
            axes = (('batch', None, 'heads', None), (None, None), (None, None))
            return over_mesh(pallas_rotation.rotate, axes)(x_BTHK, *rotations)
    cos_XT1J, sin_XT1J = (table_XTJ[..., None, :] for table_XTJ in rotations)
    first_BTHJ, second_BTHJ = jnp.split(x_BTHK.astype(jnp.float32), 2, axis=-1)
    rotated = (
        first_BTHJ * cos_XT1J - second_BTHJ * sin_XT1J,
        second_BTHJ * cos_XT1J + first_BTHJ * sin_XT1J,
    )
    return jnp.concatenate(rotated, axis=-1).astype(x_BTHK.dtype)


def over_mesh(
    function: Callable[..., jax.Array], axes: tuple[object, ...]
) -> Callable[..., jax.Array]:
    """Run `function` on each device's part of the arrays: XLA cannot partition a kernel.

    The result is laid out like the first argument. `axes` holds the logical axes of each array, in
    a tree like the arguments.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if AxisType.Auto not in mesh.axis_types:  # no mesh, or already within shard_map
        return function

    def run(*arguments: Any) -> jax.Array:
        specs = jax.tree.map(_spec, arguments, axes)
        mapped = jax.shard_map(function, in_specs=specs, out_specs=specs[0], check_vma=False)
        return mapped(*arguments)

    return run


def _spec(array: jax.Array, axes: _Axes) -> PartitionSpec:
    """The sharding of an array by the current rules.

    A dimension that does not divide evenly is replicated, such as the single row with which
    parameters are initialized.
    """
    sizes = dict(jax.sharding.get_abstract_mesh().shape)
    parts: list[tuple[str, ...] | None] = []
    for size, mesh_axes in zip(array.shape, nn.logical_to_mesh_axes(axes) or (), strict=True):
        mesh_axes = (mesh_axes,) if isinstance(mesh_axes, str) else mesh_axes or ()
        is_even = size % math.prod(sizes[axis] for axis in mesh_axes) == 0
        parts.append(mesh_axes if is_even else None)
    return PartitionSpec(*parts)

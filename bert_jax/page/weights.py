"""Packs parameters into one block of bytes that assets/tensors.js reads."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from bert_jax.errors import UserError, unknown
from bert_jax.types import JsonRecord

DTYPES = ('float32', 'float16', 'int8')
_ALIGNMENT = 4  # bytes; typed arrays of JavaScript must start at a multiple of their element size


class Packed(NamedTuple):
    """Tensors in one block of bytes.

    Attributes:
        tensors: name → 'shape', 'dtype', 'offset' in bytes and, with int8, 'scales', the offset of
            a float32 scale for each row.
        data: the bytes of all tensors, little-endian.
    """

    tensors: dict[str, JsonRecord]
    data: bytes


def pack(arrays: Mapping[str, np.ndarray], dtype: str) -> Packed:
    """Pack float32 arrays; matrices in `dtype`, vectors (biases, norms) always in float32.

    int8 is symmetric with a scale for each row: value = scale · integer, |integer| ≤ 127.

    Raises:
        UserError: an unknown dtype, or a weight beyond the range of float16.
    """
    if dtype not in DTYPES:
        raise unknown('dtype', dtype, DTYPES)
    tensors: dict[str, JsonRecord] = {}
    blocks, end = [], 0
    for name, array in arrays.items():
        stored_dtype = dtype if array.ndim == 2 else 'float32'
        if stored_dtype == 'float16' and np.abs(array).max() > np.finfo(np.float16).max:
            raise UserError(f'a weight of {name} is too large for float16; set --dtype=float32')
        tensors[name] = {'shape': list(array.shape), 'dtype': stored_dtype}
        parts = [('offset', array, stored_dtype)]
        if stored_dtype == 'int8':
            scale_R = np.maximum(np.abs(array).max(axis=1), np.finfo(np.float32).tiny) / 127
            rounded = np.rint(array / scale_R[:, None])
            parts = [('offset', rounded, 'int8'), ('scales', scale_R, 'float32')]
        for key, values, part_dtype in parts:
            block = values.astype(np.dtype(part_dtype).newbyteorder('<')).tobytes()
            blocks.append(block + bytes(-len(block) % _ALIGNMENT))
            tensors[name][key] = end
            end += len(blocks[-1])
    return Packed(tensors, b''.join(blocks))

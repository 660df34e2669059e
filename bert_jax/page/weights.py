"""Parameters as one block of bytes that assets/tensors.js reads."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bert_jax.errors import UserError, unknown

DTYPES = ('float32', 'float16', 'int8')
_ALIGNMENT = 4  # bytes; typed arrays of JavaScript must start at a multiple of their element size


class Packed(NamedTuple):
    """Tensors side by side.

    Attributes:
        tensors: name → 'shape', 'dtype', 'offset' in bytes and, with int8, 'scales', the offset of
            a float32 scale for each row.
        data: their bytes, little-endian.
    """

    tensors: dict[str, dict[str, Any]]
    data: bytes


def pack(arrays: Mapping[str, np.ndarray], dtype: str) -> Packed:
    """Pack float32 arrays; matrices in `dtype`, vectors (biases, norms) always in float32.

    int8 is symmetric with a scale for each row: value = scale · integer, |integer| ≤ 127.

    Raises:
        UserError: an unknown dtype, or a weight beyond the range of float16.
    """
    if dtype not in DTYPES:
        raise unknown('dtype', dtype, DTYPES)
    tensors, blocks, end = {}, [], 0
    for name, array in arrays.items():
        own = dtype if array.ndim == 2 else 'float32'
        if own == 'float16' and np.abs(array).max() > np.finfo(np.float16).max:
            raise UserError(f'a weight of {name} is too large for float16; set --dtype=float32')
        tensors[name] = {'shape': list(array.shape), 'dtype': own, 'offset': end}
        parts = [('offset', array)]
        if own == 'int8':
            scale_R = np.maximum(np.abs(array).max(axis=1), np.finfo(np.float32).tiny) / 127
            parts = [('offset', np.rint(array / scale_R[:, None])), ('scales', scale_R)]
        for key, values in parts:
            kind = np.dtype('float32' if key == 'scales' else own).newbyteorder('<')
            block = values.astype(kind).tobytes()
            blocks.append(block + bytes(-len(block) % _ALIGNMENT))
            tensors[name][key] = end
            end += len(blocks[-1])
    return Packed(tensors, b''.join(blocks))

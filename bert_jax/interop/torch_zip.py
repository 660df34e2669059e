"""Weights from a PyTorch file (torch.save, zip format), without executing its pickle.

The archive contains a pickle that builds a dictionary of tensors, and the raw bytes of each
storage. The unpickler here knows only the few functions such a dictionary needs and rejects every
other function before calling it.
"""

import collections
import pathlib
import pickle
import zipfile
from collections.abc import Callable
from typing import IO, Any

import ml_dtypes
import numpy as np

from bert_jax.errors import UserError

_STORAGES = {
    'FloatStorage': np.dtype('<f4'),
    'DoubleStorage': np.dtype('<f8'),
    'HalfStorage': np.dtype('<f2'),
    'BFloat16Storage': np.dtype(ml_dtypes.bfloat16),
    'LongStorage': np.dtype('<i8'),
    'IntStorage': np.dtype('<i4'),
    'BoolStorage': np.dtype('?'),
}


def read(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Read all tensors of a file, by name.

    Raises:
        UserError: a damaged file, a format older than torch 1.6, a value that is not a tensor, or a
            pickle that calls any other function.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            (document,) = [name for name in archive.namelist() if name.endswith('/data.pkl')]
            folder = document.removesuffix('data.pkl')
            with archive.open(document) as file:
                weights = _Unpickler(file, archive, folder).load()
    except UserError as error:
        raise UserError(f'{path}: {error}') from None
    except Exception as error:  # a damaged pickle can raise any exception
        raise UserError(
            f'{path} is damaged, or older than torch 1.6: {" ".join(str(error).split())}'
        ) from error
    for name, value in weights.items():
        if not isinstance(value, np.ndarray):
            raise UserError(f'{path}: {name} is not a tensor')
    return dict(weights)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: IO[bytes], archive: zipfile.ZipFile, folder: str) -> None:
        super().__init__(file)
        self._archive, self._folder = archive, folder

    def find_class(self, module: str, name: str) -> Any:
        allowed: dict[tuple[str, str], Callable] = {
            ('collections', 'OrderedDict'): collections.OrderedDict,
            ('torch._utils', '_rebuild_tensor_v2'): _rebuild_tensor,
            ('torch._utils', '_rebuild_parameter'): lambda data, *_: data,
        }
        if module == 'torch' and name in _STORAGES:
            return _STORAGES[name]
        if (module, name) not in allowed:
            raise UserError(
                f'the file asks to run {module}.{name}, which is refused; save the weights as '
                'safetensors'
            )
        return allowed[module, name]

    def persistent_load(self, pid: Any) -> np.ndarray:
        kind, dtype, key, _device, size = pid
        if kind != 'storage' or not isinstance(dtype, np.dtype):
            raise pickle.UnpicklingError(f'unknown storage {kind!r}')
        data = self._archive.read(f'{self._folder}data/{key}')
        if len(data) != size * dtype.itemsize:
            raise ValueError(f'storage {key} has {len(data)} bytes, expected {size} elements')
        return np.frombuffer(data, dtype)


def _rebuild_tensor(
    storage: np.ndarray, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any
) -> np.ndarray:
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if min((offset, *shape, *strides)) < 0 or (0 not in shape and last >= len(storage)):
        raise ValueError('a tensor exceeds its storage')
    item = storage.dtype.itemsize
    steps = [stride * item for stride in strides]
    return np.lib.stride_tricks.as_strided(storage[offset:], shape, steps).copy()

"""Weights out of a PyTorch file (torch.save, zip format) without running the pickle in it.

The archive has a pickle, which builds a dictionary of tensors, and the raw bytes of each storage.
The pickle is read by an unpickler that knows the few functions such a dictionary needs; any other
one is refused before it is called.
"""

import collections
import pathlib
import pickle
import zipfile

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
    """Name → array. Raises UserError for a damaged file, the format before torch 1.6, anything in
    it that is not a tensor, and a pickle that would call something else."""
    try:
        with zipfile.ZipFile(path) as archive:
            (document,) = [name for name in archive.namelist() if name.endswith('/data.pkl')]
            folder = document.removesuffix('data.pkl')
            with archive.open(document) as file:
                weights = _Unpickler(file, archive, folder).load()
    except UserError as error:
        raise UserError(f'{path}: {error}') from None
    except Exception as error:  # a damaged pickle can raise anything
        raise UserError(
            f'{path} is damaged, or older than torch 1.6: {" ".join(str(error).split())}'
        ) from error
    for name, value in weights.items():
        if not isinstance(value, np.ndarray):
            raise UserError(f'{path}: {name} is no tensor')
    return dict(weights)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file, archive: zipfile.ZipFile, folder: str):
        super().__init__(file)
        self._archive, self._folder = archive, folder

    def find_class(self, module, name):
        allowed = {
            ('collections', 'OrderedDict'): collections.OrderedDict,
            ('torch._utils', '_rebuild_tensor_v2'): _rebuild_tensor,
            ('torch._utils', '_rebuild_parameter'): _rebuild_parameter,
        }
        if module == 'torch' and name in _STORAGES:
            return _STORAGES[name]
        if (module, name) not in allowed:
            raise UserError(f'asks to run {module}.{name}, which is not done; save as safetensors')
        return allowed[module, name]

    def persistent_load(self, pid):
        kind, dtype, key, _device, size = pid
        if kind != 'storage' or not isinstance(dtype, np.dtype):
            raise pickle.UnpicklingError(f'unknown storage {kind!r}')
        data = self._archive.read(f'{self._folder}data/{key}')
        if len(data) != size * dtype.itemsize:
            raise ValueError(f'storage {key} has {len(data)} bytes')
        return np.frombuffer(data, dtype)


def _rebuild_tensor(storage, offset, shape, strides, *_):
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if min((offset, *shape, *strides)) < 0 or (0 not in shape and last >= len(storage)):
        raise ValueError('a tensor reaches beyond its storage')
    item = storage.dtype.itemsize
    steps = [stride * item for stride in strides]
    return np.lib.stride_tricks.as_strided(storage[offset:], shape, steps).copy()


def _rebuild_parameter(data, *_):
    return data

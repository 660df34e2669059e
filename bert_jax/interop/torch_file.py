"""Weights from a PyTorch file (torch.save), without executing its pickle.

Since torch 1.6 the file is a zip archive: a pickle that builds a dictionary of tensors, and the raw
bytes of each storage. Older files are a sequence of pickles (magic number, protocol version,
machine information, dictionary, storage keys) followed by the storages, each preceded by its number
of elements (torch/serialization.py, _legacy_save). The unpickler allows only the few functions that
such a dictionary needs and rejects any other before calling it. A small file cannot take much
memory: no storage is compressed, no tensor repeats elements of its storage, and together the
tensors have at most `limits.SHARED_STORAGE` times the bytes of the
file.
"""

import collections
import functools
import math
import pathlib
import pickle
import struct
import zipfile
from collections.abc import Callable
from typing import IO, Any, ClassVar

import ml_dtypes
import numpy as np

from bert_jax import limits
from bert_jax.errors import UserError

_MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
_MAX_DIMENSIONS = 16
_STORAGES = {
    'FloatStorage': np.dtype('<f4'),
    'DoubleStorage': np.dtype('<f8'),
    'HalfStorage': np.dtype('<f2'),
    'BFloat16Storage': np.dtype(ml_dtypes.bfloat16),
    'LongStorage': np.dtype('<i8'),
    'IntStorage': np.dtype('<i4'),
    'ByteStorage': np.dtype('u1'),
    'BoolStorage': np.dtype('?'),
}


def read(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Read all tensors of a file, by name.

    Raises:
        UserError: a damaged file, a value that is not a tensor, or a pickle that calls any other
            function.
    """
    return _tensors(path, lambda: _read(path))


def read_fairseq(path: pathlib.Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read the options of the model and the tensors of a checkpoint of fairseq.

    The options are those of the command line, `args`, in early versions, and `cfg.model` later.

    Raises:
        UserError: as `read`, or the file is not a checkpoint of fairseq.
    """
    options: dict[str, Any] = {}

    def read_model() -> Any:
        checkpoint = _read(path)
        if not isinstance(checkpoint, dict) or 'model' not in checkpoint:
            raise UserError('it is not a checkpoint of fairseq, which has the key "model"')
        config = checkpoint.get('args') or (checkpoint.get('cfg') or {}).get('model')
        options.update(config if isinstance(config, dict) else vars(config or _Settings()))
        return checkpoint['model']

    weights = _tensors(path, read_model)
    return options, weights


def _tensors(path: pathlib.Path, read_dictionary: Callable[[], Any]) -> dict[str, np.ndarray]:
    """Check what was read from a file: a dictionary of tensors that fit into it."""
    try:
        items = list(read_dictionary().items())
    except UserError as error:
        raise UserError(f'{path}: {error}') from None
    except Exception as error:  # a damaged pickle can raise any exception
        raise UserError(f'{path} is damaged: {" ".join(str(error).split()):.200}') from error
    for name, value in items:
        if not isinstance(value, np.ndarray):
            raise UserError(f'{path}: {str(name):.80} is not a tensor')
    total, size = sum(array.nbytes for _, array in items), path.stat().st_size
    if total > limits.SHARED_STORAGE * size:
        raise UserError(
            f'{path} has {size:,} bytes, but its tensors have {total:,}, more than '
            f'{limits.SHARED_STORAGE} times as many'
        )
    return dict(items)


def _read(path: pathlib.Path) -> Any:
    return _read_zip(path) if zipfile.is_zipfile(path) else _read_legacy(path)


class _Settings:
    """An argparse.Namespace: values by name."""


def _read_zip(path: pathlib.Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        (pickle_name,) = [name for name in archive.namelist() if name.endswith('/data.pkl')]
        folder = pickle_name.removesuffix('data.pkl')
        if any(info.compress_type != zipfile.ZIP_STORED for info in archive.infolist()):
            raise ValueError('it has compressed entries, which torch.save does not write')
        if sum(info.file_size for info in archive.infolist()) > path.stat().st_size:
            raise ValueError('its entries overlap')

        @functools.cache
        def read_storage(key: str) -> bytes:
            return archive.read(f'{folder}data/{key}')

        def load(dtype: np.dtype, key: str, size: int) -> np.ndarray:
            data = read_storage(key)
            if len(data) != size * dtype.itemsize:
                raise ValueError(f'storage {key} has {len(data)} bytes, expected {size} elements')
            return np.frombuffer(data, dtype)

        with archive.open(pickle_name) as file:
            return _Unpickler(file, load).load()


def _read_legacy(path: pathlib.Path) -> Any:
    storages: dict[str, np.ndarray] = {}

    def allocate(dtype: np.dtype, key: str, size: int) -> np.ndarray:
        if key not in storages:
            total = size * dtype.itemsize + sum(storage.nbytes for storage in storages.values())
            if size < 0 or total > path.stat().st_size:
                raise ValueError(f'storage {key} has {size} elements, more than the file')
            storages[key] = np.empty(size, dtype)
        return storages[key]

    with open(path, 'rb') as file:
        if _Unpickler(file, allocate).load() != _MAGIC_NUMBER:
            raise ValueError('not a file of torch.save')
        _protocol, _machine, weights, keys = (_Unpickler(file, allocate).load() for _ in range(4))
        for key in keys:
            (size,) = struct.unpack('<q', file.read(8))
            storage = storages[key]
            data = file.read(storage.nbytes)
            if size != len(storage) or len(data) != storage.nbytes:
                raise ValueError(f'storage {key} is truncated')
            storage[:] = np.frombuffer(data, storage.dtype)
    return weights


_LOADERS: dict[int, Callable[[Any], None]] = dict(pickle._Unpickler.dispatch)


# A subclass of the Python implementation: the C one allocates gigabytes for a damaged memo index.
class _Unpickler(pickle._Unpickler):
    stack: list[Any]
    # Without sets and other keys than names, no value is hashed: hashing nested tuples can take
    # exponential time.
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        code: load
        for code, load in _LOADERS.items()
        if bytes([code]) not in (pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET, pickle.DICT)
    }

    def __init__(self, file: IO[bytes], load: Callable[[np.dtype, str, int], np.ndarray]) -> None:
        """Read a pickle from `file`; `load` returns the storage of a dtype, key and size."""
        super().__init__(file)
        self._load = load

    def find_class(self, module: str, name: str) -> Any:
        allowed: dict[tuple[str, str], Callable[..., object]] = {
            ('collections', 'OrderedDict'): lambda: collections.OrderedDict(),
            ('torch._utils', '_rebuild_tensor'): _rebuild_tensor,
            ('torch._utils', '_rebuild_tensor_v2'): _rebuild_tensor,
            ('torch._utils', '_rebuild_parameter'): lambda data, *_: data,
        }
        if module == 'torch' and name in _STORAGES:
            return _STORAGES[name]
        if (module, name) == ('argparse', 'Namespace'):
            return _Settings
        if (module, name) not in allowed:
            raise UserError(
                f'the file asks to run {f"{module}.{name}":.80}, which is refused; save the '
                'weights as safetensors'
            )
        return allowed[module, name]

    def _set_item(self) -> None:
        self._check_keys(self.stack[-2:-1])
        _LOADERS[pickle.SETITEM[0]](self)

    dispatch[pickle.SETITEM[0]] = _set_item

    def _set_items(self) -> None:
        self._check_keys(self.stack[::2])
        _LOADERS[pickle.SETITEMS[0]](self)

    dispatch[pickle.SETITEMS[0]] = _set_items

    def _check_keys(self, keys: list[Any]) -> None:
        if not all(isinstance(key, str | int) for key in keys):
            raise pickle.UnpicklingError('a key is not a name')

    def persistent_load(self, pid: Any) -> np.ndarray:
        tag, dtype, key, _device, size = pid[:5]
        if tag != 'storage' or not isinstance(dtype, np.dtype) or any(pid[5:]):
            raise pickle.UnpicklingError(f'unknown storage {tag!r}')
        return self._load(dtype, key, size)


def _rebuild_tensor(
    storage: np.ndarray, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any
) -> np.ndarray:
    """Return a view of a storage, whose elements may be filled in later."""
    if len(shape) > _MAX_DIMENSIONS:
        raise ValueError(f'a tensor has {len(shape)} dimensions')
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if min((offset, *shape, *strides)) < 0 or (0 not in shape and last >= len(storage)):
        raise ValueError('a tensor exceeds its storage')
    if math.prod(shape) > len(storage) - offset:
        raise ValueError('a tensor repeats elements of its storage')
    steps = [stride * storage.dtype.itemsize for stride in strides]
    return np.lib.stride_tricks.as_strided(storage[offset:], shape, steps)

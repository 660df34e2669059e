"""Weights from a PyTorch file (torch.save), without executing its pickle.

Since torch 1.6 the file is a zip archive: a pickle that builds a dictionary of tensors, and the raw
bytes of each storage. Older files are a sequence of pickles (magic number, protocol version,
machine information, dictionary, storage keys) followed by the storages, each preceded by its number
of elements (torch/serialization.py, _legacy_save).

The unpickler knows only the opcodes and the few names that such a file needs, and rejects any other
before it acts. Each opcode makes or changes values of this file alone, so that a file cannot change
the process that reads it:

- names stand for the records and functions below, never for objects that the process shares;
- the state of an object (BUILD) is set on `_Settings` only, and ignored for dictionaries, to which
  PyTorch attaches versions of modules; items are set in dictionaries, appended to lists;
- sizes are compared with the bytes that are left before memory is allocated, and numbers have at
  most `_NUMBER_BYTES` bytes;
- no error hashes or shows a value of the file, because nested tuples of two copies each take
  exponential time, except for strings and numbers.

A small file cannot take much memory: no storage is compressed, no tensor repeats elements of its
storage, and together the tensors have at most `limits.SHARED_STORAGE` times the bytes of the file.
"""

import io
import math
import os
import pathlib
import pickle
import struct
import types
import zipfile
from collections.abc import Callable
from typing import IO, Any, ClassVar, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np

from bert_jax import limits
from bert_jax.errors import UserError

_MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
_NUMBER_BYTES = 16  # the magic number has 10, sizes at most 8
_NAME_CHARACTERS = 200  # of a module or a function
_MAX_DIMENSIONS = 16
_OPTION = str | int | float | None
_DTYPES = {
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
        options.update(_options(checkpoint.get('args') or checkpoint.get('cfg')))
        return checkpoint['model']

    weights = _tensors(path, read_model)
    return options, weights


def _options(config: object) -> dict[str, Any]:
    """Return the strings, numbers and flags among the options of a model."""
    if isinstance(config, dict):
        config = config.get('model')
    values = vars(config) if isinstance(config, _Settings) else config
    if not isinstance(values, dict):
        return {}
    return {name: value for name, value in values.items() if isinstance(value, _OPTION)}


def _tensors(path: pathlib.Path, read_dictionary: Callable[[], Any]) -> dict[str, np.ndarray]:
    """Check what was read from a file: a dictionary of tensors that fit into it."""
    try:
        found = read_dictionary()
    except UserError as error:
        raise UserError(f'{path}: {error}') from None
    except _DamagedError as error:
        raise UserError(f'{path} is damaged: {error}') from None
    except Exception as error:  # a damaged pickle can raise any exception
        raise UserError(f'{path} is damaged ({type(error).__name__})') from None
    if not isinstance(found, dict):
        raise UserError(f'{path} does not hold a dictionary of tensors')
    for name, value in found.items():
        if not isinstance(name, str) or not isinstance(value, np.ndarray):
            raise UserError(f'{path}: {str(name):.80} is not a tensor')
    total, size = sum(array.nbytes for array in found.values()), path.stat().st_size
    if total > limits.SHARED_STORAGE * size:
        raise UserError(
            f'{path} has {size:,} bytes, but its tensors have {total:,}, more than '
            f'{limits.SHARED_STORAGE} times as many'
        )
    return found


def _read(path: pathlib.Path) -> Any:
    return _read_zip(path) if zipfile.is_zipfile(path) else _read_legacy(path)


class _DamagedError(Exception):
    """The file is not as torch.save writes it; the text says where, and is safe to show."""


class _Settings:
    """An argparse.Namespace: values by name."""


class _Storage(NamedTuple):
    """A class of storages, such as torch.FloatStorage, by its name in `_DTYPES`."""

    name: str


Load: TypeAlias = Callable[[np.dtype, str, int], np.ndarray]  # of a dtype, key and size


def _read_zip(path: pathlib.Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith('/data.pkl')]
        if len(names) != 1:
            raise _DamagedError(f'it has {len(names)} entries data.pkl, expected 1')
        folder = names[0].removesuffix('data.pkl')
        if any(info.compress_type != zipfile.ZIP_STORED for info in archive.infolist()):
            raise _DamagedError('it has compressed entries, which torch.save does not write')
        if sum(info.file_size for info in archive.infolist()) > path.stat().st_size:
            raise _DamagedError('its entries overlap')
        storages: dict[str, bytes] = {}

        def load(dtype: np.dtype, key: str, size: int) -> np.ndarray:
            if key not in storages:
                storages[key] = archive.read(f'{folder}data/{key}')
            data = storages[key]
            if len(data) != size * dtype.itemsize:
                raise _DamagedError(
                    f'storage {key:.80} has {len(data)} bytes, expected {size} elements'
                )
            return np.frombuffer(data, dtype)

        return _unpickle(io.BytesIO(archive.read(names[0])), load)


def _read_legacy(path: pathlib.Path) -> Any:
    storages: dict[str, np.ndarray] = {}
    free = path.stat().st_size  # bytes of the file that no storage has claimed

    def allocate(dtype: np.dtype, key: str, size: int) -> np.ndarray:
        nonlocal free
        if key not in storages:
            free -= size * dtype.itemsize
            if free < 0:
                raise _DamagedError(f'storage {key:.80} has {size} elements, more than the file')
            storages[key] = np.empty(size, dtype)
        return storages[key]

    with open(path, 'rb') as file:
        if _unpickle(file, allocate) != _MAGIC_NUMBER:
            raise _DamagedError('it is not a file of torch.save')
        _protocol, _machine, weights, keys = (_unpickle(file, allocate) for _ in range(4))
        for key in keys:
            if not isinstance(key, str) or key not in storages:
                raise _DamagedError('it lists a storage that no tensor has')
            (size,) = struct.unpack('<q', file.read(8))
            storage = storages[key]
            data = file.read(storage.nbytes)
            if size != len(storage) or len(data) != storage.nbytes:
                raise _DamagedError(f'storage {key:.80} is truncated')
            storage[:] = np.frombuffer(data, storage.dtype)
    return weights


def _unpickle(file: IO[bytes], load: Load) -> Any:
    """Read one pickle; the next byte of the file is then the first after it."""
    return _Unpickler(_Bytes(file), load).load()


class _Bytes:
    """Reads a file without allocating more than it has."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, start = file, file.tell()
        self._left = file.seek(0, os.SEEK_END) - start
        file.seek(start)

    def read(self, number: int) -> bytes:
        if not 0 <= number <= self._left:
            raise _DamagedError(f'a value has {number:,} bytes, but {self._left:,} are left')
        self._left -= number
        return self._file.read(number)

    def readline(self) -> bytes:
        line = self._file.readline(_NAME_CHARACTERS)
        self._left -= len(line)
        return line


# A subclass of the Python implementation: the C one allocates gigabytes for a damaged memo index.
_PYTHON: dict[int, Callable[[Any], None]] = pickle._Unpickler.dispatch
_UNCHANGED = (
    (pickle.PROTO, pickle.FRAME, pickle.MARK, pickle.STOP)
    + (pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE)
    + (pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1, pickle.BINFLOAT)
    + (pickle.BINSTRING, pickle.SHORT_BINSTRING, pickle.BINUNICODE, pickle.SHORT_BINUNICODE)
    + (pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3)
    + (pickle.EMPTY_LIST, pickle.EMPTY_DICT, pickle.BINPERSID, pickle.GLOBAL, pickle.STACK_GLOBAL)
    + (pickle.BINPUT, pickle.LONG_BINPUT, pickle.MEMOIZE, pickle.BINGET, pickle.LONG_BINGET)
)


class _Opcodes(dict[int, Callable[[Any], None]]):
    """Opcode → method that carries it out."""

    def __missing__(self, code: int) -> Callable[[Any], None]:
        raise _DamagedError(f'it has the opcode {code:#04x}, which torch.save does not write')


class _Unpickler(pickle._Unpickler):
    """Makes dictionaries, lists, tuples, strings, numbers, tensors and `_Settings`."""

    stack: list[Any]
    metastack: list[list[Any]]
    append: Callable[[Any], None]
    read: Callable[[int], bytes]
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = _Opcodes(
        (code, load) for code, load in _PYTHON.items() if bytes([code]) in _UNCHANGED
    )

    def __init__(self, file: _Bytes, load: Load) -> None:
        super().__init__(file)
        self._load = load

    def find_class(self, module: str, name: str) -> object:
        if module == 'torch' and name in _DTYPES:
            return _Storage(name)
        if (module, name) not in _FUNCTIONS:
            raise UserError(
                f'the file asks to run {f"{module}.{name}":.80}, which is refused; save the '
                'weights as safetensors'
            )
        return _FUNCTIONS[module, name]

    def persistent_load(self, pid: object) -> np.ndarray:
        if (
            not isinstance(pid, tuple)
            or len(pid) < 5
            or any(entry is not None for entry in pid[5:])
        ):
            raise _DamagedError('a storage is not described as torch.save does')
        tag, storage, key, _device, size = pid[:5]
        is_storage = isinstance(tag, str) and tag == 'storage' and isinstance(storage, _Storage)
        if not is_storage or not isinstance(key, str) or not _is_size(size):
            raise _DamagedError('a storage is not described as torch.save does')
        return self._load(_DTYPES[storage.name], key, size)

    def _long1(self) -> None:
        (number,) = self.read(1)
        if number > _NUMBER_BYTES:
            raise _DamagedError(f'a number has {number} bytes')
        self.append(pickle.decode_long(self.read(number)))

    dispatch[pickle.LONG1[0]] = _long1

    def _append(self) -> None:
        self._require(list, self.stack[-2:-1])
        _PYTHON[pickle.APPEND[0]](self)

    dispatch[pickle.APPEND[0]] = _append

    def _appends(self) -> None:
        self._require(list, self.metastack[-1][-1:])
        _PYTHON[pickle.APPENDS[0]](self)

    dispatch[pickle.APPENDS[0]] = _appends

    def _set_item(self) -> None:
        self._require(dict, self.stack[-3:-2])
        self._require(str | int, self.stack[-2:-1])
        _PYTHON[pickle.SETITEM[0]](self)

    dispatch[pickle.SETITEM[0]] = _set_item

    def _set_items(self) -> None:
        self._require(dict, self.metastack[-1][-1:])
        self._require(str | int, self.stack[::2])
        _PYTHON[pickle.SETITEMS[0]](self)

    dispatch[pickle.SETITEMS[0]] = _set_items

    def _call(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        self._require(tuple, [arguments])
        if not any(function is known for known in _FUNCTIONS.values()):
            raise _DamagedError('it calls a value that is not a function')
        self.append(function(*arguments))

    dispatch[pickle.REDUCE[0]] = dispatch[pickle.NEWOBJ[0]] = _call

    def _build(self) -> None:
        state, made = self.stack.pop(), self.stack[-1]
        if isinstance(made, _Settings):
            self._require(dict, [state])
            self._require(str, list(state))
            vars(made).update(state)
        elif not isinstance(made, dict):
            raise _DamagedError('it sets the state of a value that has none')

    dispatch[pickle.BUILD[0]] = _build

    def _require(self, kind: type | types.UnionType, values: list[Any]) -> None:
        if not all(isinstance(value, kind) for value in values):
            raise _DamagedError(f'a value is not of the type {kind}')


def _rebuild_tensor(*arguments: Any) -> np.ndarray:
    """Return a view of a storage, whose elements may be filled in later.

    Args:
        arguments: storage, offset, shape, strides, and what only training needs.
    """
    storage, offset, shape, strides = arguments[:4]
    is_known = isinstance(storage, np.ndarray) and storage.ndim == 1
    is_known = is_known and isinstance(shape, tuple) and isinstance(strides, tuple)
    if not is_known or not all(map(_is_size, (offset, *shape, *strides))):
        raise _DamagedError('a tensor is not described as torch.save does')
    if len(shape) > _MAX_DIMENSIONS:
        raise _DamagedError(f'a tensor has {len(shape)} dimensions')
    if 0 in shape:
        empty: np.ndarray = np.zeros(shape, storage.dtype)
        return empty
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if last >= len(storage):
        raise _DamagedError('a tensor exceeds its storage')
    if math.prod(shape) > len(storage) - offset:
        raise _DamagedError('a tensor repeats elements of its storage')
    steps = [stride * storage.dtype.itemsize for stride in strides]
    view: np.ndarray = np.lib.stride_tricks.as_strided(storage[offset:], shape, steps)
    return view


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _first(*arguments: object) -> object:
    return arguments[0]


_FUNCTIONS: dict[tuple[str, str], Callable[..., object]] = {
    ('collections', 'OrderedDict'): lambda: {},
    ('argparse', 'Namespace'): lambda: _Settings(),
    ('torch._utils', '_rebuild_tensor'): _rebuild_tensor,
    ('torch._utils', '_rebuild_tensor_v2'): _rebuild_tensor,
    ('torch._utils', '_rebuild_parameter'): _first,
}

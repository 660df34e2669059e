"""Files of named arrays: safetensors and PyTorch."""

import pathlib
from collections.abc import Callable

import ml_dtypes  # noqa: F401  (registers bfloat16 with NumPy, which safetensors needs)
import numpy as np
import safetensors
import safetensors.numpy

from bert_jax.errors import UserError
from bert_jax.files import parse_json, read_text
from bert_jax.interop import torch_file
from bert_jax.storage import names

SAFETENSORS, TORCH = 'model.safetensors', 'pytorch_model.bin'
_OTHER_FORMATS = ('tf_model.h5', 'flax_model.msgpack', 'model.onnx', 'rust_model.ot')
FILES = (SAFETENSORS, TORCH, *_OTHER_FORMATS)
_FLOATS = ('float16', 'float32', 'float64', 'bfloat16')

Weights = dict[str, np.ndarray]


def read(folder: pathlib.Path) -> Weights:
    """Read every weight of a folder, from one file or from the shards that an index lists.

    Raises:
        UserError: no weights, a missing or damaged shard, or an index that differs from its shards.
    """
    for name, read_file in ((SAFETENSORS, read_safetensors), (TORCH, torch_file.read)):
        if (folder / name).is_file():
            return read_file(folder / name)
        if (folder / f'{name}.index.json').is_file():
            return _read_shards(folder / f'{name}.index.json', read_file)
    others = [name for name in _OTHER_FORMATS if (folder / name).is_file()]
    hint = f'; {", ".join(others)} must be converted first' if others else ''
    raise UserError(
        f'{folder} has no weights: expected {SAFETENSORS}, {TORCH}, or shards of either with an '
        f'.index.json{hint}'
    )


def write(path: pathlib.Path, weights: Weights) -> None:
    """Write a safetensors file with the metadata that transformers expects."""
    path.touch()
    mode = path.stat().st_mode
    safetensors.numpy.save_file(weights, path, metadata={'format': 'pt'})
    path.chmod(mode)  # the library makes a new file that only its owner can read


def check_values(weights: Weights, source: str | pathlib.Path) -> None:
    """Raise UserError if a weight is not floating-point, or has NaN or infinite values."""
    for name, array in weights.items():
        if array.dtype.name not in _FLOATS:
            raise UserError(f'{source}: {name} is {array.dtype.name}, not a floating-point weight')
        if not np.isfinite(array.astype(np.float32, copy=False)).all():
            raise UserError(f'{source}: {name} contains NaN or infinite values')


def read_safetensors(path: pathlib.Path) -> Weights:
    """Read all arrays of a safetensors file. Raises UserError if it is damaged."""
    try:
        with safetensors.safe_open(path, framework='numpy') as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, OSError) as error:
        raise UserError(f'{path} is damaged: {error}') from error
    except (AttributeError, KeyError, TypeError) as error:  # such as float8
        raise UserError(f'{path} has a dtype that is not supported: {error}') from error


def _read_shards(index: pathlib.Path, read_file: Callable[[pathlib.Path], Weights]) -> Weights:
    try:
        shards = dict(parse_json(read_text(index))['weight_map'])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f'{index} is not a valid index of weights: {error}') from error
    weights: Weights = {}
    present = {path.name for path in index.parent.iterdir()}
    for name in sorted({names.check(name, index) for name in shards.values()}):
        if name not in present:
            raise UserError(f'{index} names the shard {name[:80]}, which does not exist')
        weights |= read_file(index.parent / name)
    for name in sorted(weights.keys() ^ shards.keys()):
        where = 'the index but not in its shard' if name in shards else 'a shard but not the index'
        raise UserError(f'{index}: {name} is in {where}')
    return weights

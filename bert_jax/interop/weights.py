"""Reading and writing files of named arrays, with one clear line for a damaged one."""

import json
import pathlib

import ml_dtypes  # noqa: F401  (gives NumPy the bfloat16 that safetensors asks for)
import numpy as np
import safetensors
import safetensors.numpy

from bert_jax.errors import UserError
from bert_jax.interop import torch_zip

SAFETENSORS, TORCH = 'model.safetensors', 'pytorch_model.bin'
_FLOATS = ('float16', 'float32', 'float64', 'bfloat16')


def read(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Every weight of a folder: one file or the shards its index names.

    Raises UserError if there is none, a shard is missing or damaged, or index and shards differ.
    """
    for name, read_file in ((SAFETENSORS, _read_safetensors), (TORCH, torch_zip.read)):
        if (folder / name).is_file():
            return read_file(folder / name)
        if (folder / f'{name}.index.json').is_file():
            return _read_shards(folder / f'{name}.index.json', read_file)
    raise UserError(
        f'{folder} has no weights: neither {SAFETENSORS} nor {TORCH} nor an index of it'
    )


def write(path: pathlib.Path, weights: dict[str, np.ndarray]):
    """A safetensors file as transformers writes it."""
    safetensors.numpy.save_file(weights, path, metadata={'format': 'pt'})


def check_values(weights: dict[str, np.ndarray], where: pathlib.Path):
    """Raises UserError for a weight that is no floating-point number, or NaN, or infinite."""
    for name, array in weights.items():
        if array.dtype.name not in _FLOATS:
            raise UserError(f'{where}: {name} is {array.dtype.name}, not a floating-point weight')
        if not np.isfinite(array.astype(np.float32, copy=False)).all():
            raise UserError(f'{where}: {name} holds NaN or infinite values')


def _read_safetensors(path: pathlib.Path) -> dict[str, np.ndarray]:
    try:
        with safetensors.safe_open(path, framework='numpy') as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, OSError) as error:
        raise UserError(f'{path} is damaged: {error}') from error


def _read_shards(index: pathlib.Path, read_file) -> dict[str, np.ndarray]:
    try:
        shards = json.loads(index.read_text(encoding='utf-8'))['weight_map']
    except (ValueError, KeyError) as error:
        raise UserError(f'{index} is no index of weights: {error}') from error
    weights = {}
    for name in sorted(set(shards.values())):
        path = index.parent / pathlib.PurePath(name).name
        if not path.is_file():
            raise UserError(f'{index} names {name}, which is not there')
        weights |= read_file(path)
    for name in sorted(weights.keys() ^ shards.keys()):
        place = 'the index but not in its shard' if name in shards else 'a shard but not the index'
        raise UserError(f'{index}: {name} is in {place}')
    return weights

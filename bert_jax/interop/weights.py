"""Files of named arrays: safetensors, PyTorch and TensorFlow 1 checkpoints."""

import json
import pathlib
import re
from collections.abc import Callable

import ml_dtypes  # noqa: F401  (registers bfloat16 with NumPy, which safetensors needs)
import numpy as np
import safetensors
import safetensors.numpy

from bert_jax.data import tensorflow_import
from bert_jax.errors import UserError
from bert_jax.interop import torch_file

SAFETENSORS, TORCH = 'model.safetensors', 'pytorch_model.bin'
_OTHER_FORMATS = ('tf_model.h5', 'flax_model.msgpack', 'model.onnx', 'rust_model.ot')
_FLOATS = ('float16', 'float32', 'float64', 'bfloat16')
_TF1_TRAINING_STATE = re.compile(r'global_step|.*/(adam|lamb)_[mv]')
_TF1_LEAVES = dict(gamma='weight', beta='bias', output_bias='bias', output_weights='weight')

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
    safetensors.numpy.save_file(weights, path, metadata={'format': 'pt'})


def check_values(weights: Weights, source: str | pathlib.Path) -> None:
    """Raise UserError if a weight is not floating-point, or has NaN or infinite values."""
    for name, array in weights.items():
        if array.dtype.name not in _FLOATS:
            raise UserError(f'{source}: {name} is {array.dtype.name}, not a floating-point weight')
        if not np.isfinite(array.astype(np.float32, copy=False)).all():
            raise UserError(f'{source}: {name} contains NaN or infinite values')


def read_tf1(path: pathlib.Path) -> Weights:
    """Read a checkpoint of google-research/bert, with names and layouts of PyTorch.

    Optimizer moments and the step counter are skipped.
    """
    tensorflow = tensorflow_import.tensorflow()
    try:
        reader = tensorflow.train.load_checkpoint(str(path))
        return dict(
            _translate_tf1(name, reader.get_tensor(name))
            for name in reader.get_variable_to_shape_map()
            if not _TF1_TRAINING_STATE.fullmatch(name)
        )
    except (tensorflow.errors.OpError, ValueError) as error:
        raise UserError(f'{path} cannot be read: {" ".join(str(error).split())}') from error


def _translate_tf1(name: str, array: np.ndarray) -> tuple[str, np.ndarray]:
    *modules, leaf = re.sub(r'layer_(\d+)', r'layer/\1', name).split('/')
    if leaf == 'kernel':
        return '.'.join((*modules, 'weight')), array.T
    if leaf.endswith('_embeddings'):
        modules, leaf = [*modules, leaf], 'weight'
    return '.'.join((*modules, _TF1_LEAVES.get(leaf, leaf))), array


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
        shards = json.loads(index.read_text(encoding='utf-8'))['weight_map']
    except (ValueError, KeyError) as error:
        raise UserError(f'{index} is not a valid index of weights: {error}') from error
    weights: Weights = {}
    for name in sorted(set(shards.values())):
        path = index.parent / pathlib.PurePath(name).name
        if not path.is_file():
            raise UserError(f'{index} names the shard {name}, which does not exist')
        weights |= read_file(path)
    for name in sorted(weights.keys() ^ shards.keys()):
        where = 'the index but not in its shard' if name in shards else 'a shard but not the index'
        raise UserError(f'{index}: {name} is in {where}')
    return weights

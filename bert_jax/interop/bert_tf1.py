"""Checkpoints of google-research/bert: bert_config.json, bert_model.ckpt.*, vocab.txt."""

import json
import pathlib
import re
from collections.abc import Iterable

import numpy as np

from bert_jax.data import tensorflow_import
from bert_jax.errors import UserError
from bert_jax.interop import families, huggingface, tokenizer_files
from bert_jax.interop.pretrained import Pretrained

CONFIG, CHECKPOINT = 'bert_config.json', 'bert_model.ckpt'
_NOT_WEIGHTS = re.compile(r'global_step|.*/(adam|lamb)_[mv]')


def load(
    folder: pathlib.Path, heads: Iterable[str] = (), allow_missing: Iterable[str] = ()
) -> Pretrained:
    """As `huggingface.load`. Optimizer moments are left out.

    'gelu' is read as the exact one, as Hugging Face runs these weights.
    """
    family = families.by_model_type('bert')
    try:
        config = json.loads((folder / CONFIG).read_text(encoding='utf-8'))
        architecture = family.read_config(config)
    except (ValueError, UserError) as error:
        raise UserError(f'{folder / CONFIG}: {error}') from None
    tokenizer = tokenizer_files.load(folder, architecture)
    params, fresh = huggingface.from_weights(
        family, architecture, _read(folder / CHECKPOINT), folder, heads, allow_missing
    )
    return Pretrained('bert', architecture, params, tokenizer, fresh=fresh)


def _read(path: pathlib.Path) -> dict[str, np.ndarray]:
    """The weights by their name in PyTorch, and in its layout."""
    tensorflow = tensorflow_import.tensorflow()
    try:
        reader = tensorflow.train.load_checkpoint(str(path))
        names = [n for n in reader.get_variable_to_shape_map() if not _NOT_WEIGHTS.fullmatch(n)]
        return dict(_translate(name, reader.get_tensor(name)) for name in names)
    except (tensorflow.errors.OpError, ValueError) as error:
        raise UserError(f'{path} cannot be read: {" ".join(str(error).split())}') from error


def _translate(name: str, array: np.ndarray) -> tuple[str, np.ndarray]:
    *modules, leaf = re.sub(r'layer_(\d+)', r'layer/\1', name).split('/')
    if leaf == 'kernel':
        return '.'.join((*modules, 'weight')), array.T
    leaves = {'gamma': 'weight', 'beta': 'bias', 'output_bias': 'bias', 'output_weights': 'weight'}
    if leaf.endswith('_embeddings'):
        modules, leaf = (*modules, leaf), 'weight'
    return '.'.join((*modules, leaves.get(leaf, leaf))), array

"""Folders of google-research/bert: config, vocabulary and a TensorFlow 1 checkpoint."""

import collections
import glob
import math
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax import files, tensorflow_import
from bert_jax.errors import UserError, report, warn
from bert_jax.interop import conversion, families, huggingface
from bert_jax.interop.weights import Weights
from bert_jax.loaded.loaded_model import LoadedModel

CONFIG = 'bert_config.json'
_INDEX = '.index'  # suffix of the file that lists the variables of a checkpoint
_LEAVES = dict(gamma='weight', beta='bias', output_bias='bias', output_weights='weight')
# Modules of the heads that run_classifier.py and run_squad.py add → their names in PyTorch.
_HEADS = {(): 'classifier', ('cls', 'squad'): 'qa_outputs'}


def load(
    folder: pathlib.Path,
    heads: Iterable[str],
    allow_missing: Iterable[str],
    checkpoint: str | None = None,
) -> LoadedModel:
    """Load a folder.

    'gelu' means the exact GELU, as in transformers, not the tanh approximation.

    Args:
        heads, allow_missing: see `huggingface.load`.
        checkpoint: name of the checkpoint; None: the only one, or the newest that the file
            `checkpoint` of TensorFlow names.

    Raises:
        UserError: no checkpoint, several to choose from, or a model that is damaged or not
            supported.
    """
    family = families.by_model_type('bert')
    config = files.read_json(folder / CONFIG)
    try:
        architecture = family.read_config(config)
    except UserError as error:
        raise UserError(f'{folder / CONFIG}: {error}') from None
    tokenizer = huggingface.load_tokenizer(folder, architecture)
    path = folder / (checkpoint or _find_checkpoint(folder))
    state = _read(path)
    declared: tuple[str, ...] = ()
    if 'classifier.weight' in state and 'token_classification' not in heads:
        declared = ('sequence_classification',)
        warn(
            f'{path}: output_weights is read as the head of a sequence classifier, as '
            'run_classifier.py writes it; taggers derived from that code have the same variables'
        )
    num_labels = len(state.get('classifier.weight', range(2)))
    params, new = conversion.from_state_dict(
        family, architecture, state, path, heads, allow_missing, num_labels, declared
    )
    labels = tuple(f'LABEL_{index}' for index in range(num_labels)) if declared else ()
    return LoadedModel(
        'bert',
        architecture,
        params,
        tokenizer,
        labels,
        new,
        problem_type='regression' if num_labels == 1 else None,
    )


def _find_checkpoint(folder: pathlib.Path) -> str:
    """Name of the checkpoint to read, without its suffixes."""
    names = sorted(path.name.removesuffix(_INDEX) for path in folder.glob(f'*{_INDEX}'))
    if len(names) == 1:
        return names[0]
    if not names:
        raise UserError(
            f'{folder} has {CONFIG}, but no checkpoint: expected bert_model.ckpt{_INDEX} or '
            f'another NAME{_INDEX}, and the data files beside it'
        )
    pointer = folder / 'checkpoint'
    if pointer.is_file():
        text = files.read_text(pointer, errors='replace')
        found = re.search(r'^model_checkpoint_path: "([^"]*)"', text, re.MULTILINE)
        newest = pathlib.PurePosixPath(found[1]).name if found else ''
        if newest in names:
            report(f'{folder}: reading {newest}, which the file `checkpoint` names')
            return newest
    raise UserError(
        f'{folder} has the checkpoints {", ".join(names)}; choose one by its path, such as '
        f'{folder / names[-1]}'
    )


def _read(path: pathlib.Path) -> Weights:
    """Read the weights of a checkpoint, with names and layouts of PyTorch.

    Variables of the optimizer and counters are skipped, and their number is logged: variables below
    the name of another variable, such as bert/pooler/dense/kernel/adam_m, and scalars.
    """
    if path.is_dir():  # TensorFlow would read the file `checkpoint` in it, which names any path
        raise UserError(f'{path} is a folder; expected files whose names start with {path.name}')
    tensorflow_import.require(f'{path}, a checkpoint of TensorFlow,')
    tensorflow = tensorflow_import.tensorflow()
    try:
        reader = tensorflow.train.load_checkpoint(str(path))
        shapes = reader.get_variable_to_shape_map()
        names = [name for name in shapes if shapes[name] and not _slot(name, shapes)]
        _check_sizes(path, {name: shapes[name] for name in names}, reader)
        state = dict(_translate(name, reader.get_tensor(name)) for name in names)
    except UserError:
        raise
    except Exception as error:  # TensorFlow's readers raise many kinds
        raise UserError(f'{path} cannot be read: {" ".join(str(error).split())}') from error
    skipped = collections.Counter(
        _slot(name, shapes) or name for name in sorted(shapes.keys() - {*names})
    )
    if skipped:
        kinds = ', '.join(f'{number} {kind}' for kind, number in skipped.items())
        report(f'{path}: skipped the state of the optimizer: {kinds}')
    return state


def _check_sizes(path: pathlib.Path, shapes: Mapping[str, Sequence[int]], reader: Any) -> None:
    """Raise UserError if variables take more bytes than the files have, which is not compressed."""
    dtypes = reader.get_variable_to_dtype_map()
    claimed = sum(math.prod(shapes[name]) * dtypes[name].size for name in shapes)
    size = sum(file.stat().st_size for file in path.parent.glob(f'{glob.escape(path.name)}.data-*'))
    if claimed > size:
        raise UserError(
            f'{path} is damaged: its variables have {claimed:,} bytes, but its files {size:,}'
        )


def _slot(name: str, shapes: Mapping[str, object]) -> str:
    """What follows the name of another variable in a variable's name; '' without one."""
    parts = name.split('/')
    for number in range(1, len(parts)):
        if '/'.join(parts[:number]) in shapes:
            return '/'.join(parts[number:])
    return ''


def _translate(name: str, array: np.ndarray) -> tuple[str, np.ndarray]:
    *modules, leaf = re.sub(r'layer_(\d+)', r'layer/\1', name).split('/')
    if leaf == 'kernel':
        return '.'.join((*modules, 'weight')), array.T
    if leaf in ('output_weights', 'output_bias'):
        modules = [_HEADS[key]] if (key := tuple(modules)) in _HEADS else modules
    if leaf.endswith('_embeddings'):
        modules, leaf = [*modules, leaf], 'weight'
    return '.'.join((*modules, _LEAVES.get(leaf, leaf))), array

"""Folders of peft: adapter_config.json and adapter_model.safetensors, for LoRA and IA3.

Prefix and prompt tuning of peft are not supported: peft shifts the positions of the text, and the
pooler reads a prompt vector.
"""

import dataclasses
import json
import math
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from flax import traverse_util

from bert_jax import files, tree_paths
from bert_jax.errors import UserError
from bert_jax.interop import families, huggingface, pretrained, state_dict_map, usage, weights
from bert_jax.interop.families.family import Family
from bert_jax.interop.pretrained import Pretrained
from bert_jax.interop.state_dict_map import Place
from bert_jax.models import tuning
from bert_jax.models.tuning.lora import TARGETS, Lora
from bert_jax.models.tuning_method import ADDED, Arrays, Tuning
from bert_jax.storage import paths, trust

CONFIG, WEIGHTS = 'adapter_config.json', 'adapter_model.safetensors'
_PREFIX = 'base_model.model.'
# Keys of adapter_config.json that must have these values, or be absent.
_FIXED: dict[str, object] = {
    'alpha_pattern': {},
    'bias': 'none',
    'layer_replication': None,
    'rank_pattern': {},
    'use_dora': False,
}
_POOLER = 'encoder/pooler'
_SCALED_INPUT = 'feedforward/output'  # IA3 scales the input of this projection
_TASK_TYPES = {
    'sequence_classification': 'SEQ_CLS',
    'token_classification': 'TOKEN_CLS',
    'question_answering': 'QUESTION_ANS',
}


def is_folder(folder: pathlib.Path) -> bool:
    """Whether a folder was written by peft: it has adapter_config.json."""
    return (folder / CONFIG).is_file()


def base_path(folder: pathlib.Path) -> str:
    """Path of the base model that was tuned, from the folder's config.

    Raises:
        UserError: the config has no path, or the path is not a folder, or is in a bucket that the
            user did not name.
    """
    key, config = 'base_model_name_or_path', folder / CONFIG
    name = files.read_json(config).get(key)
    origin = paths.path(paths.name_of(folder))  # in a bucket, `folder` is a copy
    if name and isinstance(name, str):
        candidates = [name] if '://' in name else [name, str((origin / name).resolve())]
        for candidate in candidates:
            path = trust.path_in(config, key, candidate)
            if path.is_dir():
                return str(path)
    raise UserError(
        f'{folder / CONFIG}: base_model_name_or_path is {name!r}, which is not a folder; '
        'download that model and enter its path'
    )


def read(folder: pathlib.Path, base: Pretrained) -> Pretrained:
    """Read a folder of peft.

    Args:
        folder: folder with adapter_config.json.
        base: the model that was tuned.

    Raises:
        UserError: a method or setting that is not supported, or weights without a place.
    """
    config = files.read_json(folder / CONFIG)
    state = {
        name.removeprefix(_PREFIX): array
        for name, array in weights.read_safetensors(folder / WEIGHTS).items()
    }
    peft_type = config.get('peft_type')
    if peft_type not in ('LORA', 'IA3'):
        raise UserError(f'{folder / CONFIG}: peft_type is {peft_type!r}; supported: LORA, IA3')
    for key, value in _FIXED.items():
        if config.get(key, value) not in (value, None):
            raise UserError(f'{folder / CONFIG}: {key} is {config[key]!r}, which is not supported')
    family = families.by_model_type(base.family)
    metadata = usage.read(folder)
    head_state = {name: array for name, array in state.items() if not _is_added(name)}
    heads, num_labels = _find_heads(family, config, metadata, head_state, base)
    places = state_dict_map.places(family.table, base.architecture, heads, num_labels)
    projections = _projections(places, family.prefix)
    arrays = tree_paths.flatten(base.params)
    added: dict[str, np.ndarray] = {}
    for name in state.keys() - head_state.keys():
        module, _, part = re.sub(r'\.weight$', '', name).rpartition('.')
        if module not in projections:
            raise UserError(f'{folder / WEIGHTS}: {name} is not of a projection of the encoder')
        ours = projections[module]
        place, shape = places[f'{ours}/kernel'], arrays[f'{ours}/kernel'].shape
        if place.parts > 1:
            raise UserError(
                f'{folder / WEIGHTS}: {module} combines several projections, which is not supported'
            )
        added |= _to_ours(f'{ours}/{ADDED}/', part, state[name], place, shape)
    method = _method(peft_type, config, added)
    architecture = dataclasses.replace(base.architecture, tuning=method)
    arrays |= added | state_dict_map.to_ours(places, head_state)
    labels = tuple(metadata.get('labels', ())) or base.labels
    if len(labels) != num_labels and not _TASK_TYPES.keys().isdisjoint(heads):
        labels = tuple(f'LABEL_{i}' for i in range(num_labels))
    params = {name: leaf for name, leaf in arrays.items() if _part(name) in ('encoder', *heads)}
    expected = pretrained.abstract_leaves(architecture, heads, num_labels)
    pretrained.check_missing({name: name for name in expected if name not in params}, (), folder)
    return dataclasses.replace(
        base,
        architecture=architecture,
        params=traverse_util.unflatten_dict(params, sep='/'),
        labels=labels if heads else (),
        metadata=metadata,
    )


def write(model: Pretrained, base: Mapping[str, np.ndarray], path: str | pathlib.Path) -> None:
    """Write a folder that peft opens with PeftModel.from_pretrained.

    Args:
        model: model tuned by LoRA or IA3.
        base: arrays of the base encoder, by name.
        path: folder to create.

    Raises:
        UserError: `path` exists, or peft cannot express the model.
    """
    method, folder = model.architecture.tuning, paths.path(path)
    if method is None or method.method not in ('lora', 'ia3'):
        name = 'full' if method is None else method.method
        raise UserError(f'peft folders hold lora and ia3, not transfer.method={name}')
    if not model.metadata.get('base'):
        raise UserError('only runs of bert_jax can be written as peft folders')
    others = sorted({*model.heads} - {*_TASK_TYPES, 'multiple_choice'})
    if others:  # peft cannot open a saved head whose decoder is tied to the embeddings
        raise UserError(
            f'peft folders cannot hold the head {others[0]}; export with --merge instead'
        )
    arrays = tree_paths.flatten(model.params)
    family = families.by_model_type(model.family)
    num_labels = pretrained.num_labels(model.params)
    frozen = dataclasses.replace(model.architecture, tuning=None)
    places = state_dict_map.places(family.table, frozen, model.heads, num_labels)
    state = state_dict_map.to_theirs(_saved_places(places, arrays, base), arrays)
    saved_modules = sorted({_part(name.removeprefix(family.prefix), '.') for name in state})
    projections: dict[str, str] = {}
    for name, leaf in arrays.items():
        ours, is_added, part = name.partition(f'/{ADDED}/')
        if not is_added:
            continue
        place = places[f'{ours}/kernel']
        if place.parts > 1 or (frozen.shared_layers and method.per_layer):
            raise UserError(f'{ours} shares its projection in a peft folder; it cannot be written')
        projections[ours] = module = place.name.removesuffix('.weight')
        state |= _to_theirs(module, part, leaf, place, ours.endswith(_SCALED_INPUT))
    config = {
        'base_model_name_or_path': model.metadata['base']['path'],
        'inference_mode': True,
        'modules_to_save': saved_modules or None,
        'target_modules': sorted(projections.values()),
        'task_type': next((_TASK_TYPES[h] for h in model.heads if h in _TASK_TYPES), None),
    }
    if isinstance(method, Lora):
        config |= {'peft_type': 'LORA', 'r': method.rank, 'lora_alpha': method.alpha}
        config |= {'lora_dropout': 0.0, 'bias': 'none', 'fan_in_fan_out': False}
    else:
        scaled = [name for ours, name in projections.items() if ours.endswith(_SCALED_INPUT)]
        config |= {'peft_type': 'IA3', 'feedforward_modules': sorted(scaled)}
        config |= {'fan_in_fan_out': False, 'init_ia3_weights': True}
    with files.new_folder(folder) as partial:
        (partial / CONFIG).write_text(json.dumps(config, indent=2) + '\n', encoding='utf-8')
        weights.write(
            partial / WEIGHTS,
            {_PREFIX + name: np.ascontiguousarray(array) for name, array in state.items()},
        )
        if model.tokenizer is not None:
            huggingface.write_tokenizer(model.tokenizer, model.architecture, partial)
        usage.write(model, partial)


def _saved_places(places: Mapping[str, Place], arrays: Arrays, base: Arrays) -> dict[str, Place]:
    """Return the places of the head, and of the pooler if it was trained.

    Raises:
        UserError: other parameters of the encoder were trained.
    """
    parts = {_part(name) for name in arrays} - {'encoder'}
    for name, leaf in arrays.items():
        is_base = _part(name) == 'encoder' and ADDED not in name.split('/')
        if is_base and not np.array_equal(leaf, base.get(name, 0)):
            if not name.startswith(_POOLER):
                raise UserError(f'{name} was trained, but folders of peft omit it')
            parts.add(_POOLER)
    return {name: place for name, place in places.items() if name.startswith(tuple(parts))}


def _is_added(name: str) -> bool:
    return bool(re.search(r'\.(lora_[AB]\.weight|ia3_l)$', name))


def _part(name: str, separator: str = '/') -> str:
    return name.partition(separator)[0]


def _find_heads(
    family: Family,
    config: Mapping[str, Any],
    metadata: Mapping[str, Any],
    state: Arrays,
    base: Pretrained,
) -> tuple[tuple[str, ...], int]:
    """The heads that have these weights, and their number of classes.

    bert_jax.json names the heads of folders that we wrote. Parts of a head that peft does not save,
    such as DeBERTa's pooler, come from the base model.
    """
    if not state:
        return (), 2
    task_type = config.get('task_type')
    candidates = [(head,) for head, name in _TASK_TYPES.items() if task_type in (name, None)]
    if 'heads' in metadata:
        candidates = [tuple(metadata['heads'])]
    for heads in candidates:
        for num_labels in sorted({len(array) for array in state.values()}):
            places = state_dict_map.places(family.table, base.architecture, heads, num_labels)
            shapes = {place.name: place.shape for place in places.values()}
            if all(shapes.get(name) == array.shape for name, array in state.items()):
                return heads, num_labels
    raise UserError(
        f'no head of {family.model_type} with task_type {task_type} has the weights '
        + pretrained.enumerate_names(state)
    )


def _projections(places: Mapping[str, Place], prefix: str) -> dict[str, str]:
    """Module of a state dict, with and without the prefix of the encoder → our projection."""
    projections = {}
    for ours, place in places.items():
        if ours.startswith('encoder/') and ours.endswith('/kernel'):
            name = place.name.removesuffix('.weight')
            projections[name] = ours.removesuffix('/kernel')
            projections[name.removeprefix(prefix)] = projections[name]
    return projections


def _num_inputs(place: Place) -> int:
    """Number of input dimensions of our kernel."""
    sizes = [math.prod(place.published[:n]) for n in range(len(place.published) + 1)]
    return sizes.index(place.shape[1])


def _to_ours(
    prefix: str, part: str, array: np.ndarray, place: Place, shape: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Convert an array of peft to our added parameter of a projection."""
    n = _num_inputs(place)
    array = np.asarray(array, np.float32)
    if part == 'lora_A':
        return {f'{prefix}down': np.ascontiguousarray(array.T).reshape(*shape[:n], -1)}
    if part == 'lora_B':
        return {f'{prefix}up': np.ascontiguousarray(array.T).reshape(-1, *shape[n:])}
    is_input = array.shape[0] == 1  # [1, in] before feed-forward, [out, 1] elsewhere
    return {f'{prefix}scale': array.reshape(shape[:n] if is_input else shape[n:])}


def _to_theirs(
    module: str, part: str, array: np.ndarray, place: Place, is_input: bool
) -> dict[str, np.ndarray]:
    """Convert our added parameter of a projection to an array of peft."""
    outputs, inputs = place.shape
    if part == 'down':
        return {f'{module}.lora_A.weight': array.reshape(inputs, -1).T}
    if part == 'up':
        return {f'{module}.lora_B.weight': array.reshape(-1, outputs).T}
    return {f'{module}.ia3_l': array.reshape((1, -1) if is_input else (-1, 1))}


def _method(peft_type: str, config: Mapping[str, Any], added: Mapping[str, np.ndarray]) -> Tuning:
    """The tuning method with the settings of the folder."""
    if peft_type == 'IA3':
        return tuning.build('ia3', {'per_layer': False})
    roles = {'/'.join(name.partition(f'/{ADDED}/')[0].split('/')[-2:]) for name in added}
    targets = tuple(target for target, role in TARGETS.items() if role in roles)
    rank, alpha = int(config.get('r', 8)), float(config.get('lora_alpha', 8))
    alpha *= math.sqrt(rank) if config.get('use_rslora') else 1
    values = {'rank': rank, 'alpha': alpha, 'targets': targets, 'per_layer': False}
    return tuning.build('lora', values)

"""Writes folders of peft for models that were tuned by LoRA or (IA)³."""

import dataclasses
import json
from collections.abc import Mapping

import numpy as np

from bert_jax import files, tree_paths
from bert_jax.errors import UserError
from bert_jax.interop import (
    families,
    huggingface_config,
    huggingface_export,
    state_dict_map,
    usage,
    weights,
)
from bert_jax.interop.peft_folder import CONFIG, HEADS_OF, PREFIX, WEIGHTS
from bert_jax.interop.state_dict_map import Place
from bert_jax.loaded import loaded_model
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.models.heads import HEADS
from bert_jax.models.tuning.lora import Lora
from bert_jax.models.tuning_method import ADDED, Arrays
from bert_jax.storage import paths
from bert_jax.storage.path import Path

_POOLER = 'encoder/pooler'
_SCALED_INPUT = 'feedforward/output'  # IA3 scales the input of this projection


def write(
    model: LoadedModel,
    base: Mapping[str, np.ndarray],
    path: str | Path,
    overwrite: bool = False,
) -> None:
    """Write a folder that peft opens with PeftModel.from_pretrained.

    Args:
        model: model tuned by LoRA or IA3.
        base: arrays of the base encoder, by name.
        path: folder to create.
        overwrite: replace a folder at `path`.

    Raises:
        UserError: `path` exists, or peft cannot express the model.
    """
    method, folder = model.architecture.tuning, paths.path(path)
    if method is None or method.method not in ('lora', 'ia3'):
        name = 'full' if method is None else method.method
        raise UserError(f'peft folders hold lora and ia3, not transfer.method={name}')
    if model.base is None:
        raise UserError('only runs of bert_jax can be written as peft folders')
    others = sorted(head for head in model.heads if not HEADS[head].is_fine_tuned)
    if others:  # peft cannot open a saved head whose decoder is tied to the embeddings
        raise UserError(
            f'peft folders cannot hold the head {others[0]}; export with --merge instead'
        )
    arrays = tree_paths.flatten(model.params)
    family = families.by_model_type(model.family)
    huggingface_export.check_head_inputs(model, family)
    num_labels = loaded_model.num_labels(model.params)
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
        if place.parts > 1 or (frozen.sharing and method.per_layer):
            raise UserError(f'{ours} shares its projection in a peft folder; it cannot be written')
        projections[ours] = module = place.name.removesuffix('.weight')
        state |= _to_theirs(module, part, leaf, place, ours.endswith(_SCALED_INPUT))
    types = {heads: name for name, heads in HEADS_OF.items() if heads}
    config = {
        'base_model_name_or_path': model.base.path,
        'inference_mode': True,
        'modules_to_save': saved_modules or None,
        'target_modules': sorted(projections.values()),
        'task_type': types.get(model.heads),
    }
    if isinstance(method, Lora):
        config |= {'peft_type': 'LORA', 'r': method.rank, 'lora_alpha': method.alpha}
        config |= {'lora_dropout': 0.0, 'bias': 'none', 'fan_in_fan_out': False}
    else:
        scaled = [name for ours, name in projections.items() if ours.endswith(_SCALED_INPUT)]
        config |= {'peft_type': 'IA3', 'feedforward_modules': sorted(scaled)}
        config |= {'fan_in_fan_out': False, 'init_ia3_weights': True}
    with files.new_folder(folder, CONFIG, overwrite) as partial:
        (partial / CONFIG).write_text(json.dumps(config, indent=2) + '\n', encoding='utf-8')
        weights.write(
            partial / WEIGHTS,
            {PREFIX + name: np.ascontiguousarray(array) for name, array in state.items()},
        )
        if model.tokenizer is not None:
            keys = family.token_keys
            huggingface_config.write_tokenizer(model.tokenizer, model.architecture, partial, keys)
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


def _part(name: str, separator: str = '/') -> str:
    return name.partition(separator)[0]


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

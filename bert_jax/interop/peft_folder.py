"""Reads folders of peft for LoRA and (IA)³: adapter_config.json and the arrays.

They are read as the tuned model itself: the adapters are applied to its weights. Prefix and prompt
tuning of peft are not supported: peft shifts the positions of the text, and the pooler reads a
prompt vector.
"""

import dataclasses
import pathlib
import re
from collections.abc import Callable, Collection, Iterable

import numpy as np

from bert_jax import files, tree_paths
from bert_jax.errors import UserError, warn
from bert_jax.interop import (
    adapter_config,
    adapters,
    conversion,
    huggingface,
    sentence_folder,
    state_dict_map,
    torch_file,
    usage,
    weights,
)
from bert_jax.interop.adapter_config import AdapterConfig
from bert_jax.interop.families.family import Family
from bert_jax.interop.state_dict_map import Place
from bert_jax.loaded import loaded_model, tuned
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.models.tuning_method import Arrays
from bert_jax.storage import paths, trust

CONFIG, WEIGHTS, TORCH = 'adapter_config.json', 'adapter_model.safetensors', 'adapter_model.bin'
PREFIX = 'base_model.model.'
_WRAPPERS = re.compile(r'\.(base_layer|modules_to_save)\.')
_POOLER, _TOKEN = 'encoder/pooler', 'encoder/embeddings/token'
_EMBEDDINGS = {f'encoder/embeddings/{name}' for name in ('token', 'position', 'type')}
HEADS_OF = {  # task_type → heads
    'SEQ_CLS': ('sequence_classification',),
    'TOKEN_CLS': ('token_classification',),
    'QUESTION_ANS': ('question_answering',),
    'CAUSAL_LM': ('clm',),
    'SEQ_2_SEQ_LM': ('seq2seq',),
    'FEATURE_EXTRACTION': (),
}


def load(
    folder: pathlib.Path,
    heads: Iterable[str],
    allow_missing: Iterable[str],
    *,
    load_base: Callable[[str], LoadedModel],
) -> LoadedModel:
    """Load a folder, which says which heads it has, and the model that it was tuned from."""
    return read(folder, load_base(base_path(folder)))


def base_path(folder: pathlib.Path) -> str:
    """Path of the base model that was tuned, from the folder's config.

    Raises:
        UserError: the config is not supported or has no path, or the path is not a folder, or is in
            a bucket that the user did not name.
    """
    _read_config(folder)
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


def read(folder: pathlib.Path, base: LoadedModel) -> LoadedModel:
    """Read a folder of peft: the base model with the adapters applied.

    Every array of the folder has a place, and every module that the config names has its arrays.

    Args:
        folder: folder with adapter_config.json.
        base: the model that was tuned.

    Raises:
        UserError: a method or setting that is not supported, an array without a place, or a
            parameter that neither the folder nor the base model has.
    """
    config, found, base = _read_config(folder), usage.read(folder), tuned.merge(base)
    ignored = adapter_config.ignored_keys(files.read_json(folder / CONFIG))
    if ignored:
        warn(f'{folder / CONFIG}: ignored keys: {", ".join(ignored)}')
    family = huggingface.family_of(base)
    path = folder / (WEIGHTS if (folder / WEIGHTS).is_file() else TORCH)
    arrays = _read_arrays(path)
    if not any(name.startswith(family.prefix) for name in arrays):  # the tuned model has no head
        arrays = {family.prefix + name: array for name, array in arrays.items()}
        config = dataclasses.replace(config, prefix=family.prefix)
    try:
        heads = found.heads or _find_heads(config, family, arrays, base)
        state = _tuned_weights(config, family, heads, arrays, base)
    except UserError as error:
        raise UserError(f'{path}: {error}') from None
    rows = len(state.get(family.table[_TOKEN], ())) or base.architecture.vocab_size
    architecture = dataclasses.replace(base.architecture, vocab_size=rows)
    num_labels = _num_labels(family, heads, state)
    params, new = conversion.from_state_dict(
        family, architecture, state, path, heads, ('^encoder/pooler/',), num_labels
    )
    labels = found.labels or base.labels
    if len(labels) != num_labels and loaded_model.label_heads(heads):
        labels = tuple(f'LABEL_{i}' for i in range(num_labels))
    modules, lowercase, *_ = sentence_folder.read(folder)
    tokenizer = huggingface.load_tokenizer(folder, architecture) or base.tokenizer
    return dataclasses.replace(
        base,
        architecture=architecture,
        params=params,
        tokenizer=tokenizer.with_lowercase() if tokenizer and lowercase else tokenizer,
        labels=labels if heads else (),
        newly_initialized=new,
        usage=found,
        problem_type=_problem_type(base, num_labels, found),
        sentence_modules=modules or base.sentence_modules,
    )


def _read_config(folder: pathlib.Path) -> AdapterConfig:
    try:
        return adapter_config.parse(files.read_json(folder / CONFIG))
    except UserError as error:
        raise UserError(f'{folder / CONFIG}: {error}') from None


def _read_arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
    """The arrays of a file, float32, by the names of modules in transformers."""
    if not path.is_file():
        raise UserError(f'{path.parent} has {CONFIG}, but neither {WEIGHTS} nor {TORCH}')
    read_file = torch_file.read if path.name == TORCH else weights.read_safetensors
    arrays = read_file(path)
    weights.check_values(arrays, path)
    found: dict[str, np.ndarray] = {}
    for full_name, array in arrays.items():
        if '.original_module.' in full_name:  # with bias='all', the bias that a saved one replaces
            continue
        name = _WRAPPERS.sub('.', full_name.removeprefix(PREFIX))
        array = array.astype(np.float32)
        if not np.array_equal(found.setdefault(name, array), array):
            raise UserError(f'{path} has two different arrays of {name}')
    return found


def _find_heads(
    config: AdapterConfig, family: Family, arrays: Arrays, base: LoadedModel
) -> tuple[str, ...]:
    """The heads of the tuned model.

    Raises:
        UserError: the family has no such head, or the config does not say which one it is.
    """
    name = config.task_type or config.base_class or ''
    heads = HEADS_OF.get(name, family.classes.get(name))
    if heads is not None and {*heads} <= {*family.heads}:
        return heads
    if config.task_type:
        raise UserError(f'task_type is {name}, but a {family.model_type} model has no such head')
    saved = {name for name in adapters.split(arrays)[0] if not name.startswith(family.prefix)}
    if not saved:
        return () if config.prefix else base.heads
    found = []
    for head in family.heads:
        places = _places(family, base, (head,))
        if saved <= {place.name for place in places.values()}:
            found.append(head)
    if len(found) == 1:
        return (found[0],)
    raise UserError(
        f'{min(saved)} may belong to {" or ".join(found) or "no known head"}; add the task_type '
        f'to {CONFIG}: {", ".join(HEADS_OF)}'
    )


def _places(family: Family, base: LoadedModel, heads: tuple[str, ...]) -> dict[str, Place]:
    num_labels = loaded_model.num_labels(base.params)
    return state_dict_map.places(family.table, base.architecture, heads, num_labels)


def _tuned_weights(
    config: AdapterConfig, family: Family, heads: tuple[str, ...], arrays: Arrays, base: LoadedModel
) -> dict[str, np.ndarray]:
    """Apply the arrays of a folder to the weights of the base model.

    Returns:
        The weights of the base model that a model with `heads` has, and all weights that the folder
        saves as a whole, by their names in transformers.
    """
    places, own = _places(family, base, heads), _places(family, base, base.heads)
    unknown = {own[name].name for name in base.newly_initialized}
    names = {place.name for place in places.values()} - unknown
    state = state_dict_map.to_theirs(own, tree_paths.flatten(base.params))
    state = {name: array for name, array in state.items() if name in names}
    has_pooler = family.has_pooler(family.class_of(heads))
    linear = {
        place.name.removesuffix('.weight')
        for ours, place in places.items()
        if place.is_kernel and len(place.shape) == 2
        if has_pooler or not ours.startswith(_POOLER)
    }
    embeddings = {places[name].name.removesuffix('.weight') for name in _EMBEDDINGS & places.keys()}
    if family.copies:
        _check_embeddings(family, embeddings, arrays)
    tuned_state = adapters.apply(config, arrays, state, linear, embeddings)
    token = places[_TOKEN].name
    is_tied = base.architecture.prediction.tied and not {'mlm', 'clm'}.isdisjoint(heads)
    if is_tied and not np.array_equal(tuned_state[token], state[token]):
        raise UserError(
            f'{token} is tuned, but not the decoder, to which it is tied; merge the adapter with '
            'peft (merge_and_unload) and save the model'
        )
    return tuned_state


def _check_embeddings(family: Family, embeddings: Collection[str], arrays: Arrays) -> None:
    """Raise UserError if embeddings are tuned of a model whose stacks have copies of them.

    peft tunes `shared`, but transformers reads the copies of the encoder and of the decoder, which
    stay as they were; and peft looks up tuned positions of BART by the ids of tokens.
    """
    saved, added = adapters.split(arrays)
    tokens = {name.removesuffix('.weight') for name in (family.table[_TOKEN], *family.copies)}
    whole = tokens & {name.removesuffix('.weight') for name in saved}
    for module in (*added, *sorted(whole)):
        if module in embeddings or module in tokens:
            raise UserError(
                f'{module} is tuned, which is not supported: peft and transformers compute other '
                f'values with it than with the weights of the tuned {family.model_type} model '
                '(merge_and_unload); tune the linear layers, or merge and save the model if its '
                'values are the ones you want'
            )


def _problem_type(base: LoadedModel, num_labels: int, found: usage.ExportedUsage) -> str | None:
    """The problem_type of the tuned model, whose folder has no config.json."""
    if found != usage.ExportedUsage():  # our own models
        return found.problem_type
    is_same = 'sequence_classification' in base.heads and len(base.labels) == num_labels
    return base.problem_type if is_same else None


def _num_labels(family: Family, heads: tuple[str, ...], state: Arrays) -> int:
    """Number of classes; 2 for a model without a classifier."""
    for head in loaded_model.label_heads(heads):
        weight = f'{family.table.get(f"{head}/head/output")}.weight'
        if weight in state:
            return len(state[weight])
    return 2

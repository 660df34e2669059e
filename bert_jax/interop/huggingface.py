"""Folders as transformers writes and opens them: config.json, weights, tokenizer."""

import collections
import dataclasses
import fnmatch
import json
import pathlib
import shutil
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.interop import card, families, pretrained, state_dict_map, tokenizer_files, weights
from bert_jax.interop import labels as class_names
from bert_jax.interop.families.family import Family
from bert_jax.interop.pretrained import HEADS, Pretrained
from bert_jax.models.architecture import Architecture, Compute

_LOGITS_TOLERANCE = 1e-6  # of the largest logit, between two runs of the same program


def load(
    path: str | pathlib.Path, heads: Iterable[str] = (), allow_missing: Iterable[str] = ()
) -> Pretrained:
    """Reads a local folder.

    Args:
      heads: heads the model must have besides those in the folder.
      allow_missing: patterns (re.search) of our parameter names, such as '^mlm/'; where a weight
        for one is missing, the parameter comes from the initialization and is named in `fresh`.

    Raises UserError for an unknown model_type or a config value whose mathematics we lack, a
    weight left over, missing, of another shape, NaN or infinite, a damaged file, and a tokenizer
    that cannot be the model's.
    """
    folder = pathlib.Path(path)
    config = _read_json(folder / 'config.json')
    try:
        family = families.by_model_type(str(config.get('model_type')))
        architecture = family.read_config(config)
        labels = class_names.read(config)
    except UserError as error:
        raise UserError(f'{folder / "config.json"}: {error}') from None
    published = next(iter(config.get('architectures') or ()), None)
    found = weights.read(folder)
    if not architecture.pooler and _has(family, found, 'encoder/pooler'):
        architecture = dataclasses.replace(architecture, pooler=True)
    if architecture.positions == 'none' and _has(family, found, 'encoder/embeddings/position'):
        architecture = dataclasses.replace(architecture, mask_decoder=True)
    tokenizer = tokenizer_files.load(folder, architecture)
    if published in family.without_pooler:
        allow_missing = (*allow_missing, '^encoder/pooler/')
    heads = {*heads, *family.classes.get(published, ())}
    params, fresh = from_weights(
        family, architecture, found, folder, heads, allow_missing, len(labels)
    )
    if not (config.get('id2label') or set(pretrained.WITH_LABELS) & params.keys()):
        labels = ()
    return Pretrained(family.model_type, architecture, params, tokenizer, labels, fresh)


def from_weights(
    family: Family,
    architecture: Architecture,
    found: dict[str, np.ndarray],
    where: pathlib.Path,
    heads: Iterable[str] = (),
    allow_missing: Iterable[str] = (),
    num_labels: int = 2,
) -> tuple[dict, tuple[str, ...]]:
    """Our parameters from a state dict of the family, and the names of the fresh ones; the checks
    are those of `load`. Heads that have a weight for themselves in `found` are added to `heads`."""
    every = state_dict_map.places(
        family.table, architecture, _possible(family, architecture), num_labels
    )
    found = {family.todays_name(name): array for name, array in found.items()}
    if not any(name.startswith(family.prefix) for name in found):  # a bare encoder
        found = {_with_prefix(family, name, every): array for name, array in found.items()}
    found = _without_repetitions(family, found, where)
    found = _without_contained(family, found, where)
    heads = _heads(every, found, heads)
    places = {ours: place for ours, place in every.items() if _head(ours) in (*heads, None)}

    missing = [ours for ours, place in places.items() if place.name not in found]
    left_over = sorted(found.keys() - {place.name for place in places.values()})
    if left_over:
        lacking = [places[ours].name for ours in missing]
        also = f' (and lacks {pretrained.some(lacking)})' if lacking else ''
        raise UserError(
            f'{where}: a {family.model_type} model with {", ".join(heads) or "no head"} has no '
            f'place for the weights {pretrained.some(left_over)}{also}'
        )
    described = {ours: f'{places[ours].name} ({ours})' for ours in missing}
    pretrained.check_missing(described, tuple(allow_missing), where)
    weights.check_values(found, where)
    for place in places.values():
        if place.name in found and found[place.name].shape != place.shape:
            raise UserError(
                f'{where}: {place.name} is {list(found[place.name].shape)}, but by the config '
                f'{list(place.shape)}'
            )
    params = state_dict_map.to_ours(places, found)
    return pretrained.fill(params, architecture, heads, num_labels)


def save(model: Pretrained, path: str | pathlib.Path):
    """Writes a folder that transformers opens with from_pretrained, with all heads.

    It is written under another name, read back, and put in place when the model in it gives the
    same logits. Raises UserError if `path` exists, the model is of no published family or class,
    holds values that are not finite, or the logits differ.
    """
    path = pathlib.Path(path)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f'{path} is there already; choose another folder or remove it')
    partial = path.with_name(path.name + '.partial')
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        _write(model, partial)
        _compare(model, load(partial))
        partial.rename(path)
    except OSError as error:
        raise UserError(f'{path} cannot be written: {error.strerror}') from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def left_out(model: Pretrained) -> tuple[str, ...]:
    """Names of the parameters that the published class with the model's heads has no place for:
    the pooler, where no head uses it."""
    family = families.by_model_type(model.family)
    if family.class_of(model.heads) not in family.without_pooler:
        return ()
    return tuple(n for n in tree_paths.flatten(model.params) if n.startswith('encoder/pooler/'))


def _write(model: Pretrained, folder: pathlib.Path):
    family, architecture = families.by_model_type(model.family), model.architecture
    published = family.class_of(model.heads)
    has_pooler = 'encoder/pooler' in family.table and published not in family.without_pooler
    if has_pooler and not architecture.pooler:
        raise UserError(f'a {published} has a pooler, which this model lacks')
    config = {'architectures': [published], 'model_type': family.model_type, 'dtype': 'float32'}
    config |= family.write_config(architecture) | class_names.write(model)
    if model.tokenizer is not None:
        tokenizer_files.check_padding(architecture, model.tokenizer, folder)
        config |= {name: getattr(model.tokenizer, role) for name, role in family.token_keys.items()}
        tokenizer_files.write(model.tokenizer, architecture, folder)
    elif 'pad_token_id' not in config:
        config['pad_token_id'] = None
    (folder / 'config.json').write_text(_json(config), encoding='utf-8')

    num_labels = pretrained.num_labels(model.params)
    places = state_dict_map.places(family.table, architecture, model.heads, num_labels)
    for ours in left_out(model):
        del places[ours]
    state = state_dict_map.to_theirs(places, tree_paths.flatten(model.params))
    prefix = family.prefix if not model.heads else ''
    state = {name.removeprefix(prefix): array for name, array in state.items()}
    weights.write(folder / weights.SAFETENSORS, state)
    (folder / 'README.md').write_text(card.write(model, published), encoding='utf-8')


def _compare(live: Pretrained, written: Pretrained):
    """Raises UserError unless both give the same logits for a batch of arbitrary tokens."""
    architecture = live.architecture
    rng = np.random.default_rng(0)
    length = min(16, architecture.max_length)
    ids = rng.integers(0, architecture.vocab_size, (3, length), dtype=np.int32)
    last_type = max(0, architecture.type_vocab_size - 1)
    types = (np.arange(length) >= length // 2) * np.full((3, 1), last_type)
    mask = np.arange(length) < np.array([[length], [max(1, length - 3)], [1]])
    ours, theirs = (
        jax.device_get(
            pretrained.outputs(
                model.architecture,
                Compute(),
                jax.tree.map(jnp.asarray, model.params),
                ids,
                mask.astype(np.int32),
                types.astype(np.int32),
            )
        )
        for model in (live, written)
    )
    for name, values in ours.items():
        if not np.isfinite(values).all():
            raise UserError(f'the model cannot be saved: its {name} are not finite')
        difference = np.abs(values - theirs[name]).max()
        if difference > _LOGITS_TOLERANCE * max(1, np.abs(values).max()):
            raise UserError(
                f'not saved: {name} of the written model differ from the live one by {difference:g}'
            )


def _with_prefix(family: Family, name: str, places: dict[str, state_dict_map.Place]) -> str:
    full = family.prefix + name
    known = {place.name for place in places.values()} | {*family.buffers, *family.duplicates}
    return full if full in known else name


def _without_repetitions(family: Family, found: dict, where: pathlib.Path) -> dict:
    """`found` without buffers and second copies, which must hold what they should."""
    found = dict(found)
    for name in list(found):
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in family.buffers):
            array = found.pop(name)
            if not (array == np.arange(array.shape[-1])).all():
                raise UserError(f'{where}: {name} is not 0, 1, 2, …')
    for copy, original in family.duplicates.items():
        if copy in found:
            array = found.pop(copy)
            if not np.array_equal(array, found.setdefault(original, array)):
                raise UserError(f'{where}: {copy} differs from {original}, to which it is tied')
    return found


def _without_contained(family: Family, found: dict, where: pathlib.Path) -> dict:
    passed_over = sorted(found.keys() & family.contained)
    if passed_over:
        logging.warning('%s: passed over, not used: %s', where, ', '.join(passed_over))
    return {name: array for name, array in found.items() if name not in passed_over}


def _head(ours: str) -> str | None:
    part = ours.partition('/')[0]
    return part if part in HEADS else None


def _possible(family: Family, architecture: Architecture) -> tuple[str, ...]:
    """The heads the architecture can have: some need a pooler."""
    lacking = set() if architecture.pooler else set(pretrained.OF_POOLER)
    if lacking and architecture.pooling == 'pooler':
        lacking |= {'sequence_classification', 'multiple_choice'}
    return tuple(name for name in family.heads if name not in lacking)


def _heads(
    places: dict[str, state_dict_map.Place], found: dict[str, np.ndarray], asked: Iterable[str]
) -> tuple[str, ...]:
    """The heads asked for and those with a weight in `found` that no other head could have."""
    owners = collections.defaultdict(set)
    for ours, place in places.items():
        owners[place.name].add(_head(ours))
    own = {next(iter(owners[name])) for name in found if len(owners[name]) == 1}
    return tuple(name for name in HEADS if name in {*asked, *own})


def _has(family: Family, found: dict[str, np.ndarray], ours: str) -> bool:
    weight = f'{family.table.get(ours, "")}.weight'.replace('.weight.weight', '.weight')
    return weight in found or weight.removeprefix(family.prefix) in found


def _read_json(path: pathlib.Path) -> dict:
    try:
        value = json.loads(path.read_text(encoding='utf-8'))
    except OSError as error:
        raise UserError(f'{path}: {error.strerror}') from error
    except ValueError as error:
        raise UserError(f'{path} is no JSON: {error}') from error
    if not isinstance(value, dict):
        raise UserError(f'{path} is no config: not a JSON object')
    return value


def _json(value: dict) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + '\n'

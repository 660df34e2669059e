"""Converts state dicts of published models to our parameters; accounts for every weight."""

import collections
import pathlib
from collections.abc import Iterable, Mapping

import numpy as np

from bert_jax.errors import UserError, report, warn
from bert_jax.interop import state_dict_map, weights
from bert_jax.interop.families.family import Family
from bert_jax.interop.state_dict_map import Place
from bert_jax.loaded import loaded_model
from bert_jax.models.architecture import Architecture
from bert_jax.models.heads import HEADS, published_heads
from bert_jax.types import Tree

_POOLER = 'encoder/pooler/'


def from_state_dict(
    family: Family,
    architecture: Architecture,
    state: Mapping[str, np.ndarray],
    source: str | pathlib.Path,
    heads: Iterable[str] = (),
    allow_missing: Iterable[str] = (),
    num_labels: int = 2,
    declared: Iterable[str] = (),
    likely: Iterable[str] = (),
) -> tuple[dict[str, Tree], tuple[str, ...]]:
    """Convert a state dict of a family.

    Args:
        source: where the state dict comes from, for messages.
        heads: heads that the model must have, besides those that `state` has weights for.
        allow_missing: regular expressions (re.search) for the names of our parameters, such as
            '^mlm/', that may be newly initialized; not the pooler of a head that reads it.
        declared: heads that config.json declares; one without any weight in `state` is left out,
            with a warning.
        likely: heads to prefer where the weights may belong to several and none is declared.

    Returns:
        The parameters, and the names of the newly initialized ones.

    Raises:
        UserError: a weight has no place, is missing, has another shape, or is not finite.
    """
    state = state_dict_map.join(state, family.parts(architecture))
    possible = _possible_heads(family, architecture)
    all_places = state_dict_map.places(family.table, architecture, possible, num_labels)
    state = {
        family.current_name(name): array
        for name, array in state.items()
        if not family.is_buffer(name)
    }
    if not any(name.startswith(family.prefix) for name in state):  # a bare encoder
        names = (place.name for place in all_places.values())
        copies = family.duplicates(architecture)
        known = {*names, *family.training_only, family.position_ids, *copies}
        state = {
            full if (full := family.prefix + name) in known else name: array
            for name, array in state.items()
        }
    state = _without_extras(family, architecture, state, source)
    present = {_head(ours) for ours, place in all_places.items() if place.name in state}
    without_weights = {*possible} - {_head(ours) for ours in all_places}
    absent = [head for head in declared if head not in {*present, *heads, *without_weights}]
    if absent:
        warn(f'{source}: no weights of {", ".join(absent)}, which config.json names')
    heads = _select_heads(all_places, state, {*heads, *declared} - {*absent})
    heads = _with_undeclared(family, architecture, all_places, state, heads, likely, source)
    places = {ours: place for ours, place in all_places.items() if _head(ours) in (*heads, None)}

    missing = [ours for ours, place in places.items() if place.name not in state]
    left_over = sorted(state.keys() - {place.name for place in places.values()})
    if left_over:
        lacking = loaded_model.enumerate_names(places[ours].name for ours in missing)
        raise UserError(
            f'{source}: a {family.model_type} model with {", ".join(heads) or "no head"} has no '
            f'place for the weights {loaded_model.enumerate_names(left_over)}'
            + (f' (and lacks {lacking})' if missing else '')
            + '; weights that are not needed can be left out with export --leave_out=REGEX'
        )
    described = {ours: f'{places[ours].name} ({ours})' for ours in missing}
    if any(loaded_model.reads_pooler(head, architecture) for head in heads):
        pooler = {name: described[name] for name in missing if name.startswith(_POOLER)}
        loaded_model.check_missing(pooler, (), source)  # the head was trained with another pooler
    loaded_model.check_missing(described, allow_missing, source)
    weights.check_values(state, source)
    for place in places.values():
        if place.name in state and state[place.name].shape != place.their_shape:
            raise UserError(
                f'{source}: {place.name} has the shape {list(state[place.name].shape)}, but the '
                f'config implies {list(place.their_shape)}'
            )
    params = state_dict_map.to_ours(places, state)
    return loaded_model.fill(params, architecture, heads, num_labels, names=places)


def has_weight(family: Family, state: Mapping[str, np.ndarray], ours: str) -> bool:
    """Whether a state dict has the weight of one of our modules or parameters."""
    weight = family.table.get(ours, '').removesuffix('.weight') + '.weight'
    names = {family.current_name(name) for name in state}
    return weight in names or weight.removeprefix(family.prefix) in names


def _without_extras(
    family: Family,
    architecture: Architecture,
    state: Mapping[str, np.ndarray],
    source: str | pathlib.Path,
) -> dict[str, np.ndarray]:
    """Drop training-only weights, position buffers and tied copies, which must agree."""
    state = dict(state)
    skipped = [name for name in family.training_only if state.pop(name, None) is not None]
    if skipped:
        warn(f'{source}: skipped training-only weights: {", ".join(skipped)}')
    unused = [name for name in state if family.is_unused(name)]
    if unused:
        listed = loaded_model.enumerate_names(unused)
        warn(f'{source}: skipped weights of outputs that are not computed here: {listed}')
        state = {name: array for name, array in state.items() if name not in unused}
    positions = state.pop(family.position_ids, np.arange(1))
    if not (positions == np.arange(positions.shape[-1])).all():
        raise UserError(f'{source}: {family.position_ids} is not 0, 1, 2, …')
    if not architecture.prediction.tied and f'{family.decoder}.bias' in state:
        # With an untied decoder, transformers reads the decoder's own bias.
        state[family.prediction_bias or ''] = state.pop(f'{family.decoder}.bias')
    for copy, original in family.duplicates(architecture).items():
        if copy in state:
            array = state.pop(copy)
            if not np.array_equal(array, state.setdefault(original, array)):
                raise UserError(f'{source}: {copy} differs from {original}, to which it is tied')
    return state


def _head(ours: str) -> str | None:
    part = ours.partition('/')[0]
    return part if published_heads([part]) else None


def _possible_heads(family: Family, architecture: Architecture) -> tuple[str, ...]:
    excluded = {head for head in family.heads if HEADS[head].is_pair and not architecture.pooler}
    if excluded and architecture.classifier.pooling == 'pooler':
        excluded |= {'sequence_classification', 'multiple_choice'}
    return tuple(name for name in family.heads if name not in excluded)


def _select_heads(
    places: Mapping[str, Place], state: Mapping[str, np.ndarray], requested: Iterable[str]
) -> tuple[str, ...]:
    """The requested heads, and heads with a weight in `state` that no other head can have."""
    owners = collections.defaultdict(set)
    for ours, place in places.items():
        owners[place.name].add(_head(ours))
    identified = {next(iter(owners[name])) for name in state if len(owners[name]) == 1}
    return published_heads({*requested, *filter(None, identified)})


def _with_undeclared(
    family: Family,
    architecture: Architecture,
    places: Mapping[str, Place],
    state: Mapping[str, np.ndarray],
    heads: tuple[str, ...],
    likely: Iterable[str],
    source: str | pathlib.Path,
) -> tuple[str, ...]:
    """The heads, and the head of weights that are left over, whose names several heads share.

    For configs whose `architectures` is absent or names another class.

    Raises:
        UserError: the weights may belong to several heads.
    """
    names: dict[str | None, set[str]] = collections.defaultdict(set)
    fits: dict[str | None, bool] = collections.defaultdict(lambda: True)
    for ours, place in places.items():
        names[_head(ours)].add(place.name)
        fits[_head(ours)] &= place.name in state and state[place.name].shape == place.their_shape
    left_over = state.keys() - set().union(*(names[head] for head in (*heads, None)))
    pooler = {place.name for ours, place in places.items() if ours.startswith(_POOLER)}
    found = [
        head
        for head in published_heads([head for head in names if head])
        if left_over and left_over <= names[head] and fits[head]
        if pooler <= state.keys() or not loaded_model.reads_pooler(head, architecture)
    ]
    found = [head for head in found if head in likely] or found
    if len(found) > 1:
        classes = ' or '.join(family.class_of((head,)) for head in found)
        raise UserError(
            f'{source}: {", ".join(sorted(left_over))} may belong to several classes; name the '
            f'right one as "architectures" in config.json: {classes}'
        )
    if found:
        report(f'{source}: {found[0]}, which config.json does not name')
    return published_heads({*heads, *found})

"""Fits pretrained parameters to another vocabulary, sequence length and set of heads."""

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np

from bert_jax import tree_paths
from bert_jax.errors import UserError, join_first
from bert_jax.loaded import loaded_model
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.models.architecture import Architecture
from bert_jax.models.heads import has_token_rows, published_heads
from bert_jax.tokenizers import Tokenizer, old_subwords

# Architecture fields that may differ between the weights and the new model.
_INDEPENDENT = {'hidden_dropout', 'attention_dropout', 'feedforward_dropout', 'output_dropout'}
_INDEPENDENT |= {'initializer_range', 'fan_in_init'}
_INDEPENDENT |= {'attention.theta', 'attention.local_theta', 'pair_pooling'}
_INDEPENDENT |= {'head_states', 'head_lstm.layers', 'head_lstm.size'}
_INDEPENDENT |= {'classifier.pooling', 'classifier.skipped_id'}
_FITTED = {'vocab_size', 'max_position_embeddings', 'characters.spelling', 'token_dropout.mask_id'}
_POSITIONS = tuple(f'{stack}/embeddings/position' for stack in ('encoder', 'decoder'))


def fit(
    model: LoadedModel,
    architecture: Architecture,
    tokenizer: Tokenizer,
    heads: Iterable[str],
    positions: str = 'tile',
    reasons: Mapping[str, str] | None = None,
    *,
    is_causal: bool = False,
) -> tuple[LoadedModel, list[str]]:
    """Fit a model to another vocabulary, number of positions and exactly the given heads.

    Tokens of the old vocabulary keep their embeddings; a new token gets the mean embedding of the
    subwords into which the old tokenizer splits its text. New heads are newly initialized.

    Args:
        positions: how to make more positions: 'tile' repeats the old embeddings, 'interpolate'
            stretches them.
        reasons: why a head is not among `heads`, if not because no objective uses it.
        is_causal: whether the new model attends only to earlier tokens.

    Returns:
        The model, and a line for everything that was changed or dropped.

    Raises:
        UserError: the architectures differ in anything else.
    """
    _check_same(model.architecture, architecture)
    params = tree_paths.flatten(model.params)
    heads = published_heads({*heads})
    parts = dict.fromkeys(name.partition('/')[0] for name in params)
    dropped = [part for part in parts if published_heads([part]) and part not in heads]
    lines = _dropped(dropped, reasons or {})
    if model.is_causal and not is_causal:
        lines.append(
            'the weights were trained left to right; here tokens attend in both directions'
        )
    params = {name: leaf for name, leaf in params.items() if name.partition('/')[0] not in dropped}
    vocab_size = model.architecture.vocab_size
    params |= {name: params[name][:vocab_size] for name in params if has_token_rows(name)}
    if tokenizer.fingerprint != (model.tokenizer and model.tokenizer.fingerprint):
        lines += _fit_vocabulary(params, model.tokenizer, tokenizer)
    lines += _fit_positions(params, architecture, positions)
    for name in params:
        if has_token_rows(name):
            rows = params[name][: architecture.vocab_size]
            padding = architecture.padded_vocab_size - len(rows)
            params[name] = np.pad(rows, [(0, padding)] + [(0, 0)] * (rows.ndim - 1))
    tree, new = loaded_model.fill(params, architecture, heads)
    new = (*new, *(name for name in model.newly_initialized if name in params))
    fitted = dataclasses.replace(
        model, architecture=architecture, params=tree, tokenizer=tokenizer, newly_initialized=new
    )
    return fitted, lines


def _dropped(heads: Iterable[str], why: Mapping[str, str]) -> list[str]:
    """Return a line that names the dropped heads with the reason for each, if there are any."""
    by_reason: dict[str, list[str]] = {}
    for name in heads:
        by_reason.setdefault(why.get(name, 'no objective uses it'), []).append(name)
    parts = [f'{", ".join(names)} ({reason})' for reason, names in by_reason.items()]
    return [f'dropped heads: {"; ".join(parts)}'] if parts else []


def _check_same(old: Architecture, new: Architecture) -> None:
    there, here = _fields(old), _fields(new)
    differences = [
        f'{name} is {there.get(name)} there and {here.get(name)} here'
        for name in {**there, **here}
        if there.get(name) != here.get(name)
    ]
    if differences:
        raise UserError(f'the weights have another architecture: {"; ".join(differences)}')


def _fields(architecture: Architecture) -> dict[str, object]:
    """The values that must agree."""
    if architecture.attention.kind == 'disentangled':
        largest = architecture.attention.largest_distance(architecture.max_position_embeddings)
        architecture = architecture.changed({'attention.max_distance': largest})
    fields = architecture.values() | {'windows': architecture.layer_windows}
    return {name: fields[name] for name in fields if name not in _INDEPENDENT | _FITTED}


def _fit_vocabulary(
    params: dict[str, np.ndarray], old: Tokenizer | None, new: Tokenizer
) -> list[str]:
    if old is None:
        raise UserError('the weights have no tokenizer, so their tokens cannot be matched')
    if old.kind != new.kind:
        raise UserError(
            f'the weights have a {old.kind} tokenizer, but the corpus has a {new.kind} tokenizer'
        )
    subwords = old_subwords.find(new, old)
    for role in old.role_ids.keys() & new.role_ids.keys():  # they match by role, not by name
        subwords[new.role_ids[role]] = [old.role_ids[role]]
    for name in params:
        if has_token_rows(name):
            average = params[name][: old.vocab_size].mean(0)
            params[name] = np.stack(
                [params[name][ids].mean(0) if ids else average for ids in subwords]
            ).astype(np.float32)
    roles = {*new.special_ids}
    known = {*old.vocab}
    added = [
        number
        for number, token in enumerate(new.vocab)
        if token and token not in known and number not in roles
    ]
    unknown = [new.vocab[number] for number in added if not subwords[number]]
    kept, composed = sum(map(bool, new.vocab)) - len(added), len(added) - len(unknown)
    line = (
        f'vocabulary: {kept:,} tokens keep their embedding; {composed:,} new tokens start as the '
        'mean of their old subwords'
    )
    if unknown:
        line += (
            f'; {len(unknown):,} without a known subword start as the mean of all embeddings: '
            f'{join_first(unknown)}'
        )
    return [line]


def _fit_positions(
    params: dict[str, np.ndarray], architecture: Architecture, method: str
) -> list[str]:
    length, lines = architecture.max_length, list[str]()
    for name in (name for name in _POSITIONS if name in params):
        unused, old = np.split(params[name], [architecture.first_position])
        if length == len(old):
            continue
        new, line = old[:length], f'positions: the first {length} of {len(old)}'
        if length > len(old):
            new = MORE_POSITIONS[method](old, length)
            line = f'positions: {len(old)} → {length} ({method})'
        params[name] = np.concatenate([unused, new])
        lines = [line]  # the tables of encoder and decoder have the same length
    return lines


def _tile(old_TD: np.ndarray, length: int) -> np.ndarray:
    return old_TD[np.arange(length) % len(old_TD)]


def _interpolate(old_TD: np.ndarray, length: int) -> np.ndarray:
    positions = np.linspace(0, len(old_TD) - 1, length)
    below = np.minimum(positions.astype(int), len(old_TD) - 2)
    share = (positions - below)[:, None]
    return np.asarray(((1 - share) * old_TD[below] + share * old_TD[below + 1]).astype(np.float32))


# Config key init_positions → function that makes more positions.
MORE_POSITIONS = {'tile': _tile, 'interpolate': _interpolate}

"""Fitting pretrained parameters to another vocabulary, another length and other heads, to go on
training from them."""

import dataclasses
from collections.abc import Iterable

import numpy as np

from bert_jax import tree_paths
from bert_jax.data.tokenizers import Tokenizer
from bert_jax.errors import UserError, unknown
from bert_jax.interop import pretrained
from bert_jax.interop.pretrained import HEADS, Pretrained
from bert_jax.models.architecture import Architecture

_FREE = ('hidden_dropout', 'attention_dropout', 'initializer_range')  # fit any parameters
_BY_RESULT = ('max_relative_positions',)  # None stands for a number
_FITTED = ('vocab_size', 'max_position_embeddings')
_EMBEDDING, _POSITIONS, _BIAS = (
    'encoder/embeddings/token',
    'encoder/embeddings/position',
    'mlm/head/bias',
)


def fit(
    model: Pretrained,
    architecture: Architecture,
    tokenizer: Tokenizer,
    heads: Iterable[str],
    positions: str = 'tile',
) -> tuple[Pretrained, list[str]]:
    """The model with another architecture's vocabulary size and positions, another tokenizer and
    exactly these heads, and a line for everything that was changed or left out.

    A token of the new vocabulary keeps its embedding where the old one has it, and else gets the
    mean of its pieces in the old vocabulary. More positions: 'tile' repeats the old ones,
    'interpolate' stretches them. New heads come from the initialization and are named in `fresh`,
    as is what was fresh before.

    Raises UserError if the architectures differ in anything else, naming it.
    """
    _check_same(model.architecture, architecture)
    params = {
        name: _cut(leaf, name, model.architecture.vocab_size)
        for name, leaf in tree_paths.flatten(model.params).items()
    }
    heads = tuple(name for name in HEADS if name in set(heads))
    said = []
    for name in list(params):
        part = name.partition('/')[0]
        if part in HEADS and part not in heads:
            del params[name]
            said.append(f'{name} is left out: no objective uses it')
    if tokenizer.fingerprint != (model.tokenizer and model.tokenizer.fingerprint):
        said += _fit_vocabulary(params, model.tokenizer, tokenizer)
    said += _fit_positions(params, architecture, positions)
    for name in (_EMBEDDING, _BIAS):
        if name in params:
            rows = params[name][: architecture.vocab_size]
            padding = architecture.padded_vocab_size - len(rows)
            params[name] = np.pad(rows, [(0, padding)] + [(0, 0)] * (rows.ndim - 1))
    tree, fresh = pretrained.fill(params, architecture, heads)
    fresh = (*fresh, *(name for name in model.fresh if name in params))
    return Pretrained(model.family, architecture, tree, tokenizer, model.labels, fresh), said


def _check_same(old: Architecture, new: Architecture):
    differences = [
        f'{field.name} is {getattr(old, field.name)} there and {getattr(new, field.name)} here'
        for field in dataclasses.fields(Architecture)
        if field.name not in (*_FREE, *_FITTED, *_BY_RESULT)
        and getattr(old, field.name) != getattr(new, field.name)
    ]
    if new.attention == 'disentangled' and old.max_distance != new.max_distance:
        differences.append(
            f'max_relative_positions is {old.max_distance} there and {new.max_distance} here'
        )
    if differences:
        raise UserError(f'the weights are of another architecture: {"; ".join(differences)}')


def _fit_vocabulary(params: dict, old: Tokenizer | None, new: Tokenizer) -> list[str]:
    if old is None:
        raise UserError('the weights come without a tokenizer, so their tokens cannot be matched')
    if old.kind != new.kind:
        raise UserError(f'the weights are of a {old.kind} tokenizer, the corpus of a {new.kind}')
    pieces = [old.pieces(token) for token in new.vocab]
    for old_id, new_id in zip(old.special_ids, new.special_ids, strict=True):
        pieces[new_id] = [old_id]  # the same part, whatever its name
    for name in (_EMBEDDING, _BIAS):
        if name in params:
            average = params[name][: old.vocab_size].mean(0)
            params[name] = np.stack(
                [params[name][own].mean(0) if own else average for own in pieces]
            ).astype(np.float32)
    kept = sum(len(own) == 1 for own in pieces)
    without = sum(not own for own in pieces)
    return [
        f'vocabulary: {kept:,} tokens keep their embedding, {new.vocab_size - kept - without:,} '
        f'get the mean of their old pieces, {without:,} the mean of all'
    ]


def _fit_positions(params: dict, architecture: Architecture, how: str) -> list[str]:
    if how not in _MORE_POSITIONS:
        raise unknown('way to make more positions', how, _MORE_POSITIONS)
    if _POSITIONS not in params:
        return []
    first, number = architecture.first_position, architecture.max_length
    unused, old = np.split(params[_POSITIONS], [first])
    if number == len(old):
        return []
    new, told = old[:number], f'positions: the first {number} of {len(old)}'
    if number > len(old):
        new, told = _MORE_POSITIONS[how](old, number), f'positions: {len(old)} → {number} ({how})'
    params[_POSITIONS] = np.concatenate([unused, new])
    return [told]


def _tile(old_TD: np.ndarray, number: int) -> np.ndarray:
    return old_TD[np.arange(number) % len(old_TD)]


def _interpolate(old_TD: np.ndarray, number: int) -> np.ndarray:
    where = np.linspace(0, len(old_TD) - 1, number)
    below = np.minimum(where.astype(int), len(old_TD) - 2)
    share = (where - below)[:, None]
    return ((1 - share) * old_TD[below] + share * old_TD[below + 1]).astype(np.float32)


_MORE_POSITIONS = {'tile': _tile, 'interpolate': _interpolate}


def _cut(leaf: np.ndarray, name: str, vocab_size: int) -> np.ndarray:
    return leaf[:vocab_size] if name in (_EMBEDDING, _BIAS) else leaf

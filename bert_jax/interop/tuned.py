"""Models of parameter-efficient tuning: the frozen model they belong to, and merging with it."""

import dataclasses
import functools
import hashlib
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from flax import traverse_util

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.interop.pretrained import Pretrained
from bert_jax.models.tuning import ADDED
from bert_jax.models.tuning_method import Tuning
from bert_jax.types import Params

_SHOWN = 12  # digits of a digest in messages


def digest(encoder: Params) -> str:
    """SHA-256 of the arrays of an encoder with unstacked layers, and of their names."""
    result = hashlib.sha256()
    for name, array in sorted(tree_paths.flatten(encoder).items()):
        result.update(f'{name} {array.shape} '.encode())
        result.update(np.ascontiguousarray(array, np.float32).tobytes())
    return result.hexdigest()


def describe_base(path: str, model: Pretrained) -> dict[str, str]:
    """What a checkpoint says of the model at `path` whose parameters it leaves out."""
    return {
        'path': path,
        'absolute_path': os.path.abspath(path),
        'sha256': digest(model.params['encoder']),
    }


@functools.lru_cache(maxsize=1)  # several tuned models in a process share the arrays of their base
def load_base(path: str, sha256: str) -> Mapping[str, np.ndarray]:
    """The arrays of the encoder that was tuned, by '/'-joined name from 'encoder' on.

    Raises:
        UserError: the model at `path` is another one.
    """
    from bert_jax.interop import loading

    encoder = loading.load_any(path, allow_missing=('^encoder/pooler/',)).params['encoder']
    found = digest(encoder)
    if found != sha256:
        raise UserError(
            f'{path} is not the model that was tuned: its sha256 is {found[:_SHOWN]}…, not '
            f'{sha256[:_SHOWN]}…; restore that model there'
        )
    return tree_paths.flatten({'encoder': encoder})


def find_base(base: Mapping[str, str], tuned: str | os.PathLike) -> Mapping[str, np.ndarray]:
    """`load_base` of what `describe_base` returned, for the checkpoint `tuned`."""
    for path in (base['path'], base['absolute_path']):
        if pathlib.Path(path).is_dir():
            return load_base(path, base['sha256'])
    raise UserError(
        f'{tuned} holds only what tuning added to {base["path"]}, which is not there; restore that '
        f'folder (or a link to it) as {base["absolute_path"]}'
    )


def merge(model: Pretrained) -> Pretrained:
    """The model without added parameters that computes the same, by fp32 arithmetic.

    Raises:
        UserError: the tuning method adds what cannot be part of the encoder's own parameters.
    """
    method = model.architecture.tuning
    if method is None:
        return model
    flat = tree_paths.flatten(model.params['encoder'])
    added = {name for name in flat if ADDED in name.split('/')}
    if added and not method.can_merge:
        raise UserError(
            f'transfer.method={method.method} cannot be merged: it adds parameters that the '
            'architecture has no place for; use the folder of the run'
        )
    if added and model.architecture.shared_layers and method.per_layer:
        raise UserError(
            'layers that share their parameters cannot be merged with added ones of their own; '
            'tune with transfer.per_layer=False'
        )
    merged = {name: array for name, array in flat.items() if name not in added}
    for module in sorted({re.sub(f'/{ADDED}/.*', '', name) for name in added}):
        merged |= _merge_projection(method, module, flat)
    architecture = dataclasses.replace(model.architecture, tuning=None)
    encoder = traverse_util.unflatten_dict(merged, sep='/')
    return dataclasses.replace(
        model, architecture=architecture, params={**model.params, 'encoder': encoder}
    )


def _merge_projection(method: Tuning, module: str, flat: Mapping[str, Any]) -> dict[str, Any]:
    """The merged weights of a projection, by name."""
    prefix = f'{module}/{ADDED}/'
    added = {name.removeprefix(prefix): flat[name] for name in flat if name.startswith(prefix)}
    weights = {
        name: flat[f'{module}/{name}'] for name in ('kernel', 'bias') if f'{module}/{name}' in flat
    }
    role = '/'.join(module.split('/')[-2:])
    return {f'{module}/{name}': leaf for name, leaf in method.merge(role, weights, added).items()}

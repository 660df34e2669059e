"""Parameter-efficient tuning: identifies the base model, and merges added parameters into it."""

import dataclasses
import hashlib
import re
from collections.abc import Mapping

import numpy as np
from flax import traverse_util

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.interop.pretrained import Pretrained
from bert_jax.models.tuning import ADDED
from bert_jax.models.tuning_method import Tuning
from bert_jax.storage import hub, paths
from bert_jax.types import Params, Tree


def digest(encoder: Params) -> str:
    """SHA-256 of the names, shapes and arrays of an encoder with unstacked layers."""
    hasher = hashlib.sha256()
    for name, array in sorted(tree_paths.flatten(encoder).items()):
        hasher.update(f'{name} {array.shape} '.encode())
        hasher.update(np.ascontiguousarray(array, np.float32).tobytes())
    return hasher.hexdigest()


def describe_base(path: str, model: Pretrained) -> dict[str, str]:
    """Checkpoint metadata that identifies the base model at `path`, whose parameters it omits."""
    return {
        'path': str(paths.path(path)) if hub.is_name(path) else path,
        'absolute_path': str(paths.path(path).absolute()),
        'sha256': digest(model.params['encoder']),
    }


def merge(model: Pretrained) -> Pretrained:
    """Merge added parameters into the encoder's own, in fp32; the outputs stay the same.

    Raises:
        UserError: the encoder's own parameters cannot express the added parameters.
    """
    method = model.architecture.tuning
    if method is None:
        return model
    flat = tree_paths.flatten(model.params['encoder'])
    added = {name for name in flat if ADDED in name.split('/')}
    if not method.can_merge:
        raise UserError(
            f'transfer.method={method.method} cannot be merged: the architecture has no place for '
            'the parameters that it adds; use the folder of the run'
        )
    if added and model.architecture.sharing and method.per_layer:
        raise UserError(
            'parameters added to each layer cannot be merged into layers that share their '
            'parameters; tune with transfer.per_layer=False'
        )
    merged = {name: array for name, array in flat.items() if name not in added}
    for module in sorted({re.sub(f'/{ADDED}/.*', '', name) for name in added}):
        merged |= _merge_projection(method, module, flat)
    architecture = dataclasses.replace(model.architecture, tuning=None)
    encoder = traverse_util.unflatten_dict(merged, sep='/')
    return dataclasses.replace(
        model, architecture=architecture, params={**model.params, 'encoder': encoder}
    )


def _merge_projection(method: Tuning, module: str, flat: Mapping[str, Tree]) -> dict[str, Tree]:
    """The merged weights of a projection, by name."""
    prefix = f'{module}/{ADDED}/'
    added = {name.removeprefix(prefix): flat[name] for name in flat if name.startswith(prefix)}
    weights = {
        name: flat[f'{module}/{name}'] for name in ('kernel', 'bias') if f'{module}/{name}' in flat
    }
    role = '/'.join(module.split('/')[-2:])
    return {f'{module}/{name}': leaf for name, leaf in method.merge(role, weights, added).items()}

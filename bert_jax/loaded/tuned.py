"""Parameter-efficient tuning: identifies the base model, and merges added parameters into it."""

import dataclasses
import hashlib
import re
from collections.abc import Mapping

import numpy as np
from flax import traverse_util

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.loaded.record import Base
from bert_jax.models.architecture import Architecture
from bert_jax.models.tuning import ADDED
from bert_jax.models.tuning_method import Tuning
from bert_jax.storage import paths
from bert_jax.types import Params, Tree

# Parts of a model that tuning methods freeze. The prediction head of a decoder may be as large as
# the token embeddings.
FROZEN = ('encoder', 'decoder', 'seq2seq')


def digest(params: Params) -> str:
    """SHA-256 of the names, shapes and arrays of parameters with unstacked layers."""
    hasher = hashlib.sha256()
    for name, array in sorted(tree_paths.flatten(params).items()):
        hasher.update(f'{name} {array.shape} '.encode())
        hasher.update(np.ascontiguousarray(array, np.float32).tobytes())
    return hasher.hexdigest()


def describe_base(path: str, params: Params) -> Base:
    """Return what checkpoints record about the base model at `path`.

    Args:
        path: of the model.
        params: the parts of the model that a tuned model uses and its checkpoints omit.
    """
    return Base(
        path=paths.lasting_name(path),
        absolute_path=str(paths.bring(path).absolute()),
        parts=(*params,),
        sha256=digest(params),
    )


def merged_architecture(architecture: Architecture) -> Architecture:
    """Return the architecture without the parameters that tuning added.

    Raises:
        UserError: the model's own parameters cannot express the added parameters.
    """
    method = architecture.tuning
    if method is None:
        return architecture
    if not method.can_merge:
        raise UserError(
            f'transfer.method={method.method} cannot be merged: the architecture has no place for '
            'the parameters that it adds; use the folder of the run'
        )
    if method.adds_parameters and architecture.sharing and method.per_layer:
        raise UserError(
            'parameters added to each layer cannot be merged into layers that share their '
            'parameters; tune with transfer.per_layer=False'
        )
    return dataclasses.replace(architecture, tuning=None)


def merge(model: LoadedModel) -> LoadedModel:
    """Merge added parameters into those of encoder and decoder, in fp32; outputs stay the same.

    Raises:
        UserError: as `merged_architecture`.
    """
    method, architecture = model.architecture.tuning, merged_architecture(model.architecture)
    if method is None:
        return model
    flat = tree_paths.flatten(model.params)
    added = {name for name in flat if ADDED in name.split('/')}
    merged = {name: array for name, array in flat.items() if name not in added}
    for module in sorted({re.sub(f'/{ADDED}/.*', '', name) for name in added}):
        merged |= _merge_projection(method, module, flat)
    params = traverse_util.unflatten_dict(merged, sep='/')
    return dataclasses.replace(model, architecture=architecture, params=params)


def _merge_projection(method: Tuning, module: str, flat: Mapping[str, Tree]) -> dict[str, Tree]:
    """The merged weights of a projection, by name."""
    prefix = f'{module}/{ADDED}/'
    added = {name.removeprefix(prefix): flat[name] for name in flat if name.startswith(prefix)}
    weights = {
        name: flat[f'{module}/{name}'] for name in ('kernel', 'bias') if f'{module}/{name}' in flat
    }
    role = '/'.join(module.split('/')[-2:])
    return {f'{module}/{name}': leaf for name, leaf in method.merge(role, weights, added).items()}

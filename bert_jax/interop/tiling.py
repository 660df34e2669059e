"""Weights of a wider or deeper model, tiled from those of a narrower or shallower one.

Each axis of an array is repeated around its middle: the old values are in the center of the new
axis, and the values beside them continue periodically. Layer i of L comes from layer ⌊i K / L⌋ of K
(Rae et al. 2021, Gopher, arXiv 2112.11446, appendix G.3.3; AnswerDotAI/ModernBERT, which starts
large from base). Nothing is rescaled: a tiled axis that is summed over multiplies the sums.
"""

import dataclasses
import re

import numpy as np
from flax import traverse_util

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.loaded import loaded_model
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.models.architecture import Architecture

# Sizes that may grow. The width of a head stays, because its features have a meaning in pairs.
SIZES = (
    *('hidden_size', 'num_layers', 'num_heads', 'kv_heads', 'intermediate_size'),
    'embedding_size',
)
_LAYER = re.compile(r'^encoder/layers_(\d+)/')


def grow(model: LoadedModel, architecture: Architecture) -> tuple[LoadedModel, list[str]]:
    """Give a model the sizes of a larger architecture.

    Args:
        model: the smaller model.
        architecture: the larger one; values other than SIZES are not applied.

    Returns:
        The model, and lines for the log; none if the sizes are equal already.

    Raises:
        UserError: a size would shrink, heads would get another width, or a parameter has no place.
    """
    old, values = model.architecture, architecture.values()
    changes = {name: values[name] for name in SIZES if old.values()[name] != values[name]}
    if not changes:
        return model, []
    grown = old.changed(changes)
    _check_sizes(old, grown)
    heads = tuple(name for name in model.heads if name in model.params)
    number = loaded_model.num_labels(model.params)
    source = tree_paths.flatten(model.params)
    expected = loaded_model.abstract_leaves(grown, heads, number)
    layers, tiled, used = _layer_numbers(old, grown), {}, set()
    for name, leaf in expected.items():
        origin = _origin(name, layers, source)
        if origin is None:
            raise UserError(
                f"init_sizes='tile': the smaller model has nothing for the parameter {name}; "
                'choose sizes of a model with the same parts'
            )
        used.add(origin)
        tiled[name] = _tile(source[origin], leaf.value.shape)
    if unused := sorted({*source} - used - _of_layers_left_out(source, layers)):
        raise UserError(
            f"init_sizes='tile': the larger model has no place for "
            f'{loaded_model.enumerate_names(unused)}'
        )
    params = traverse_util.unflatten_dict(tiled, sep='/')
    shown = ', '.join(f'{name} {old.values()[name]} → {value}' for name, value in changes.items())
    line = f'tiled: {shown}; layers from {", ".join(map(str, layers))}'
    return dataclasses.replace(model, architecture=grown, params=params), [line]


def _check_sizes(old: Architecture, new: Architecture) -> None:
    for name in SIZES:
        before, after = old.values()[name], new.values()[name]
        if (before is None) != (after is None) or (before is not None and after < before):
            raise UserError(
                f"init_sizes='tile' makes a model larger, but {name} is {before} in the weights "
                f'and {after} here'
            )
    if old.head_size != new.head_size:
        raise UserError(
            f"init_sizes='tile' keeps the width of heads, which is {old.head_size} in the weights "
            f'and {new.head_size} here; set model.num_heads to '
            f'{new.hidden_size / old.head_size:g}'
        )
    if old.sharing is not None and old.num_layers != new.num_layers:
        raise UserError("init_sizes='tile' cannot add layers to layers that share parameters")


def _layer_numbers(old: Architecture, new: Architecture) -> list[int]:
    """Return the old layer of each new one: ⌊i K / L⌋, or the nearest with the same window."""
    if old.sharing is not None:
        return list(range(old.num_layers))
    numbers = []
    for layer, window in enumerate(new.layer_windows):
        wanted = layer * old.num_layers // new.num_layers
        same = [n for n, own in enumerate(old.layer_windows) if own == window]
        numbers.append(min(same or range(old.num_layers), key=lambda n: (abs(n - wanted), n)))
    return numbers


def _origin(name: str, layers: list[int], source: dict[str, np.ndarray]) -> str | None:
    """Return the name of the old array, of the next layer that has it; None if there is none."""
    match = _LAYER.match(name)
    if match is None:
        return name if name in source else None
    rest = name[match.end() :]
    first = layers[int(match[1])]
    candidates = [f'encoder/layers_{n}/{rest}' for n in range(first, max(layers) + 1)]
    return next((candidate for candidate in candidates if candidate in source), None)


def _of_layers_left_out(source: dict[str, np.ndarray], layers: list[int]) -> set[str]:
    """Return the names in layers that are not used; with other windows a layer may be left out."""
    matches = {name: _LAYER.match(name) for name in source}
    return {name for name, match in matches.items() if match and int(match[1]) not in layers}


def _tile(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array of another shape, each axis repeated around its middle."""
    if array.ndim != len(shape):
        raise UserError(f"init_sizes='tile': arrays of shape {array.shape} cannot become {shape}")
    for axis, size in enumerate(shape):
        old = array.shape[axis]
        array = np.take(array, (np.arange(size) - (size - old) // 2) % old, axis=axis)
    return array

"""Our parameters' names and layouts ↔ those of PyTorch state dicts."""

import collections
import dataclasses
import math
import re
from collections.abc import Mapping

import numpy as np
from flax.core.meta import Partitioned

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.interop import pretrained
from bert_jax.models.architecture import Architecture

_LEAVES = {'kernel': 'weight', 'bias': 'bias', 'scale': 'weight'}


@dataclasses.dataclass(frozen=True)
class Place:
    """Name and layout of one of our parameters in a state dict.

    Attributes:
        name: its name in the state dict.
        shape: shape of the array in the state dict.
        published: shape of our parameter without the padding rows of the vocabulary.
        padding: rows to add at the end of each of our dimensions.
        is_kernel: whether ours is [inputs, outputs] (each possibly several dimensions) and theirs
            is [outputs, inputs].
        part, parts: ours is the part-th of `parts` equal slices of theirs along its first
            dimension.
        groups: number of groups of that dimension; each group has its own slices.
    """

    name: str
    shape: tuple[int, ...]
    published: tuple[int, ...]
    padding: tuple[int, ...]
    is_kernel: bool
    part: int = 0
    parts: int = 1
    groups: int = 1

    def to_ours(self, array: np.ndarray) -> np.ndarray:
        """Convert an array of a state dict to our parameter, float32."""
        array = np.asarray(array, np.float32)
        rest = array.shape[1:]
        array = array.reshape(self.groups, self.parts, -1, *rest)[:, self.part].reshape(-1, *rest)
        array = (array.T if self.is_kernel else array).reshape(self.published)
        return np.ascontiguousarray(np.pad(array, [(0, rows) for rows in self.padding]))

    def to_theirs(self, array: np.ndarray) -> np.ndarray:
        """Convert our parameter to its slice of an array of a state dict, float32."""
        array = np.asarray(array, np.float32)[tuple(slice(size) for size in self.published)]
        shape = (self.shape[0] // self.parts, *self.shape[1:])
        array = array.reshape(shape[::-1]).T if self.is_kernel else array.reshape(shape)
        return np.ascontiguousarray(array)


def places(
    table: Mapping[str, str], architecture: Architecture, heads: tuple[str, ...], num_labels: int
) -> dict[str, Place]:
    """The place of every parameter of an architecture with heads, by our name.

    Args:
        table: our module or parameter → theirs. '#' stands for the number of a layer, '#group' and
            '#member' for those of its group and of the layer in it; 'name|i/n'
            for slice i of n equal ones, 'name|i/n by head' for slice i of n in each head.

    Raises:
        UserError: a parameter is not in the table.
    """
    abstract = pretrained.abstract(architecture, heads, num_labels)
    boxed = tree_paths.flatten(abstract, pretrained.is_boxed)
    return {ours: _place(table, ours, box, architecture) for ours, box in boxed.items()}


def to_ours(places: Mapping[str, Place], state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Our parameters by name, for all places that the state dict has."""
    found = {ours: place for ours, place in places.items() if place.name in state}
    return {ours: place.to_ours(state[place.name]) for ours, place in found.items()}


def to_theirs(
    places: Mapping[str, Place], params: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The state dict of our parameters at `places`."""
    parts: dict[str, dict[int, np.ndarray]] = collections.defaultdict(dict)
    for ours, place in places.items():
        array = place.to_theirs(params[ours])
        parts[place.name][place.part] = array.reshape(place.groups, -1, *array.shape[1:])
    joined = {
        name: np.concatenate([own[i] for i in sorted(own)], axis=1) for name, own in parts.items()
    }
    return {name: array.reshape(-1, *array.shape[2:]) for name, array in joined.items()}


def _place(
    table: Mapping[str, str], ours: str, box: Partitioned, architecture: Architecture
) -> Place:
    names, full = box.names, box.value.shape
    published = tuple(
        architecture.vocab_size if name == 'vocab' else size
        for name, size in zip(names, full, strict=True)
    )
    is_kernel = ours.endswith('/kernel')
    if is_kernel and names[0] is None:  # of a convolution: positions are first here, last there
        shape = published[::-1]
    elif is_kernel:
        num_inputs = 2 if names[:2] == ('heads', 'head_dim') else 1
        shape = (math.prod(published[num_inputs:]), math.prod(published[:num_inputs]))
    elif ours.endswith('/bias'):
        shape = (math.prod(published),)
    else:
        shape = published
    name, _, share = _their_name(table, ours, architecture.group_layers).partition('|')
    share, _, by_head = share.partition(' by ')
    part, parts = map(int, share.split('/')) if share else (0, 1)
    groups = architecture.num_heads if by_head else 1
    shape = (shape[0] * parts, *shape[1:])
    padding = tuple(a - b for a, b in zip(full, published, strict=True))
    return Place(name, shape, published, padding, is_kernel, part, parts, groups)


def _their_name(table: Mapping[str, str], ours: str, group_layers: int) -> str:
    found = re.search(r'layers_(\d+)', ours)
    number = int(found[1]) if found else 0
    pattern = re.sub(r'layers_\d+', 'layers_#', ours)
    module, _, leaf = pattern.rpartition('/')
    if pattern in table:
        name = table[pattern]
    elif module in table:
        name, bar, share = table[module].partition('|')
        name = f'{name}.{_LEAVES[leaf]}{bar}{share}'
    else:
        raise UserError(f'the parameter {ours} has no published name in this family')
    group, member = divmod(number, group_layers)
    name = name.replace('#group', str(group)).replace('#member', str(member))
    return name.replace('#', str(number))

"""Between our parameter names and layouts and those of PyTorch's state dicts."""

import collections
import dataclasses
import math
import re
from collections.abc import Iterable, Mapping

import numpy as np

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.interop import pretrained
from bert_jax.models.architecture import Architecture

_LEAVES = {'kernel': 'weight', 'bias': 'bias', 'scale': 'weight'}


@dataclasses.dataclass(frozen=True)
class Place:
    """Where one of our parameters is found in a state dict, and in which form.

    name: its name there.
    shape: its shape there.
    published: our parameter's shape, without the padding rows of the vocabulary.
    padding: for each of our dimensions, the rows to add.
    is_kernel: ours is [inputs, outputs] (either may be several dimensions), theirs
        [outputs, inputs].
    part, parts: ours is the part-th of so many equal ones along their first dimension.
    groups: that dimension has so many groups, each with its own parts.
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
        """An array of a state dict as our parameter, fp32."""
        array = np.asarray(array, np.float32)
        rest = array.shape[1:]
        array = array.reshape(self.groups, self.parts, -1, *rest)[:, self.part].reshape(-1, *rest)
        array = (array.T if self.is_kernel else array).reshape(self.published)
        return np.ascontiguousarray(np.pad(array, [(0, rows) for rows in self.padding]))

    def to_theirs(self, array: np.ndarray) -> np.ndarray:
        """Our parameter as a state dict has it (if `parts` is 1, else its part of that), fp32."""
        array = np.asarray(array, np.float32)[tuple(slice(size) for size in self.published)]
        shape = (self.shape[0] // self.parts, *self.shape[1:])
        array = array.reshape(shape[::-1]).T if self.is_kernel else array.reshape(shape)
        return np.ascontiguousarray(array)


def places(
    table: Mapping[str, str], architecture: Architecture, heads: Iterable[str], num_labels: int
) -> dict[str, Place]:
    """The place of every parameter of an architecture with heads, by our name.

    table: our module or parameter → theirs, '#' for the number of a layer, 'name|i/n' for the i-th
    of n equal parts ('i/n by head': of each head's). Raises UserError if a parameter is not in it.
    """
    abstract = pretrained.abstract(architecture, heads, num_labels)
    boxed = tree_paths.flatten(abstract, pretrained.is_boxed)
    return {ours: _place(table, ours, box, architecture) for ours, box in boxed.items()}


def to_ours(places: Mapping[str, Place], found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Our parameters by name, as far as the state dict `found` has them."""
    return {
        ours: place.to_ours(found[place.name])
        for ours, place in places.items()
        if place.name in found
    }


def to_theirs(
    places: Mapping[str, Place], params: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """A state dict of the parameters that are in `places`."""
    parts = collections.defaultdict(dict)
    for ours, place in places.items():
        array = place.to_theirs(params[ours])
        array = array.reshape(place.groups, -1, *array.shape[1:])
        parts[place.name][place.part] = array
    joined = {
        name: np.concatenate([own[i] for i in sorted(own)], axis=1) for name, own in parts.items()
    }
    return {name: array.reshape(-1, *array.shape[2:]) for name, array in joined.items()}


def _place(table, ours: str, box, architecture: Architecture) -> Place:
    names, full = box.names, box.value.shape
    published = tuple(
        architecture.vocab_size if name == 'vocab' else size
        for name, size in zip(names, full, strict=True)
    )
    is_kernel = ours.endswith('/kernel')
    if is_kernel and names[0] is None:  # of a convolution: positions first with us, last there
        shape = published[::-1]
    elif is_kernel:
        num_inputs = 2 if names[:2] == ('heads', 'head_dim') else 1
        shape = (math.prod(published[num_inputs:]), math.prod(published[:num_inputs]))
    elif ours.endswith('/bias'):
        shape = (math.prod(published),)
    else:
        shape = published
    name, _, share = _their_name(table, ours).partition('|')
    share, _, by_head = share.partition(' by ')
    part, parts = map(int, share.split('/')) if share else (0, 1)
    groups = architecture.num_heads if by_head else 1
    shape = (shape[0] * parts, *shape[1:])
    padding = tuple(a - b for a, b in zip(full, published, strict=True))
    return Place(name, shape, published, padding, is_kernel, part, parts, groups)


def _their_name(table: Mapping[str, str], ours: str) -> str:
    number = re.search(r'layers_(\d+)', ours)
    pattern = re.sub(r'layers_\d+', 'layers_#', ours)
    module, _, leaf = pattern.rpartition('/')
    if pattern in table:
        name = table[pattern]
    elif module in table:
        name, bar, share = table[module].partition('|')
        name = f'{name}.{_LEAVES[leaf]}{bar}{share}'
    else:
        raise UserError(f'the parameter {ours} has no published name in this family')
    return name.replace('#', number[1]) if number else name

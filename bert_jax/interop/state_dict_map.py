"""Converts names and layouts of our parameters to PyTorch state dicts and back."""

import collections
import dataclasses
import math
import re
from collections.abc import Mapping

import jax
import numpy as np
from flax.core.meta import Partitioned

from bert_jax.errors import UserError
from bert_jax.loaded import loaded_model
from bert_jax.models.architecture import Architecture
from bert_jax.models.architecture_parts import SharedLayers

_LEAVES = {'kernel': 'weight', 'bias': 'bias', 'scale': 'weight'}
_BLOCK = 64  # rows that `_transposed` copies together


@dataclasses.dataclass(frozen=True)
class Place:
    """Name and layout of one of our parameters in a state dict.

    Attributes:
        name: name of the array in the state dict.
        shape: shape of the array in the state dict.
        published: shape of our parameter without the padding rows of the vocabulary.
        padding: rows to add at the end of each dimension of our parameter.
        is_kernel: whether our parameter is [inputs, outputs] (each possibly several dimensions) and
            the array is [outputs, inputs].
        part, parts: our parameter is slice `part` of `parts` equal slices of the array along its
            first dimension.
        groups: number of groups of the first dimension; each group is sliced separately.
        is_transposed: whether the array in the state dict is transposed, as the weights of Conv1D
            in GPT-2 are; `shape` is that of the transposed array.
        num_heads: number of heads, if the last dimension of the array in the state dict is divided
            into heads and their features; None if it is not.
        is_row: whether the array in the state dict has one more dimension, of size 1, in front.
        is_swapped: whether the halves of the first dimension, gate and value, are exchanged.
        paired_heads: number of heads whose feature 2k forms a rotated pair with 2k + 1, as in
            RoFormer, and here with k + K/2; None for other arrays.
    """

    name: str
    shape: tuple[int, ...]
    published: tuple[int, ...]
    padding: tuple[int, ...]
    is_kernel: bool
    part: int = 0
    parts: int = 1
    groups: int = 1
    is_transposed: bool = False
    num_heads: int | None = None
    is_row: bool = False
    is_swapped: bool = False
    paired_heads: int | None = None

    @property
    def their_shape(self) -> tuple[int, ...]:
        """The shape of the array in the state dict."""
        shape = (1, *self._matrix_shape) if self.is_row else self._matrix_shape
        return (
            shape
            if self.num_heads is None
            else (*shape[:-1], self.num_heads, shape[-1] // self.num_heads)
        )

    @property
    def _matrix_shape(self) -> tuple[int, ...]:
        """The shape of the array with heads and their features as one dimension."""
        return self.shape[::-1] if self.is_transposed else self.shape

    def to_ours(self, array: np.ndarray) -> np.ndarray:
        """Convert an array of a state dict to our parameter, float32."""
        array = np.asarray(array, np.float32).reshape(self._matrix_shape)
        array = array.T if self.is_transposed else array
        rest = array.shape[1:]
        array = array.reshape(self.groups, self.parts, -1, *rest)[:, self.part].reshape(-1, *rest)
        array = self._reorder(array, is_theirs=True)
        array = (_transposed(array) if self.is_kernel else array).reshape(self.published)
        if not any(self.padding):
            return array if self.is_kernel else np.array(array)
        return np.pad(array, [(0, rows) for rows in self.padding])

    def to_theirs(self, array: np.ndarray) -> np.ndarray:
        """Convert our parameter to its slice of an array of a state dict, float32."""
        array = np.asarray(array, np.float32)[tuple(slice(size) for size in self.published)]
        shape = (self.shape[0] // self.parts, *self.shape[1:])
        array = array.reshape(shape[::-1]).T if self.is_kernel else array.reshape(shape)
        return np.ascontiguousarray(self._reorder(array, is_theirs=False))

    def _reorder(self, array: np.ndarray, is_theirs: bool) -> np.ndarray:
        """Convert the order of the first dimension from theirs to ours, or back."""
        if self.is_swapped:
            array = np.concatenate(np.split(array, 2)[::-1])
        if self.paired_heads is None:
            return array
        half = len(array) // self.paired_heads // 2
        pairs = (half, 2) if is_theirs else (2, half)
        features = array.reshape(self.paired_heads, *pairs, -1)
        return features.swapaxes(1, 2).reshape(array.shape)


def _transposed(array: np.ndarray) -> np.ndarray:
    """A transposed copy, in blocks that stay in the processor's cache: a quarter of the time."""
    if array.ndim != 2:
        return np.array(array.T, order='C')
    copy = np.empty(array.shape[::-1], array.dtype)
    for start in range(0, len(array), _BLOCK):
        copy[:, start : start + _BLOCK] = array[start : start + _BLOCK].T
    return copy


def places(
    table: Mapping[str, str], architecture: Architecture, heads: tuple[str, ...], num_labels: int
) -> dict[str, Place]:
    """The place of every parameter of an architecture with heads, by our name.

    Args:
        table: our module or parameter → theirs. '#' stands for the number of the layer, '#group'
            for the number of its group, '#member' for its number in the group. 'name|i/n' is slice
            i of n equal slices, 'name|i/n by head' is slice i of n in each head, and
            'name|i/n transposed' is slice i of n of the transposed array; a further 'with heads'
            says that the last dimension of the array is divided into heads and their features.
            'name|0/1 as row' has one more dimension, of size 1, in front; the halves of
            'name|0/1 swapped' are exchanged, and 'name|i/n in pairs' or 'name|i/n by head in pairs'
            has another order of the features of each head (see `Place`).

    Raises:
        UserError: a parameter is not in the table.
    """
    boxes = loaded_model.abstract_leaves(architecture, heads, num_labels)
    return {ours: _place(table, ours, box, architecture) for ours, box in boxes.items()}


def to_ours(places: Mapping[str, Place], state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Our parameters by name, for all places that the state dict has."""
    return {
        ours: place.to_ours(state[place.name])
        for ours, place in places.items()
        if place.name in state
    }


def to_theirs(
    places: Mapping[str, Place], params: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The state dict of our parameters at `places`."""
    slices: dict[str, dict[int, np.ndarray]] = collections.defaultdict(dict)
    for ours, place in places.items():
        array = place.to_theirs(params[ours])
        slices[place.name][place.part] = array.reshape(place.groups, -1, *array.shape[1:])
    any_place = {place.name: place for place in places.values()}
    state = {}
    for name, parts in slices.items():
        joined = np.concatenate([parts[i] for i in sorted(parts)], axis=1)
        joined = joined.reshape(-1, *joined.shape[2:])
        place = any_place[name]
        joined = np.ascontiguousarray(joined.T) if place.is_transposed else joined
        state[name] = joined.reshape(place.their_shape)
    return state


def join(
    state: Mapping[str, np.ndarray], joined: Mapping[str, tuple[str, ...]]
) -> dict[str, np.ndarray]:
    """Concatenate arrays of a state dict that are one of our parameters.

    Args:
        joined: end of the name of the whole → ends of the names of its parts. Wholes with a missing
            part are not made.
    """
    state = dict(state)
    for whole, parts in joined.items():
        first = parts[0]
        for prefix in [name.removesuffix(first) for name in state if name.endswith(first)]:
            names = [prefix + part for part in parts]
            if {*names} <= state.keys():
                state[prefix + whole] = np.concatenate([state.pop(name) for name in names])
    return state


def split(
    state: Mapping[str, np.ndarray], joined: Mapping[str, tuple[str, ...]]
) -> dict[str, np.ndarray]:
    """The inverse of `join`."""
    state = dict(state)
    for whole, parts in joined.items():
        for prefix in [name.removesuffix(whole) for name in state if name.endswith(whole)]:
            arrays = np.split(state.pop(prefix + whole), len(parts))
            names = (prefix + part for part in parts)
            state |= dict(zip(names, map(np.ascontiguousarray, arrays), strict=True))
    return state


def _place(
    table: Mapping[str, str], ours: str, box: Partitioned[jax.Array], architecture: Architecture
) -> Place:
    names, full = box.names, box.value.shape
    published = tuple(
        architecture.vocab_size if name == 'vocab' else size
        for name, size in zip(names, full, strict=True)
    )
    is_kernel = ours.endswith('/kernel')
    if is_kernel and names[0] is None:  # a convolution: our first axis, positions, is their last
        shape = published[::-1]
    elif is_kernel:
        num_inputs = 2 if names[:2] == ('heads', 'head_dim') else 1
        shape = (math.prod(published[num_inputs:]), math.prod(published[:num_inputs]))
    elif ours.endswith('/bias'):
        shape = (math.prod(published),)
    else:
        shape = published
    # 'NAME|PART/PARTS OPTION OPTION …': our array is a part of theirs, such as the keys in a joined
    # kernel of queries, keys and values; the options say how the parts lie in it.
    name, _, fraction = _their_name(table, ours, architecture.sharing).partition('|')
    fraction, *options = fraction.split(' ')
    part, parts = map(int, fraction.split('/')) if fraction else (0, 1)
    groups = architecture.num_heads if options[:2] == ['by', 'head'] else 1
    paired_heads = architecture.num_heads if options[-2:] == ['in', 'pairs'] else None
    num_heads = architecture.num_heads if options[-2:] == ['with', 'heads'] else None
    shape = (shape[0] * parts, *shape[1:])
    padding = tuple(a - b for a, b in zip(full, published, strict=True))
    layout = (part, parts, groups, 'transposed' in options, num_heads, 'row' in options)
    order = ('swapped' in options, paired_heads)
    return Place(name, shape, published, padding, is_kernel, *layout, *order)


def _their_name(table: Mapping[str, str], ours: str, sharing: SharedLayers | None) -> str:
    match = re.search(r'layers_(\d+)', ours)
    number = int(match[1]) if match else 0
    pattern = re.sub(r'layers_\d+', 'layers_#', ours)
    module, _, leaf = pattern.rpartition('/')
    if pattern in table:
        name = table[pattern]
    elif module in table:
        name, bar, fraction = table[module].partition('|')
        name = f'{name}.{_LEAVES[leaf]}{bar}{fraction}'
    else:
        raise UserError(f'{ours} has no counterpart in the published weights of this family')
    group, member = divmod(number, sharing.layers_per_group if sharing else 1)
    name = name.replace('#group', str(group)).replace('#member', str(member))
    return name.replace('#', str(number))

"""Between our parameter names and layouts and those of PyTorch's state dicts."""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping

import numpy as np

from bert_jax.errors import UserError
from bert_jax.interop import pretrained
from bert_jax.models.architecture import Architecture

_LEAVES = {'kernel': 'weight', 'bias': 'bias', 'scale': 'weight'}


@dataclasses.dataclass(frozen=True)
class Place:
    """Where one of our parameters is found in a state dict, and in which form.

    name: its name there.
    shape: its shape there.
    published: its shape with us, without the padding rows of the vocabulary.
    padding: for each of our dimensions, the rows to add.
    is_kernel: ours is [inputs, outputs] (either may be several dimensions), theirs
        [outputs, inputs].
    """

    name: str
    shape: tuple[int, ...]
    published: tuple[int, ...]
    padding: tuple[int, ...]
    is_kernel: bool

    def to_ours(self, array: np.ndarray) -> np.ndarray:
        """An array of a state dict as our parameter, fp32."""
        array = np.asarray(array, np.float32)
        array = (array.T if self.is_kernel else array).reshape(self.published)
        return np.ascontiguousarray(np.pad(array, [(0, rows) for rows in self.padding]))

    def to_theirs(self, array: np.ndarray) -> np.ndarray:
        """Our parameter as a state dict has it, fp32."""
        array = np.asarray(array, np.float32)[tuple(slice(size) for size in self.published)]
        array = array.reshape(self.shape[::-1]).T if self.is_kernel else array.reshape(self.shape)
        return np.ascontiguousarray(array)


def places(
    table: Mapping[str, str], architecture: Architecture, heads: Iterable[str]
) -> dict[str, Place]:
    """The place of every parameter of an architecture with heads, by our name.

    table: our module or parameter → theirs, '#' for the number of a layer. Raises UserError if a
    parameter is not in it.
    """
    boxed = pretrained.by_name(pretrained.abstract(architecture, heads))
    return {ours: _place(table, ours, box, architecture) for ours, box in boxed.items()}


def _place(table, ours: str, box, architecture: Architecture) -> Place:
    names, full = box.names, box.value.shape
    published = tuple(
        architecture.vocab_size if name == 'vocab' else size
        for name, size in zip(names, full, strict=True)
    )
    is_kernel = ours.endswith('/kernel')
    if is_kernel:
        num_inputs = 2 if names[:2] == ('heads', 'head_dim') else 1
        shape = (math.prod(published[num_inputs:]), math.prod(published[:num_inputs]))
    elif ours.endswith('/bias'):
        shape = (math.prod(published),)
    else:
        shape = published
    padding = tuple(a - b for a, b in zip(full, published, strict=True))
    return Place(_their_name(table, ours), shape, published, padding, is_kernel)


def _their_name(table: Mapping[str, str], ours: str) -> str:
    number = re.search(r'layers_(\d+)', ours)
    pattern = re.sub(r'layers_\d+', 'layers_#', ours)
    module, _, leaf = pattern.rpartition('/')
    if pattern in table:
        name = table[pattern]
    elif module in table:
        name = f'{table[module]}.{_LEAVES[leaf]}'
    else:
        raise UserError(f'the parameter {ours} has no published name in this family')
    return name.replace('#', number[1]) if number else name

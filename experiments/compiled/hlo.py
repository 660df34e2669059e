"""Arrays and collectives of a compiled program, read from the text of its HLO."""

import math
import re
from typing import NamedTuple

import jax

_BYTES = {'pred': 1, 'bf16': 2, 'f16': 2}  # other dtypes end in their number of bits
_ARRAY = re.compile(r'\b(pred|bf16|f16|f32|f64|s8|s16|s32|s64|u8|u16|u32|u64)\[([\d,]*)\]')
_KINDS = 'all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute'
_COLLECTIVE = re.compile(rf'= (.*?) ({_KINDS})(-start)?\(')


class LocalArray(NamedTuple):
    """The part of an array that one device holds: XLA's name of the dtype, and the shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        width = _BYTES.get(self.dtype) or int(re.sub(r'\D', '', self.dtype)) // 8
        return width * math.prod(self.shape)


class Collective(NamedTuple):
    """A collective operation: XLA's name of its kind, and the arrays that each device receives."""

    kind: str
    arrays: tuple[LocalArray, ...]

    @property
    def bytes(self) -> int:
        return sum(array.bytes for array in self.arrays)


def collectives(compiled: jax.stages.Compiled) -> list[Collective]:
    """Return every collective of a compiled program; one inside a loop counts once."""
    return [
        Collective(kind, tuple(_array(*found) for found in _ARRAY.findall(result)))
        for result, kind, _ in _COLLECTIVE.findall(compiled.as_text())
    ]


def _array(dtype: str, shape: str) -> LocalArray:
    return LocalArray(dtype, tuple(map(int, filter(None, shape.split(',')))))

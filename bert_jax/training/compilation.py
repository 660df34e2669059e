"""What a compiled program needs and does: memory on each device, and what devices tell each other.

Read from XLA's own analysis and text, so that it holds for the program that runs.
"""

import concurrent.futures
import itertools
import math
import re
from collections.abc import Callable
from typing import NamedTuple

import jax

from bert_jax.training import allocator, runtime
from bert_jax.training.step import TrainStep

_BYTES = {'pred': 1, 'bf16': 2, 'f16': 2}  # the others end in their bits
_ARRAY = re.compile(r'\b(pred|bf16|f16|f32|f64|s8|s16|s32|s64|u8|u16|u32|u64)\[([\d,]*)\]')
_KINDS = 'all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute'
_COLLECTIVE = re.compile(rf'= (.*?) ({_KINDS})(-start)?\(')


class Array(NamedTuple):
    """One array of a program, as one device has it."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        width = _BYTES.get(self.dtype) or int(re.sub(r'\D', '', self.dtype)) // 8
        return width * math.prod(self.shape)

    def __str__(self) -> str:
        return f'{self.dtype}[{",".join(map(str, self.shape))}]'


class Collective(NamedTuple):
    """An exchange between devices: its kind in XLA's words and what each device gets from it."""

    kind: str
    arrays: tuple[Array, ...]

    @property
    def bytes(self) -> int:
        return sum(array.bytes for array in self.arrays)


class CompiledStep:
    """A TrainStep of two compiled programs (jax.stages.Compiled): `step(state, batch[, run_key]) →
    (state, metrics)`, the old state's memory taken for the new one.
    """

    def __init__(self, gradients, update):
        self.gradients, self.update = gradients, update
        self._has_run = False

    def __call__(self, state, batch, *run_key):
        measured = self.gradients(state.params, state.step, batch, *run_key)
        state, metrics = self.update(state, *measured)
        if not self._has_run:
            del measured
            # What the first step made and keeps lies in the midst of what it freed, so that the
            # next one's temporaries (770 MiB at base) find no room there.
            allocator.give_back_freed_memory()
            self._has_run = True
        return state, metrics

    def as_text(self) -> str:
        return self.gradients.as_text() + self.update.as_text()

    def temporary_bytes(self) -> int | None:
        """What one device needs beside state and batch: the gradients, and the temporaries of the
        program that has more; None where XLA does not say."""
        gradients, update = self.gradients.memory_analysis(), self.update.memory_analysis()
        if gradients is None or update is None:
            return None
        temporaries = max(gradients.temp_size_in_bytes, update.temp_size_in_bytes)
        return gradients.output_size_in_bytes + temporaries


def compile_step(step: TrainStep, state, batch, *run_key) -> CompiledStep:
    """A step compiled for arrays like these, abstract or not; the new state lies where the old one
    lay."""
    return start_compiling(step, state, batch, *run_key)()


def start_compiling(step: TrainStep, state, batch, *run_key) -> Callable[[], CompiledStep]:
    """Begins to compile each half in another thread; returns what waits for the end of it and gives
    what compile_step gives. The step is traced before this returns, in the mesh of this thread."""
    where, trained = _shardings(state), step.trained(state.params)
    options = runtime.compiler_options()
    threads = concurrent.futures.ThreadPoolExecutor(2)

    gradients = jax.jit(
        step.gradients,
        out_shardings=(*[where.step] * 3, _shardings(trained)),
        compiler_options=options,
    ).lower(state.params, state.step, batch, *run_key)
    compiling_gradients = threads.submit(gradients.compile)

    *measured, _ = gradients.out_info
    update = jax.jit(
        step.update, donate_argnums=0, out_shardings=(where, None), compiler_options=options
    ).lower(state, *measured, trained)
    compiling_update = threads.submit(update.compile)
    threads.shutdown(wait=False)

    def wait():
        compiled = CompiledStep(compiling_gradients.result(), compiling_update.result())
        allocator.give_back_freed_memory()
        return compiled

    return wait


def _shardings(tree):
    return jax.tree.map(lambda leaf: leaf.sharding, tree)


def arrays(text: str) -> list[Array]:
    """All arrays named in a piece of HLO, in its order."""
    return [_array(*found) for found in _ARRAY.findall(text)]


def _array(dtype: str, shape: str) -> Array:
    return Array(dtype, tuple(map(int, filter(None, shape.split(',')))))


def collectives(compiled) -> list[Collective]:
    """Every exchange in a compiled program, those inside loops once."""
    found = _COLLECTIVE.findall(compiled.as_text())
    return [Collective(kind, tuple(arrays(result))) for result, kind, _ in found]


def local_bytes(tree) -> int:
    """Bytes of a tree of arrays, abstract or not, that one device holds."""
    return sum(
        leaf.dtype.itemsize * math.prod(leaf.sharding.shard_shape(leaf.shape))
        for leaf in jax.tree.leaves(tree)
    )


def largest_array(compiled, other_than: set[tuple[int, ...]]) -> Array | None:
    """The largest array of a compiled program that has none of these shapes."""
    found = set(_ARRAY.findall(compiled.as_text()))  # of base 140, named 47,000 times
    return max(
        (array for array in itertools.starmap(_array, found) if array.shape not in other_than),
        key=lambda array: array.bytes,
        default=None,
    )


def local_shapes(tree) -> set[tuple[int, ...]]:
    """Shapes of the parts of the arrays of a tree that one device holds, and transposed."""
    shapes = {leaf.sharding.shard_shape(leaf.shape) for leaf in jax.tree.leaves(tree)}
    return shapes | {shape[::-1] for shape in shapes}

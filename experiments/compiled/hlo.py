"""Collectives, kernels and the cost of operations, read from the text of a compiled program."""

import collections
import functools
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

_BYTES = {'pred': 1, 'bf16': 2, 'f16': 2}  # names of other dtypes end in their number of bits
_ARRAY = re.compile(r'\b(pred|bf16|f16|f32|f64|s8|s16|s32|s64|u8|u16|u32|u64)\[([\d,]*)\]')
_KINDS = 'all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute'
_COLLECTIVE = re.compile(rf'= (.*?) ({_KINDS})(-start)?\(')
_HEADER = re.compile(r'^(ENTRY )?%?([\w.-]+) .*\{$')
_CALLED = re.compile(r'(\w+)=%?([\w.-]+)')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_TARGET = re.compile(r'custom_call_target="([^"]+)"')
_KERNELS = ('tpu_custom_call', '__cudnn', '__cublas')  # Pallas on TPU, cuDNN, cuBLAS
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_PATH = re.compile(r'op_name="([^"]*)"')
_SOURCE = re.compile(r'source_file="([^"]*)" source_line=(\d+)')
_FRAME = re.compile(r'stack_frame_id=(\d+)')


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


class Operation(NamedTuple):
    """The instructions of a program with the same name and source line.

    Attributes:
        path: JAX's name of the operation; numbers of layers are replaced by *.
        source: 'FILE:LINE', '' if unknown.
        cycles: the compiler's estimate for all instructions together, on TPU.
        number: number of instructions.
    """

    path: str
    source: str
    cycles: int
    number: int


def collectives(text: str) -> list[Collective]:
    """Return every collective that a program runs, in a loop once for each iteration."""
    executed = []
    for line, times in _instructions(text):
        if match := _COLLECTIVE.search(line):
            result, kind, is_start = match.groups()
            arrays = tuple(_array(*array) for array in _ARRAY.findall(result))
            if is_start and kind == 'all-gather':  # the result includes the operands
                arrays = arrays[len(arrays) // 2 :]
            elif is_start and kind == 'collective-permute':
                arrays = arrays[1:2]
            executed += [Collective(kind, arrays)] * times
    return executed


def kernels(text: str) -> dict[str, int]:
    """Return how often a program calls each kernel that XLA did not generate."""
    counts = collections.Counter[str]()
    for line, times in _instructions(text):
        if (match := _TARGET.search(line)) and match[1].startswith(_KERNELS):
            counts[match[1]] += times
    return dict(sorted(counts.items()))


def operations(text: str) -> list[Operation]:
    """Return the operations whose cost the compiler estimated, the most expensive first."""
    cycles, numbers = collections.Counter[tuple[str, str]](), collections.Counter()
    sources = _frame_sources(text)
    for line, times in _instructions(text):
        if match := _CYCLES.search(line):
            path, source, frame = (regex.search(line) for regex in (_PATH, _SOURCE, _FRAME))
            name = re.sub(r'(?<=_)\d+', '*', path[1] if path else line.split()[0])
            if source:
                place = f'{source[1]}:{source[2]}'
            else:
                place = sources.get(frame[1], '') if frame else ''
            key = name, re.sub(r'.*/(?=bert_jax/|site-packages/)', '', place)
            cycles[key] += int(match[1]) * times
            numbers[key] += times
    return [Operation(*key, number, numbers[key]) for key, number in cycles.most_common()]


def _instructions(text: str) -> Iterator[tuple[str, int]]:
    """Yield the instructions that a program runs with the number of times it runs each.

    Instructions within fusions are included.
    """
    lines, callers = collections.defaultdict(list), collections.defaultdict(list)
    computation, entry = '', ''
    for line in text.splitlines():
        if header := _HEADER.match(line):
            computation = header[2]
            entry = computation if header[1] else entry
        elif ' = ' in line:
            lines[computation].append(line)
            trips = _TRIPS.search(line)
            for role, callee in _CALLED.findall(line):
                if role in ('body', 'calls', 'to_apply'):
                    times = int(trips[1]) if trips and role == 'body' else 1
                    callers[callee].append((computation, times))

    @functools.cache
    def count(computation: str) -> int:
        if computation == entry:
            return 1
        return sum(count(caller) * times for caller, times in callers[computation])

    for computation, instructions in lines.items():
        if times := count(computation):
            yield from ((line, times) for line in instructions)


def _frame_sources(text: str) -> dict[str, str]:
    """Map numbers of stack frames to 'FILE:LINE', from the tables above the program."""
    files = dict(re.findall(r'^(\d+) "(/[^"]*)"$', text, re.MULTILINE))
    places = {
        number: f'{files.get(file, "")}:{line}'
        for number, file, line in re.findall(
            r'^(\d+) \{file_name_id=(\d+) .*?\bline=(\d+)', text, re.MULTILINE
        )
    }
    frames = re.findall(r'^(\d+) \{file_location_id=(\d+)', text, re.MULTILINE)
    return {number: places.get(place, '') for number, place in frames}


def _array(dtype: str, shape: str) -> LocalArray:
    return LocalArray(dtype, tuple(map(int, filter(None, shape.split(',')))))

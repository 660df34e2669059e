"""Collectives, kernels and the cost of operations, read from the text of a compiled program."""

import collections
import functools
import math
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_BYTES = {'pred': 1, 'bf16': 2, 'f16': 2}  # names of other dtypes end in their number of bits
_ARRAY = re.compile(r'\b(pred|bf16|f16|f32|f64|s8|s16|s32|s64|u8|u16|u32|u64)\[([\d,]*)\]')
_KINDS = 'all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute'
_COLLECTIVE = re.compile(rf'= (.*?) ({_KINDS})(-start)?\(')
_HEADER = re.compile(r'^(ENTRY )?%?([\w.-]+) .*\{$')
_CALLED = re.compile(r'(\w+)=%?([\w.-]+)')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_TARGET = re.compile(r'custom_call_target="([^"]+)"')
# Pallas on TPU and on GPU, cuDNN, cuBLAS.
_KERNELS = ('tpu_custom_call', '__gpu$xla.gpu.triton', '__cudnn', '__cublas')
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_PATH = re.compile(r'op_name="([^"]*)"')
_SOURCE = re.compile(r'source_file="([^"]*)" source_line=(\d+)')
_INSTRUCTION = re.compile(
    r'\s+(?:ROOT )?%?(?P<name>[\w.-]+) = (?P<type>.*?) (?P<operation>[\w-]+)\((?P<rest>.*)'
)
_OPERAND = re.compile(r'%([\w.-]+)(?=[,)])')
_NO_KERNEL = (
    'parameter',
    'constant',
    'get-tuple-element',
    'tuple',
    'bitcast',
    'while',
    'after-all',
)
_TAKES, _SCRATCH = {'slice', 'dynamic-slice', 'gather'}, {'s8', 'u8'}
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


def bytes_moved(text: str) -> int:
    """Return the bytes of the operands and results of all kernels of a GPU program.

    Each kernel reads its operands from memory and writes its results there, so this is what a step
    moves if no cache helps. Of an operand that is sliced or gathered from, what is taken counts.
    Scratch memory of cuBLAS and cuDNN, which is bytes, does not count.
    """
    types, parts = _types(text), _parts_read(text)
    return sum(times * _bytes_of_call(call, types, parts) for call, times in _kernel_calls(text))


def _bytes_of_call(
    call: re.Match[str], types: Mapping[str, str], parts: Mapping[tuple[str, int], str]
) -> int:
    called = re.search(r'calls=%?([\w.-]+)', call['rest'])
    fusion = called[1] if called else ''
    read = (
        parts.get((fusion, number), types.get(name, ''))
        for number, name in enumerate(_operands(call))
    )
    arrays = _ARRAY.findall(' '.join([call['type'], *read]))
    return sum(_array(*array).bytes for array in arrays if array[0] not in _SCRATCH)


def _parts_read(text: str) -> dict[tuple[str, int], str]:
    """Map (fusion, number of the operand) to the types that slices and gathers of it return."""
    computation, parameters = '', dict[str, int]()
    users = collections.defaultdict[tuple[str, int], list[str]](list)
    for line in text.splitlines():
        if header := _HEADER.match(line):
            computation, parameters = header[2], {}
        elif match := _INSTRUCTION.match(line):
            if match['operation'] == 'parameter':
                parameters[match['name']] = int(match['rest'].partition(')')[0])
            for place, name in enumerate(_operands(match)):
                if name in parameters:
                    is_part = place == 0 and match['operation'] in _TAKES
                    users[computation, parameters[name]].append(match['type'] if is_part else '')
    return {key: ' '.join(types) for key, types in users.items() if all(types)}


def _operands(call: re.Match[str]) -> list[str]:
    return _OPERAND.findall(call['rest'].partition(')')[0] + ')')


def float32_arrays(text: str, least: int) -> dict[str, int]:
    """Return the number of float32 arrays of at least this many numbers that kernels pass on.

    Args:
        text: the program.
        least: numbers of the smallest array that counts, such as rows · length · features.

    Returns:
        JAX's name of the operation that makes the arrays, and their shape → their number.
    """
    found = collections.Counter[str]()
    for match, times in _kernel_calls(text):
        path = _PATH.search(match['rest'])
        name = re.sub(r'(?<=_)\d+', '*', path[1] if path else match['name'])
        for dtype, shape in _ARRAY.findall(match['type']):
            array = _array(dtype, shape)
            if dtype == 'f32' and math.prod(array.shape) >= least:
                found[f'{name} [{shape}]'] += times
    return dict(found.most_common())


def _kernel_calls(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Yield the instructions of a GPU program that start a kernel, and how often each runs."""
    for line, times in _instructions(text, within_fusions=False):
        match = _INSTRUCTION.match(line)
        if match and match['operation'] not in _NO_KERNEL:
            yield match, times


def _types(text: str) -> dict[str, str]:
    """Return the type of every value of a program by its name."""
    matches = map(_INSTRUCTION.match, text.splitlines())
    return {match['name']: match['type'] for match in matches if match}


def _instructions(text: str, within_fusions: bool = True) -> Iterator[tuple[str, int]]:
    """Yield the instructions that a program runs with the number of times it runs each."""
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
                if role == 'body' or (within_fusions and role in ('calls', 'to_apply')):
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

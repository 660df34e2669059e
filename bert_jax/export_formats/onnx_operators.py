"""Converts each primitive of JAX to operators of ONNX."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np

from bert_jax.errors import UserError
from bert_jax.export_formats.onnx_graph import Dimension, Equation, Graph

# Primitive → function that takes the graph, the equation and the names of the inputs, and returns
# the name of the output, or a list of names.
Converter: TypeAlias = Callable[..., str | list[str]]
CONVERTERS: dict[str, Converter] = {}


def _converter(*primitives: str) -> Callable[[Converter], Converter]:
    def register(function: Converter) -> Converter:
        CONVERTERS.update(dict.fromkeys(primitives, function))
        return function

    return register


# Primitives that correspond to one operator, whose inputs broadcast.
_OPERATORS = {
    'add': 'Add', 'add_any': 'Add', 'sub': 'Sub', 'mul': 'Mul', 'div': 'Div', 'max': 'Max',
    'min': 'Min', 'pow': 'Pow', 'eq': 'Equal', 'lt': 'Less', 'gt': 'Greater',
    'ge': 'GreaterOrEqual', 'le': 'LessOrEqual', 'exp': 'Exp', 'log': 'Log', 'tanh': 'Tanh',
    'neg': 'Neg', 'sqrt': 'Sqrt', 'abs': 'Abs', 'sign': 'Sign', 'floor': 'Floor', 'ceil': 'Ceil',
    'erf': 'Erf', 'logistic': 'Sigmoid', 'cos': 'Cos', 'sin': 'Sin',
}  # fmt: skip
_IDENTITIES = ('stop_gradient', 'copy', 'copy_p', 'sharding_constraint', 'reduce_precision')
ELEMENTWISE = {
    *_OPERATORS, *_IDENTITIES, 'ne', 'and', 'or', 'xor', 'not', 'select_n', 'rsqrt', 'square',
    'rem', 'integer_pow', 'convert_element_type', 'broadcast_in_dim',
}  # fmt: skip


def _apply(graph: Graph, equation: Equation, operator: str, *inputs: str, **attributes: Any) -> str:
    """Add an operator whose inputs broadcast to the shape of the equation's output.

    If all inputs of this shape are deferred broadcasts, the output is a deferred broadcast.
    """
    shape = equation.outvars[0].aval.shape
    if not all(atom.aval.shape in (shape, ()) for atom in equation.invars):
        return graph.add(operator, list(map(graph.expanded, inputs)), **attributes)
    result = graph.add(operator, list(map(graph.small, inputs)), **attributes)
    is_full = [atom.aval.shape == shape for atom in equation.invars]
    full = [name for name, full in zip(inputs, is_full, strict=False) if full]
    if full and all(name in graph.broadcasts for name in full):
        return graph.deferred(result, shape)
    return result


def _then(graph: Graph, operator: str, name: str, **attributes: Any) -> str:
    """Add an operator of one tensor, which may be a deferred broadcast."""
    if name not in graph.broadcasts:
        return graph.add(operator, [name], **attributes)
    small, shape = graph.broadcasts[name]
    return graph.deferred(graph.add(operator, [small], **attributes), shape)


@_converter(*_OPERATORS)
def _operator(graph: Graph, equation: Equation, *inputs: str) -> str:
    return _apply(graph, equation, _OPERATORS[equation.primitive.name], *inputs)


@_converter(*_IDENTITIES)
def _identity(graph: Graph, equation: Equation, x: str) -> str:
    return x


@_converter('and', 'or', 'xor', 'not')
def _logical(graph: Graph, equation: Equation, *inputs: str) -> str:
    is_bool = equation.outvars[0].aval.dtype == bool
    name = equation.primitive.name.capitalize()
    return _apply(graph, equation, name if is_bool else f'Bitwise{name}', *inputs)


@_converter('ne')
def _not_equal(graph: Graph, equation: Equation, *inputs: str) -> str:
    return _then(graph, 'Not', _apply(graph, equation, 'Equal', *inputs))


@_converter('rem')
def _remainder(graph: Graph, equation: Equation, *inputs: str) -> str:
    return _apply(graph, equation, 'Mod', *inputs, fmod=1)


@_converter('rsqrt')
def _rsqrt(graph: Graph, equation: Equation, x: str) -> str:
    return _then(graph, 'Reciprocal', _apply(graph, equation, 'Sqrt', x))


@_converter('square')
def _square(graph: Graph, equation: Equation, x: str) -> str:
    return _apply(graph, equation, 'Mul', x, x)


@_converter('log1p')
def _log1p(graph: Graph, equation: Equation, x: str) -> str:
    one = graph.constant(1, equation.outvars[0].aval.dtype)
    return graph.add('Log', [graph.add('Add', [x, one])])


@_converter('integer_pow')
def _integer_pow(graph: Graph, equation: Equation, x: str) -> str:
    exponent = graph.constant(equation.params['y'], equation.outvars[0].aval.dtype)
    return _apply(graph, equation, 'Pow', x, exponent)


@_converter('is_finite')
def _is_finite(graph: Graph, equation: Equation, x: str) -> str:
    is_infinite = graph.add('Or', [graph.add('IsNaN', [x]), graph.add('IsInf', [x])])
    return graph.add('Not', [is_infinite])


@_converter('clamp')
def _clamp(graph: Graph, equation: Equation, least: str, x: str, most: str) -> str:
    return graph.add('Min', [graph.add('Max', [x, least]), most])


@_converter('select_n')
def _select(graph: Graph, equation: Equation, which: str, *cases: str) -> str:
    if len(cases) != 2:
        raise UserError('--format=onnx has no operators for a choice among more than two arrays')
    if equation.outvars[0].aval.dtype != bool:
        return _apply(graph, equation, 'Where', which, cases[1], cases[0])
    # ONNX Runtime has no Where of truth values.
    is_second = _apply(graph, equation, 'And', which, cases[1])
    is_first = _apply(graph, equation, 'And', _then(graph, 'Not', which), cases[0])
    return _apply(graph, equation, 'Or', is_second, is_first)


@_converter('convert_element_type')
def _convert_type(graph: Graph, equation: Equation, x: str) -> str:
    dtype = equation.params['new_dtype']
    if equation.invars[0].aval.dtype == dtype:
        return x
    if x in graph.broadcasts:
        small, shape = graph.broadcasts[x]
        return graph.deferred(graph.cast(small, dtype), shape)
    return graph.cast(x, dtype)


@_converter('broadcast_in_dim')
def _broadcast(graph: Graph, equation: Equation, x: str, *sizes: str) -> str:
    shape, axes_of_x = equation.params['shape'], equation.params['broadcast_dimensions']
    new_axes = [axis for axis in range(len(shape)) if axis not in axes_of_x]
    small = graph.unsqueeze(graph.small(x), new_axes)
    given = [1] * len(shape)
    for axis, size in zip(axes_of_x, equation.invars[0].aval.shape, strict=True):
        given[axis] = size
    if x not in graph.broadcasts and given == list(shape):
        return small
    return graph.deferred(small, shape)


@_converter('reshape')
def _reshape(graph: Graph, equation: Equation, x: str, *sizes: str) -> str:
    return graph.reshape(x, equation.outvars[0].aval.shape, equation.invars[0].aval.shape)


@_converter('squeeze')
def _squeeze(graph: Graph, equation: Equation, x: str) -> str:
    return graph.squeeze(x, equation.params['dimensions'])


@_converter('expand_dims')
def _expand_dims(graph: Graph, equation: Equation, x: str) -> str:
    return graph.unsqueeze(x, equation.params['dimensions'])


@_converter('transpose')
def _transpose(graph: Graph, equation: Equation, x: str) -> str:
    return graph.transpose(x, equation.params['permutation'])


@_converter('concatenate')
def _concatenate(graph: Graph, equation: Equation, *inputs: str) -> str:
    return graph.add('Concat', inputs, axis=equation.params['dimension'])


@_converter('stack')
def _stack(graph: Graph, equation: Equation, *inputs: str) -> str:
    axis = equation.params['axis']
    return graph.add('Concat', [graph.unsqueeze(name, [axis]) for name in inputs], axis=axis)


@_converter('split')
def _split(graph: Graph, equation: Equation, x: str) -> list[str]:
    sizes = equation.params['sizes']
    inputs = [x, graph.shape(sizes)]
    return graph.add_many('Split', inputs, len(sizes), axis=equation.params['axis'])


@_converter('slice')
def _slice(graph: Graph, equation: Equation, x: str) -> str:
    parameters = equation.params
    starts = graph.shape(parameters['start_indices'])
    ends = graph.shape(parameters['limit_indices'])
    steps = parameters['strides'] or [1] * len(parameters['start_indices'])
    return graph.slice(x, starts, ends, range(len(steps)), steps)


@_converter('dynamic_slice')
def _dynamic_slice(graph: Graph, equation: Equation, x: str, *starts: str) -> str:
    vectors = [graph.unsqueeze(graph.cast(start, np.int64), [0]) for start in starts]
    first, sizes = graph.add('Concat', vectors, axis=0), equation.params['slice_sizes']
    last = graph.add('Add', [first, graph.shape(sizes)])
    return graph.slice(x, first, last, range(len(sizes)), [1] * len(sizes))


@_converter('rev')
def _reverse(graph: Graph, equation: Equation, x: str) -> str:
    axes = equation.params['dimensions']
    starts = graph.integers([-1] * len(axes))
    ends = graph.integers([np.iinfo(np.int64).min] * len(axes))
    return graph.slice(x, starts, ends, axes, [-1] * len(axes))


@_converter('pad')
def _pad(graph: Graph, equation: Equation, x: str, value: str) -> str:
    low, high, interior = zip(*equation.params['padding_config'], strict=True)
    if any(interior):
        raise UserError('--format=onnx has no operators for padding between elements')
    return graph.add('Pad', [x, graph.shape([*low, *high]), value])


@_converter('iota')
def _iota(graph: Graph, equation: Equation, *sizes: str) -> str:
    shape, axis = equation.params['shape'], equation.params['dimension']
    numbers = graph.cast(_range(graph, shape[axis]), equation.params['dtype'])
    small = graph.unsqueeze(numbers, [other for other in range(len(shape)) if other != axis])
    is_full = all(size == 1 for other, size in enumerate(shape) if other != axis)
    return small if is_full else graph.deferred(small, shape)


def _range(graph: Graph, size: Dimension) -> str:
    """The numbers 0, 1, …, size − 1, int64."""
    if not jax.export.is_symbolic_dim(size):
        return graph.constant(np.arange(size))
    zero, one = (graph.constant(value, np.int64) for value in (0, 1))
    return graph.add('Range', [zero, graph.add('Squeeze', [graph.size(size)]), one])


@_converter('dim_as_value')
def _dimension(graph: Graph, equation: Equation) -> str:
    size = graph.add('Squeeze', [graph.size(equation.params['dim'])])
    return graph.cast(size, equation.outvars[0].aval.dtype)


@_converter('argmax', 'argmin')
def _arg(graph: Graph, equation: Equation, x: str) -> str:
    operator = {'argmax': 'ArgMax', 'argmin': 'ArgMin'}[equation.primitive.name]
    (axis,) = equation.params['axes']
    x = graph.cast(x, np.int32) if equation.invars[0].aval.dtype == bool else x  # not in ONNX
    index = graph.add(operator, [x], axis=axis, keepdims=0)
    return graph.cast(index, equation.params['index_dtype'])


@_converter('reduce_sum', 'reduce_max', 'reduce_min', 'reduce_prod', 'reduce_or', 'reduce_and')
def _reduce(graph: Graph, equation: Equation, x: str) -> str:
    name = equation.primitive.name.removeprefix('reduce_')
    operator = {'or': 'Max', 'and': 'Min'}.get(name, name.capitalize())
    is_bool = equation.invars[0].aval.dtype == bool
    x = graph.cast(x, np.int32) if is_bool else x
    axes = graph.integers(equation.params['axes'])
    reduced = graph.add(f'Reduce{operator}', [x, axes], keepdims=0)
    return graph.cast(reduced, bool) if is_bool else reduced


@_converter('sort')
def _sort(graph: Graph, equation: Equation, keys: str, *others: str) -> list[str]:
    axis, length = equation.params['dimension'], equation.invars[0].aval.shape[-1]
    if equation.params['num_keys'] != 1 or axis != equation.invars[0].aval.ndim - 1:
        raise UserError('--format=onnx has no operators for this sort')
    inputs = [keys, graph.size(length)]
    keys, order = graph.add_many('TopK', inputs, 2, axis=axis, largest=0)
    return [keys, *(graph.add('GatherElements', [name, order], axis=axis) for name in others)]


@_converter('cumsum')
def _cumsum(graph: Graph, equation: Equation, x: str) -> str:
    axis = graph.constant(equation.params['axis'], np.int64)
    return graph.add('CumSum', [x, axis], reverse=int(equation.params['reverse']))


@_converter('cummax')
def _cummax(graph: Graph, equation: Equation, x: str) -> str:
    """Running maximum of the last axis: reduces a matrix with x[j] at [i, j] if j ≤ i."""
    (aval,) = (atom.aval for atom in equation.invars)
    if equation.params['axis'] != aval.ndim - 1 or equation.params['reverse']:
        raise UserError('--format=onnx has no operators for this cummax')
    numbers = _range(graph, aval.shape[-1])
    is_earlier = graph.add('LessOrEqual', [numbers, graph.unsqueeze(numbers, [1])])
    least = graph.constant(np.iinfo(aval.dtype).min, aval.dtype)
    matrix = graph.add('Where', [is_earlier, graph.unsqueeze(x, [aval.ndim - 1]), least])
    return graph.add('ReduceMax', [matrix, graph.integers([-1])], keepdims=0)


@_converter('dot_general')
def _dot_general(graph: Graph, equation: Equation, a: str, b: str) -> str:
    """MatMul of operands that have one free axis and one summed axis after the batch axes.

    Other axes are merged first; without batch axes, `a` may have any number of free axes.
    """
    (sum_a, sum_b), (batch_a, batch_b) = equation.params['dimension_numbers']
    shape_a, shape_b = (atom.aval.shape for atom in equation.invars)
    free_a = [axis for axis in range(len(shape_a)) if axis not in (*sum_a, *batch_a)]
    free_b = [axis for axis in range(len(shape_b)) if axis not in (*sum_b, *batch_b)]
    out, summed = equation.outvars[0].aval.shape, _product(shape_a, sum_a)
    if not batch_a and b in graph.constants and list(sum_b) == [1] and len(shape_b) == 2:
        return _times_transposed(graph, a, b, [*free_a, *sum_a], [*shape_a], out)
    order_a, order_b = [*batch_a, *free_a, *sum_a], [*batch_b, *sum_b, *free_b]
    if batch_a and len(free_a) == len(free_b) == len(sum_a) == 1:
        swapped = [*batch_b, *free_b, *sum_b], [*batch_a, *sum_a, *free_a]
        if _num_moved(*swapped) < _num_moved(order_a, order_b):
            product = graph.add('MatMul', list(map(graph.transpose, (b, a), swapped)))
            rank = len(out)
            return graph.transpose(product, [*range(rank - 2), rank - 1, rank - 2])
    is_plain = len(shape_a) == len(shape_b) == 2 and not _num_moved(order_a, order_b)
    source = graph.before_merging(a, shape_a) if is_plain and b in graph.constants else None
    if source is not None:
        name, shape = source
        return graph.reshape(graph.add('MatMul', [name, b]), out, [*shape[:-1], shape_b[1]])
    a, b = graph.transpose(a, order_a), graph.transpose(b, order_b)
    batch = [shape_a[axis] for axis in batch_a]
    merges_a = len(sum_a) != 1 or not free_a or (len(free_a) > 1 and len(batch) > 0)
    merges_b = len(sum_b) != 1 or len(free_b) != 1
    if merges_a:
        given = [shape_a[axis] for axis in order_a]
        a = graph.reshape(a, [*batch, _product(shape_a, free_a), summed], given)
    if merges_b:
        given = [shape_b[axis] for axis in order_b]
        b = graph.reshape(b, [*batch, summed, _product(shape_b, free_b)], given)
    product = graph.add('MatMul', [a, b])
    if not (merges_a or merges_b):
        return product
    merged_a = [_product(shape_a, free_a)] if merges_a else [shape_a[axis] for axis in free_a]
    merged_b = [_product(shape_b, free_b)]
    return graph.reshape(product, out, [*batch, *merged_a, *merged_b])


def _times_transposed(
    graph: Graph,
    a: str,
    b: str,
    order: Sequence[int],
    shape: Sequence[Dimension],
    out: Sequence[Dimension],
) -> str:
    """A Gemm with a transposed constant, such as the token embeddings, which is stored once.

    Quantizers know a Gemm; they leave a product with the output of Transpose in float32.
    """
    given = [shape[axis] for axis in order]
    rows = _product(given, range(len(given) - 1))
    matrix = graph.reshape(graph.transpose(a, order), [rows, given[-1]], given)
    product = graph.add('Gemm', [matrix, b], transB=1)
    return graph.reshape(product, out, [rows, out[-1]])


def _num_moved(*orders: Sequence[int]) -> int:
    return sum(list(order) != sorted(order) for order in orders)


def _product(shape: Sequence[Dimension], axes: Sequence[int]) -> Dimension:
    result: Dimension = 1
    for axis in axes:
        result = result * shape[axis]
    return result


@_converter('gather')
def _gather(graph: Graph, equation: Equation, x: str, indices: str, *sizes: str) -> str:
    numbers, slice_sizes = equation.params['dimension_numbers'], equation.params['slice_sizes']
    x_aval, index_aval = (atom.aval for atom in equation.invars[:2])
    mapped, batched = list(numbers.start_index_map), list(numbers.operand_batching_dims)
    dropped = [*numbers.collapsed_slice_dims, *batched]
    if index_aval.ndim == 1:  # one slice
        indices = graph.cast(indices, np.int64)
        ends = graph.add('Add', [indices, graph.shape([slice_sizes[axis] for axis in mapped])])
        part = graph.slice(x, indices, ends, mapped, [1] * len(mapped))
        return graph.squeeze(part, dropped) if dropped else part
    rest = [axis for axis in range(x_aval.ndim) if axis not in dropped]
    is_whole = all(str(slice_sizes[axis]) == str(x_aval.shape[axis]) for axis in rest)
    if not is_whole or not {*mapped} <= {*dropped}:
        raise UserError('--format=onnx has no operators for this gather')
    index_batched = list(numbers.start_indices_batching_dims)
    others = [axis for axis in range(index_aval.ndim - 1) if axis not in index_batched]
    x = graph.transpose(x, [*batched, *mapped, *rest])
    if not batched and len(mapped) == 1:
        gathered = graph.add('Gather', [x, graph.squeeze(indices, [index_aval.ndim - 1])])
    else:
        indices = graph.cast(indices, np.int64)
        indices = graph.transpose(indices, [*index_batched, *others, index_aval.ndim - 1])
        gathered = graph.add('GatherND', [x, indices], batch_dims=len(batched))
    # The axes are now the batch axes, the other axes of the indices, and the rest of x.
    offsets = list(numbers.offset_dims)
    of_indices = [axis for axis in range(equation.outvars[0].aval.ndim) if axis not in offsets]
    order = [of_indices[axis] for axis in (*index_batched, *others)] + offsets
    return graph.transpose(gathered, np.argsort(order).tolist())

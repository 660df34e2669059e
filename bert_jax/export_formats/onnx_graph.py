"""Converts traced functions to ONNX graphs with symbolic shapes.

Each primitive of a jaxpr becomes a few operators. Sizes that depend on the inputs are computed in
the graph, from the shape of an input.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import onnx
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from onnx import helper, numpy_helper

from bert_jax.errors import UserError

OPSET = 18
IR_VERSION = 10
_CONVERTERS: dict[str, Callable[..., Any]] = {}  # primitive → function of graph, equation, inputs
_INNER = ('jaxpr', 'call_jaxpr', 'fun_jaxpr')  # parameters that hold the jaxpr of a call


class Size:
    """A size that the graph computes, as a 1-D tensor of one int64; combined by arithmetic."""

    def __init__(self, graph: 'Graph', name: str) -> None:
        self.graph, self.name = graph, name

    def _combine(self, operator: str, first: Any, second: Any) -> 'Size':
        names = [self.graph.size(own) for own in (first, second)]
        return Size(self.graph, self.graph.add(operator, names))

    def __add__(self, other: Any) -> 'Size':
        return self._combine('Add', self, other)

    def __sub__(self, other: Any) -> 'Size':
        return self._combine('Sub', self, other)

    def __mul__(self, other: Any) -> 'Size':
        return self._combine('Mul', self, other)

    def __rsub__(self, other: Any) -> 'Size':
        return self._combine('Sub', other, self)

    def __neg__(self) -> 'Size':
        return self._combine('Sub', 0, self)

    __radd__, __rmul__ = __add__, __mul__


class Graph:
    """An ONNX graph under construction; values are names of tensors.

    Attributes:
        nodes: in order.
        constants: name → array.
        broadcasts: name → a tensor that broadcasts to it, for operators that do so themselves.
        sizes: name of a dimension → its size.
    """

    def __init__(self, outer: 'Graph | None' = None) -> None:
        """Begin a graph; that of a loop's body sees the tensors of the `outer` one."""
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {} if outer is None else outer.constants
        self.broadcasts: dict[str, tuple[str, Any]] = {}
        self.sizes: dict[str, Size] = {} if outer is None else outer.sizes
        self._counter: list[int] = [0] if outer is None else outer._counter

    def new_name(self) -> str:
        self._counter[0] += 1
        return f'v{self._counter[0]}'

    def add(self, operator: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add a node with one output, and return its name."""
        return self.add_many(operator, inputs, 1, **attributes)[0]

    def add_many(
        self, operator: str, inputs: Sequence[str], number: int, **attributes: Any
    ) -> list[str]:
        """Add a node with several outputs."""
        outputs = [self.new_name() for _ in range(number)]
        self.nodes.append(helper.make_node(operator, inputs, outputs, **attributes))
        return outputs

    def constant(self, value: Any, dtype: Any = None) -> str:
        name = self.new_name()
        self.constants[name] = np.asarray(value, dtype)
        return name

    def integers(self, values: Sequence[int]) -> str:
        return self.constant(list(values), np.int64)

    def size(self, size: Any) -> str:
        """A size as a 1-D tensor: an int, a Size or a symbolic dimension of JAX."""
        if isinstance(size, Size):
            return size.name
        if not jax.export.is_symbolic_dim(size):
            return self.integers([int(size)])
        # The text of a dimension is an expression over the names of the inputs' dimensions.
        found: Any = eval(str(size), {'__builtins__': {}}, dict(self.sizes))
        return self.size(found)

    def shape(self, sizes: Sequence[Any]) -> str:
        """A shape as a tensor."""
        if not any(map(jax.export.is_symbolic_dim, sizes)):
            return self.integers([int(size) for size in sizes])
        return self.add('Concat', [self.size(size) for size in sizes], axis=0)

    def cast(self, name: str, dtype: Any) -> str:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.add('Cast', [name], to=kind)

    def transpose(self, name: str, order: Sequence[int]) -> str:
        if list(order) == sorted(order):
            return name
        return self.add('Transpose', [name], perm=list(order))

    def reshape(self, name: str, sizes: Sequence[Any]) -> str:
        if name in self.constants and not any(map(jax.export.is_symbolic_dim, sizes)):
            return self.constant(self.constants[name].reshape(tuple(sizes)))
        return self.add('Reshape', [name, self.shape(sizes)])

    def unsqueeze(self, name: str, axes: Sequence[int]) -> str:
        return self.add('Unsqueeze', [name, self.integers(axes)]) if axes else name

    def slice(
        self, name: str, starts: str, ends: str, axes: Sequence[int], steps: Sequence[int]
    ) -> str:
        inputs = [name, starts, ends, self.integers(axes), self.integers(steps)]
        return self.add('Slice', inputs)

    def run(self, jaxpr: Jaxpr, constants: Sequence[Any], inputs: Sequence[str]) -> list[str]:
        """Add the equations of a jaxpr; return the names of its outputs."""
        names: dict[Any, str] = dict(zip(jaxpr.invars, inputs, strict=True))
        for variable, value in zip(jaxpr.constvars, constants, strict=True):
            names[variable] = self.constant(value)

        def read(atom: Any) -> str:
            aval: Any = atom.aval
            if isinstance(atom, Literal):
                return self.constant(atom.val, aval.dtype)
            return names[atom]

        for equation in _live_equations(jaxpr):
            outputs = self._convert(equation, [read(atom) for atom in equation.invars])
            names.update(zip(equation.outvars, outputs, strict=True))
        return [self.expanded(read(atom)) for atom in jaxpr.outvars]

    def expanded(self, name: str) -> str:
        """The tensor of a name, which may stand for a broadcast that was put off."""
        if name not in self.broadcasts:
            return name
        small, sizes = self.broadcasts[name]
        return self.add('Expand', [small, self.shape(sizes)])

    def _convert(self, equation: Any, inputs: list[str]) -> list[str]:
        primitive, parameters = equation.primitive.name, equation.params
        inner = next((parameters[key] for key in _INNER if key in parameters), None)
        if inner is not None and primitive not in _CONVERTERS:
            closed = isinstance(inner, ClosedJaxpr)
            jaxpr, constants = (inner.jaxpr, inner.consts) if closed else (inner, ())
            return self.run(jaxpr, constants, inputs)
        if primitive not in _CONVERTERS:
            raise UserError(f'--format=onnx has no operators for {primitive}')
        if primitive not in _ELEMENTWISE:
            inputs = [self.expanded(name) for name in inputs]
        found = _CONVERTERS[primitive](self, equation, *inputs)
        return [found] if isinstance(found, str) else found


def _live_equations(jaxpr: Jaxpr) -> list[Any]:
    """The equations on which an output depends."""
    live = {atom for atom in jaxpr.outvars if not isinstance(atom, Literal)}
    found = []
    for equation in reversed(jaxpr.eqns):
        if live.intersection(equation.outvars):
            live.update(atom for atom in equation.invars if not isinstance(atom, Literal))
            found.append(equation)
    return found[::-1]


def to_model(
    function: Callable, params: Any, inputs: Mapping[str, jax.ShapeDtypeStruct]
) -> onnx.ModelProto:
    """Convert a function of params and inputs by name, which returns outputs by name.

    Args:
        params: nested dictionaries of arrays, which become constants.
        inputs: their shapes; a symbolic dimension must be a whole axis of the first input.

    Raises:
        UserError: a primitive has no converter.
    """
    shapes = jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), params)
    closed, outputs = jax.make_jaxpr(function, return_shape=True)(shapes, dict(inputs))
    graph, (first, *_) = Graph(), inputs
    shape = graph.add('Shape', [first])
    for axis, size in enumerate(inputs[first].shape):
        axis_name = graph.add('Gather', [shape, graph.integers([axis])])
        graph.sizes[str(size)] = Size(graph, axis_name)
    leaves = [graph.constant(leaf) for leaf in jax.tree.leaves(params)]
    found = graph.run(closed.jaxpr, closed.consts, [*leaves, *sorted(inputs)])
    for name, own in zip(sorted(outputs), found, strict=True):
        graph.nodes.append(helper.make_node('Identity', [own], [name]))
    used = {name for node in _all_nodes(graph.nodes) for name in node.input}
    proto = helper.make_graph(
        graph.nodes,
        'model',
        [_value(name, inputs[name]) for name in inputs],
        [_value(name, outputs[name]) for name in sorted(outputs)],
        [numpy_helper.from_array(a, n) for n, a in graph.constants.items() if n in used],
    )
    opset = helper.make_opsetid('', OPSET)
    return helper.make_model(
        proto, opset_imports=[opset], ir_version=IR_VERSION, producer_name='bert_jax'
    )


def _all_nodes(nodes: Sequence[Any]) -> list[Any]:
    """Nodes, and those of the bodies of loops."""
    found = list(nodes)
    for node in nodes:
        for attribute in node.attribute:
            found += _all_nodes(attribute.g.node)
    return found


def _value(name: str, aval: Any) -> Any:
    """Type and shape of an input or output; symbolic sizes by name."""
    sizes = [str(size) if jax.export.is_symbolic_dim(size) else int(size) for size in aval.shape]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(aval.dtype))
    return helper.make_tensor_value_info(name, kind, sizes)


def _converter(*primitives: str) -> Callable[[Callable], Callable]:
    def register(function: Callable) -> Callable:
        _CONVERTERS.update(dict.fromkeys(primitives, function))
        return function

    return register


# Primitives that are one operator, whose inputs broadcast.
_OPERATORS = {
    'add': 'Add', 'add_any': 'Add', 'sub': 'Sub', 'mul': 'Mul', 'div': 'Div', 'max': 'Max',
    'min': 'Min', 'pow': 'Pow', 'eq': 'Equal', 'lt': 'Less', 'gt': 'Greater',
    'ge': 'GreaterOrEqual', 'le': 'LessOrEqual', 'exp': 'Exp', 'log': 'Log', 'tanh': 'Tanh',
    'neg': 'Neg', 'sqrt': 'Sqrt', 'abs': 'Abs', 'sign': 'Sign', 'floor': 'Floor', 'ceil': 'Ceil',
    'erf': 'Erf', 'logistic': 'Sigmoid', 'cos': 'Cos', 'sin': 'Sin', 'stop_gradient': 'Identity',
    'copy': 'Identity', 'copy_p': 'Identity', 'sharding_constraint': 'Identity',
    'reduce_precision': 'Identity',
}  # fmt: skip
_ELEMENTWISE = {*_OPERATORS, 'ne', 'and', 'or', 'xor', 'not', 'select_n', 'rsqrt', 'square', 'rem'}


def _apply(graph: Graph, equation: Any, operator: str, *inputs: str, **attributes: Any) -> str:
    """Add an operator whose inputs broadcast to the shape of the equation's output."""
    shape = equation.outvars[0].aval.shape
    is_full = all(atom.aval.shape == shape for atom in equation.invars)
    if is_full and any(own not in graph.broadcasts for own in inputs):
        names = [graph.broadcasts.get(own, (own,))[0] for own in inputs]
    else:
        names = [graph.expanded(own) for own in inputs]
    return graph.add(operator, names, **attributes)


@_converter(*_OPERATORS)
def _operator(graph: Graph, equation: Any, *inputs: str) -> str:
    return _apply(graph, equation, _OPERATORS[equation.primitive.name], *inputs)


@_converter('and', 'or', 'xor', 'not')
def _logical(graph: Graph, equation: Any, *inputs: str) -> str:
    is_bool = equation.outvars[0].aval.dtype == bool
    name = equation.primitive.name.capitalize()
    return _apply(graph, equation, name if is_bool else f'Bitwise{name}', *inputs)


@_converter('ne')
def _not_equal(graph: Graph, equation: Any, *inputs: str) -> str:
    return graph.add('Not', [_apply(graph, equation, 'Equal', *inputs)])


@_converter('rem')
def _remainder(graph: Graph, equation: Any, *inputs: str) -> str:
    return _apply(graph, equation, 'Mod', *inputs, fmod=1)


@_converter('rsqrt')
def _rsqrt(graph: Graph, equation: Any, x: str) -> str:
    return graph.add('Reciprocal', [_apply(graph, equation, 'Sqrt', x)])


@_converter('square')
def _square(graph: Graph, equation: Any, x: str) -> str:
    return _apply(graph, equation, 'Mul', x, x)


@_converter('log1p')
def _log1p(graph: Graph, equation: Any, x: str) -> str:
    one = graph.constant(1, equation.outvars[0].aval.dtype)
    return graph.add('Log', [graph.add('Add', [x, one])])


@_converter('integer_pow')
def _integer_pow(graph: Graph, equation: Any, x: str) -> str:
    exponent = graph.constant(equation.params['y'], equation.outvars[0].aval.dtype)
    return graph.add('Pow', [x, exponent])


@_converter('is_finite')
def _is_finite(graph: Graph, equation: Any, x: str) -> str:
    odd = graph.add('Or', [graph.add('IsNaN', [x]), graph.add('IsInf', [x])])
    return graph.add('Not', [odd])


@_converter('clamp')
def _clamp(graph: Graph, equation: Any, least: str, x: str, most: str) -> str:
    return graph.add('Min', [graph.add('Max', [x, least]), most])


@_converter('select_n')
def _select(graph: Graph, equation: Any, which: str, *cases: str) -> str:
    if len(cases) != 2 or equation.invars[0].aval.shape != equation.outvars[0].aval.shape:
        which, cases = graph.expanded(which), tuple(map(graph.expanded, cases))
    return _apply(graph, equation, 'Where', which, cases[1], cases[0])


@_converter('convert_element_type')
def _convert_type(graph: Graph, equation: Any, x: str) -> str:
    dtype = equation.params['new_dtype']
    return x if equation.invars[0].aval.dtype == dtype else graph.cast(x, dtype)


@_converter('broadcast_in_dim')
def _broadcast(graph: Graph, equation: Any, x: str, *sizes: str) -> str:
    shape, kept = equation.params['shape'], equation.params['broadcast_dimensions']
    small = graph.unsqueeze(x, [axis for axis in range(len(shape)) if axis not in kept])
    if tuple(equation.invars[0].aval.shape) == tuple(shape):
        return x
    name = graph.new_name()
    graph.broadcasts[name] = (small, shape)
    return name


@_converter('reshape')
def _reshape(graph: Graph, equation: Any, x: str, *sizes: str) -> str:
    return graph.reshape(x, equation.outvars[0].aval.shape)


@_converter('squeeze')
def _squeeze(graph: Graph, equation: Any, x: str) -> str:
    return graph.add('Squeeze', [x, graph.integers(equation.params['dimensions'])])


@_converter('expand_dims')
def _expand_dims(graph: Graph, equation: Any, x: str) -> str:
    return graph.unsqueeze(x, equation.params['dimensions'])


@_converter('transpose')
def _transpose(graph: Graph, equation: Any, x: str) -> str:
    return graph.transpose(x, equation.params['permutation'])


@_converter('concatenate')
def _concatenate(graph: Graph, equation: Any, *inputs: str) -> str:
    return graph.add('Concat', inputs, axis=equation.params['dimension'])


@_converter('stack')
def _stack(graph: Graph, equation: Any, *inputs: str) -> str:
    axis = equation.params['axis']
    return graph.add('Concat', [graph.unsqueeze(own, [axis]) for own in inputs], axis=axis)


@_converter('split')
def _split(graph: Graph, equation: Any, x: str) -> list[str]:
    sizes = equation.params['sizes']
    inputs = [x, graph.shape(sizes)]
    return graph.add_many('Split', inputs, len(sizes), axis=equation.params['axis'])


@_converter('slice')
def _slice(graph: Graph, equation: Any, x: str) -> str:
    parameters = equation.params
    starts, ends = (graph.shape(parameters[f'{own}_indices']) for own in ('start', 'limit'))
    steps = parameters['strides'] or [1] * len(parameters['start_indices'])
    return graph.slice(x, starts, ends, range(len(steps)), steps)


@_converter('dynamic_slice')
def _dynamic_slice(graph: Graph, equation: Any, x: str, *starts: str) -> str:
    starts_ = [graph.reshape(graph.cast(own, np.int64), [1]) for own in starts]
    first, sizes = graph.add('Concat', starts_, axis=0), equation.params['slice_sizes']
    last = graph.add('Add', [first, graph.shape(sizes)])
    return graph.slice(x, first, last, range(len(sizes)), [1] * len(sizes))


@_converter('rev')
def _reverse(graph: Graph, equation: Any, x: str) -> str:
    axes = equation.params['dimensions']
    starts, ends = ([value] * len(axes) for value in (-1, np.iinfo(np.int64).min))
    return graph.slice(x, graph.integers(starts), graph.integers(ends), axes, [-1] * len(axes))


@_converter('pad')
def _pad(graph: Graph, equation: Any, x: str, value: str) -> str:
    low, high, interior = zip(*equation.params['padding_config'], strict=True)
    if any(interior):
        raise UserError('--format=onnx has no operators for padding between elements')
    return graph.add('Pad', [x, graph.shape([*low, *high]), value])


@_converter('iota')
def _iota(graph: Graph, equation: Any, *sizes: str) -> str:
    shape, axis = equation.params['shape'], equation.params['dimension']
    ends = graph.add('Squeeze', [graph.size(shape[axis])])
    numbers = [graph.constant(0, np.int64), ends, graph.constant(1, np.int64)]
    counted = graph.cast(graph.add('Range', numbers), equation.params['dtype'])
    small = graph.unsqueeze(counted, [other for other in range(len(shape)) if other != axis])
    return small if len(shape) == 1 else graph.add('Expand', [small, graph.shape(shape)])


@_converter('dim_as_value')
def _dimension(graph: Graph, equation: Any) -> str:
    size = graph.add('Squeeze', [graph.size(equation.params['dim'])])
    return graph.cast(size, equation.outvars[0].aval.dtype)


@_converter('argmax', 'argmin')
def _arg(graph: Graph, equation: Any, x: str) -> str:
    operator = {'argmax': 'ArgMax', 'argmin': 'ArgMin'}[equation.primitive.name]
    (axis,) = equation.params['axes']
    found = graph.add(operator, [x], axis=axis, keepdims=0)
    return graph.cast(found, equation.params['index_dtype'])


@_converter('reduce_sum', 'reduce_max', 'reduce_min', 'reduce_prod', 'reduce_or', 'reduce_and')
def _reduce(graph: Graph, equation: Any, x: str) -> str:
    name = equation.primitive.name.removeprefix('reduce_')
    operator = {'or': 'Max', 'and': 'Min'}.get(name, name.capitalize())
    is_bool = equation.invars[0].aval.dtype == bool
    x = graph.cast(x, np.int32) if is_bool else x
    axes = graph.integers(equation.params['axes'])
    found = graph.add(f'Reduce{operator}', [x, axes], keepdims=0)
    return graph.cast(found, bool) if is_bool else found


@_converter('sort')
def _sort(graph: Graph, equation: Any, keys: str, *others: str) -> list[str]:
    axis, length = equation.params['dimension'], equation.invars[0].aval.shape[-1]
    if equation.params['num_keys'] != 1 or axis != equation.invars[0].aval.ndim - 1:
        raise UserError('--format=onnx has no operators for this sort')
    inputs = [keys, graph.size(length)]
    keys, order = graph.add_many('TopK', inputs, 2, axis=axis, largest=0)
    return [keys, *(graph.add('GatherElements', [own, order], axis=axis) for own in others)]


@_converter('cumsum')
def _cumsum(graph: Graph, equation: Any, x: str) -> str:
    axis = graph.constant(equation.params['axis'], np.int64)
    return graph.add('CumSum', [x, axis], reverse=int(equation.params['reverse']))


@_converter('cummax')
def _cummax(graph: Graph, equation: Any, x: str) -> str:
    """The maximum over a matrix of all earlier elements of the last axis."""
    (aval,) = (atom.aval for atom in equation.invars)
    axis, length = equation.params['axis'], aval.shape[-1]
    if axis != aval.ndim - 1 or equation.params['reverse']:
        raise UserError('--format=onnx has no operators for this cummax')
    ends = graph.add('Squeeze', [graph.size(length)])
    zero, one = (graph.constant(value, np.int64) for value in (0, 1))
    number = graph.add('Range', [zero, ends, one])
    is_earlier = graph.add('LessOrEqual', [number, graph.unsqueeze(number, [1])])
    least = graph.constant(np.iinfo(aval.dtype).min, aval.dtype)
    matrix = graph.add('Where', [is_earlier, graph.unsqueeze(x, [aval.ndim - 1]), least])
    return graph.add('ReduceMax', [matrix, graph.integers([-1])], keepdims=0)


@_converter('dot_general')
def _dot_general(graph: Graph, equation: Any, a: str, b: str) -> str:
    """MatMul of operands whose axes are batch axes, free axes and summed axes, one of each kind.

    Without batch axes MatMul takes any number of free axes of `a`.
    """
    (sum_a, sum_b), (batch_a, batch_b) = equation.params['dimension_numbers']
    shape_a, shape_b = (atom.aval.shape for atom in equation.invars)
    free_a = [axis for axis in range(len(shape_a)) if axis not in (*sum_a, *batch_a)]
    free_b = [axis for axis in range(len(shape_b)) if axis not in (*sum_b, *batch_b)]
    a = graph.transpose(a, [*batch_a, *free_a, *sum_a])
    b = graph.transpose(b, [*batch_b, *sum_b, *free_b])
    batch, summed = [shape_a[axis] for axis in batch_a], _product(shape_a, sum_a)
    merges_a = len(sum_a) != 1 or not free_a or (len(free_a) > 1 and len(batch) > 0)
    merges_b = len(sum_b) != 1 or len(free_b) != 1
    if merges_a:
        a = graph.reshape(a, [*batch, _product(shape_a, free_a), summed])
    if merges_b:
        b = graph.reshape(b, [*batch, summed, _product(shape_b, free_b)])
    found = graph.add('MatMul', [a, b])
    if not (merges_a or merges_b):
        return found
    return graph.reshape(found, equation.outvars[0].aval.shape)


def _product(shape: Sequence[Any], axes: Sequence[int]) -> Any:
    result: Any = 1
    for axis in axes:
        result = result * shape[axis]
    return result


@_converter('gather')
def _gather(graph: Graph, equation: Any, x: str, indices: str, *sizes: str) -> str:
    numbers, taken = equation.params['dimension_numbers'], equation.params['slice_sizes']
    x_aval, index_aval = (atom.aval for atom in equation.invars[:2])
    indices = graph.cast(indices, np.int64)
    mapped, batched = list(numbers.start_index_map), list(numbers.operand_batching_dims)
    dropped = [*numbers.collapsed_slice_dims, *batched]
    if index_aval.ndim == 1:  # one slice
        ends = graph.add('Add', [indices, graph.shape([taken[axis] for axis in mapped])])
        found = graph.slice(x, indices, ends, mapped, [1] * len(mapped))
        return graph.add('Squeeze', [found, graph.integers(dropped)]) if dropped else found
    rest = [axis for axis in range(x_aval.ndim) if axis not in dropped]
    whole = all(str(taken[axis]) == str(x_aval.shape[axis]) for axis in rest)
    if not whole or not {*mapped} <= {*dropped}:
        raise UserError('--format=onnx has no operators for this gather')
    index_batched = list(numbers.start_indices_batching_dims)
    others = [axis for axis in range(index_aval.ndim - 1) if axis not in index_batched]
    x = graph.transpose(x, [*batched, *mapped, *rest])
    if not batched and len(mapped) == 1:
        found = graph.add('Gather', [x, graph.add('Squeeze', [indices, graph.integers([-1])])])
    else:
        indices = graph.transpose(indices, [*index_batched, *others, index_aval.ndim - 1])
        found = graph.add('GatherND', [x, indices], batch_dims=len(batched))
    # Its axes now are the batched ones, the other ones of the indices, and the rest of x.
    offsets = list(numbers.offset_dims)
    of_indices = [axis for axis in range(equation.outvars[0].aval.ndim) if axis not in offsets]
    order = [of_indices[axis] for axis in (*index_batched, *others)] + offsets
    return graph.transpose(found, np.argsort(order).tolist())


@_converter('scan')
def _scan(graph: Graph, equation: Any, *inputs: str) -> list[str]:
    parameters, closed = equation.params, equation.params['jaxpr']
    num_consts, num_carry = parameters['num_consts'], parameters['num_carry']
    body = Graph(graph)
    places = [body.new_name() for _ in inputs[num_consts:]]
    outputs = body.run(closed.jaxpr, closed.consts, [*inputs[:num_consts], *places])
    outputs = [body.add('Identity', [own]) for own in outputs]  # tensors of the body, each once
    carried = closed.jaxpr.invars[num_consts:]
    proto = helper.make_graph(
        body.nodes,
        graph.new_name(),
        [_value(name, v.aval) for name, v in zip(places, carried, strict=True)],
        [_value(name, v.aval) for name, v in zip(outputs, closed.jaxpr.outvars, strict=True)],
    )
    num_inputs = len(inputs) - num_consts - num_carry
    num_outputs, reverse = len(outputs) - num_carry, int(parameters['reverse'])
    return graph.add_many(
        'Scan',
        inputs[num_consts:],
        len(outputs),
        body=proto,
        num_scan_inputs=num_inputs,
        scan_input_directions=[reverse] * num_inputs,
        scan_output_directions=[reverse] * num_outputs,
    )

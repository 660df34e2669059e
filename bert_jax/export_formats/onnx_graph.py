"""Builds ONNX graphs with sizes that depend on the inputs."""

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from onnx import NodeProto, ValueInfoProto, helper

Dimension: TypeAlias = Any  # an int, a Size, or a symbolic dimension, for which JAX has no type
Equation: TypeAlias = Any  # a JaxprEqn, whose variables have no shapes in the types of JAX


class Size:
    """A size that the graph computes, as a 1-D tensor of one int64; combined by arithmetic."""

    def __init__(self, graph: 'Graph', name: str) -> None:
        self.graph, self.name = graph, name

    def _combine(self, operator: str, first: Dimension, second: Dimension) -> 'Size':
        names = [self.graph.size(first), self.graph.size(second)]
        return Size(self.graph, self.graph.add(operator, names))

    def __add__(self, other: Dimension) -> 'Size':
        return self._combine('Add', self, other)

    def __sub__(self, other: Dimension) -> 'Size':
        return self._combine('Sub', self, other)

    def __mul__(self, other: Dimension) -> 'Size':
        return self._combine('Mul', self, other)

    def __rsub__(self, other: Dimension) -> 'Size':
        return self._combine('Sub', other, self)

    def __neg__(self) -> 'Size':
        return self._combine('Sub', 0, self)

    __radd__, __rmul__ = __add__, __mul__


class Graph:
    """An ONNX graph under construction; methods take and return names of tensors.

    Attributes:
        nodes: the nodes, in order.
        constants: name → array.
        broadcasts: name of a deferred broadcast → the small tensor and the shape; operators that
            broadcast take the small tensor.
        sizes: name of a dimension → its size.
        producers: name of a tensor → the node that computes it.
    """

    def __init__(self, outer: 'Graph | None' = None) -> None:
        """Begin a graph; the body of a loop sees the tensors of the `outer` graph."""
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, np.ndarray] = {} if outer is None else outer.constants
        self._names: dict[tuple[object, ...], str] = {} if outer is None else outer._names
        self.broadcasts: dict[str, tuple[str, Sequence[Dimension]]] = {}
        self.sizes: dict[str, Size] = {} if outer is None else outer.sizes
        self._counter: Iterator[int] = itertools.count(1) if outer is None else outer._counter
        self.producers: dict[str, NodeProto] = {}
        self._known: dict[tuple[object, ...], str] = {}  # arguments of `add` → its result
        # Result of a reshape → its input, and the shape of the input.
        self._reshaped: dict[str, tuple[str, tuple[Dimension, ...]]] = {}

    def new_name(self) -> str:
        return f'v{next(self._counter)}'

    def add(self, operator: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add a node with one output, or find an equal one, and return the name of the output."""
        key = (operator, *inputs, *((k, repr(value)) for k, value in attributes.items()))
        if key not in self._known:
            self._known[key] = self.add_many(operator, inputs, 1, **attributes)[0]
        return self._known[key]

    def add_many(
        self, operator: str, inputs: Sequence[str], number: int, **attributes: Any
    ) -> list[str]:
        """Add a node with several outputs."""
        outputs = [self.new_name() for _ in range(number)]
        node = helper.make_node(operator, inputs, outputs, **attributes)
        self.nodes.append(node)
        self.producers.update(dict.fromkeys(outputs, node))
        return outputs

    def constant(self, value: ArrayLike, dtype: DTypeLike | None = None) -> str:
        """Add a constant, or find an equal one, such as a matrix that several layers share."""
        array = np.asarray(value, dtype)
        digest = hashlib.sha256(array.tobytes()).digest()
        name = self._names.setdefault((array.dtype, array.shape, digest), self.new_name())
        self.constants[name] = array
        return name

    def integers(self, values: Sequence[int]) -> str:
        return self.constant(list(values), np.int64)

    def size(self, size: Dimension) -> str:
        """A 1-D tensor with a size: an int, a Size or a symbolic dimension of JAX."""
        if isinstance(size, Size):
            return size.name
        if not jax.export.is_symbolic_dim(size):
            return self.integers([int(size)])
        # The text of a dimension is an expression over the names of the inputs' dimensions.
        value: Dimension = eval(str(size), {'__builtins__': {}}, dict(self.sizes))
        return self.size(value)

    def shape(self, sizes: Sequence[Dimension]) -> str:
        """A shape as a tensor."""
        if not any(map(jax.export.is_symbolic_dim, sizes)):
            return self.integers([int(size) for size in sizes])
        return self.add('Concat', [self.size(size) for size in sizes], axis=0)

    def cast(self, name: str, dtype: DTypeLike) -> str:
        if name in self.constants:
            return self.constant(self.constants[name], dtype)
        return self.add('Cast', [name], to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def transpose(self, name: str, order: Sequence[int]) -> str:
        """Transpose; two transpositions in a row become one."""
        before = self.producers.get(name)
        if before is not None and before.op_type == 'Transpose':
            (first_order,) = (attribute.ints for attribute in before.attribute)
            name, order = before.input[0], [first_order[axis] for axis in order]
        if list(order) == sorted(order):
            return name
        return self.add('Transpose', [name], perm=list(order))

    def reshape(self, name: str, sizes: Sequence[Dimension], given: Sequence[Dimension]) -> str:
        """Reshape a tensor of the shape `given`; two reshapes in a row become one."""
        if name in self.constants and not any(map(jax.export.is_symbolic_dim, sizes)):
            return self.constant(self.constants[name].reshape(tuple(sizes)))
        name, given = self._reshaped.get(name, (name, tuple(given)))
        if given == tuple(sizes):
            return name
        reshaped = self.add('Reshape', [name, self.shape(sizes)])
        self._reshaped[reshaped] = name, given
        return reshaped

    def before_merging(
        self, name: str, sizes: Sequence[Dimension]
    ) -> tuple[str, list[Dimension]] | None:
        """For a matrix [rows, n] whose rows were merged, the tensor [..., n] and its shape."""
        source, given = self._reshaped.get(name, ('', ()))
        rows: Dimension = 1
        for axis, size in enumerate(given):
            rows = rows * size
            if axis and rows == sizes[0]:
                shape = [*given[: axis + 1], sizes[1]]
                return self.reshape(source, shape, given), shape
        return None

    def unsqueeze(self, name: str, axes: Sequence[int]) -> str:
        if not axes:
            return name
        if name in self.constants:
            return self.constant(np.expand_dims(self.constants[name], tuple(axes)))
        return self.add('Unsqueeze', [name, self.integers(axes)])

    def squeeze(self, name: str, axes: Sequence[int]) -> str:
        if name in self.constants:
            return self.constant(self.constants[name].squeeze(tuple(axes)))
        axes_name, before = self.integers(axes), self.producers.get(name)
        is_undone = before is not None and list(before.input[1:]) == [axes_name]
        if before is not None and is_undone and before.op_type == 'Unsqueeze':
            return str(before.input[0])
        return self.add('Squeeze', [name, axes_name])

    def slice(
        self, name: str, starts: str, ends: str, axes: Sequence[int], steps: Sequence[int]
    ) -> str:
        inputs = [name, starts, ends, self.integers(axes), self.integers(steps)]
        return self.add('Slice', inputs)

    def deferred(self, small: str, sizes: Sequence[Dimension]) -> str:
        """A name for a tensor that is broadcast to a shape of the same rank."""
        name = self.new_name()
        self.broadcasts[name] = small, sizes
        return name

    def small(self, name: str) -> str:
        """The tensor of a name before a deferred broadcast, for operators that broadcast."""
        return self.broadcasts[name][0] if name in self.broadcasts else name

    def expanded(self, name: str) -> str:
        """The tensor of a name; adds the broadcast if the name stands for a deferred one."""
        if name not in self.broadcasts:
            return name
        small, sizes = self.broadcasts[name]
        return self.add('Expand', [small, self.shape(sizes)])


def value_info(
    name: str, aval: jax.ShapeDtypeStruct, dtype: DTypeLike | None = None
) -> ValueInfoProto:
    """Type and shape of an input or output; symbolic sizes by name."""
    sizes = [str(size) if jax.export.is_symbolic_dim(size) else int(size) for size in aval.shape]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype or aval.dtype))
    return helper.make_tensor_value_info(name, element, sizes)

"""Replaces groups of ONNX operators by the one operator that computes them.

Runtimes have fast kernels for LayerNormalization, Gelu and Softmax, and their optimizers and
quantizers look for these names. A pattern is a nested tuple (operator, input, …); an input is a
pattern, or a name that stands for one tensor, the same wherever the name occurs. Names in capitals
stand for constants, whose values the fusion checks.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from onnx import NodeProto, helper

from bert_jax.export_formats.onnx_graph import Graph

Pattern: TypeAlias = 'str | tuple[Any, ...]'
Tensors: TypeAlias = Mapping[str, str]  # name in a pattern → name of a tensor

_COMMUTATIVE = {'Add', 'Mul'}
_CLOSE = 1e-6  # relative, of constants


def _mean(x: Pattern) -> Pattern:
    return ('Div', ('Unsqueeze', ('ReduceSum', x, 'AXIS'), 'AXIS'), 'SIZE')


_CENTERED = ('Sub', 'x', _mean('x'))
_VARIANCE = _mean(('Mul', _CENTERED, _CENTERED))
_DEVIATION = ('Sqrt', ('Add', _VARIANCE, 'EPSILON'))
_SCALED = ('Mul', ('Mul', _CENTERED, ('Reciprocal', _DEVIATION)), 'SCALE')
_CUBE = ('Add', 'x', ('Mul', 'CUBIC', ('Pow', 'x', 'THREE')))
# Softmax does not depend on what is subtracted, if it is the same along the axis.
_EXP = ('Exp', ('Sub', 'x', ('Unsqueeze', 'largest', 'AXIS')))
_SUM = ('Unsqueeze', ('ReduceSum', _EXP, 'AXIS'), 'AXIS')
_IS_TYPE = ('Cast', ('Equal', ('Unsqueeze', 'x', 'AXIS'), 'NUMBERS'))


class Fusion(NamedTuple):
    """A group of operators and the operator that replaces it.

    Attributes:
        pattern: the group, from its output.
        constants: capital name → its value, where the value is known.
        fuse: (graph, tensors) → the inputs and attributes of the operator; None: no replacement.
    """

    pattern: tuple[Any, ...]
    constants: Mapping[str, float]
    operator: str
    fuse: Callable[[Graph, Tensors], tuple[list[str], dict[str, Any]] | None]


def _normalize(graph: Graph, tensors: Tensors) -> tuple[list[str], dict[str, Any]]:
    names = [name for name in ('SCALE', 'BIAS') if name in tensors]
    vectors = [graph.constant(graph.constants[tensors[name]].reshape(-1)) for name in names]
    epsilon = float(graph.constants[tensors['EPSILON']])
    return [tensors['x'], *vectors], {'axis': -1, 'epsilon': epsilon}


def _softmax(graph: Graph, tensors: Tensors) -> tuple[list[str], dict[str, Any]]:
    (axis,) = graph.constants[tensors['AXIS']].tolist()
    return [tensors['x']], {'axis': axis}


def _look_up(graph: Graph, tensors: Tensors) -> tuple[list[str], dict[str, Any]] | None:
    numbers = graph.constants[tensors['NUMBERS']].reshape(-1)
    rows = len(graph.constants[tensors['TABLE']])
    is_one_hot = np.array_equal(numbers, np.arange(rows))
    return ([tensors['TABLE'], tensors['x']], {}) if is_one_hot else None


def _of_x(graph: Graph, tensors: Tensors) -> tuple[list[str], dict[str, Any]]:
    return [tensors['x']], {}


_GELU = {'HALF': 0.5, 'ONE': 1.0, 'ROOT': math.sqrt(0.5)}
_GELU_TANH = {'HALF': 0.5, 'ONE': 1.0, 'CUBIC': 0.044715, 'THREE': 3.0}
_ERF = ('Add', 'ONE', ('Erf', ('Mul', 'x', 'ROOT')))
_TANH = ('Add', 'ONE', ('Tanh', ('Mul', 'ROOT', _CUBE)))
_FUSIONS = (
    Fusion(('Add', _SCALED, 'BIAS'), {}, 'LayerNormalization', _normalize),
    Fusion(_SCALED, {}, 'LayerNormalization', _normalize),
    Fusion(('Mul', ('Mul', 'HALF', 'x'), _ERF), _GELU, 'Gelu', _of_x),
    Fusion(
        ('Mul', 'x', ('Mul', 'HALF', _TANH)),
        _GELU_TANH | {'ROOT': math.sqrt(2 / math.pi)},
        'Gelu',
        lambda _, tensors: ([tensors['x']], {'approximate': 'tanh'}),
    ),
    Fusion(('Div', _EXP, _SUM), {}, 'Softmax', _softmax),
    Fusion(('MatMul', _IS_TYPE, 'TABLE'), {}, 'Gather', _look_up),
    # jax.numpy counts negative indices from the end, and so does Gather.
    Fusion(
        ('Gather', 'TABLE', ('Where', ('Less', 'x', 'ZERO'), ('Add', 'x', 'ROWS'), 'x')),
        {'ZERO': 0},
        'Gather',
        lambda _, tensors: ([tensors['TABLE'], tensors['x']], {}),
    ),
)


def fuse(graph: Graph, outputs: set[str]) -> None:
    """Replace groups of nodes, then remove the nodes on which no output depends."""
    for place, node in reversed([*enumerate(graph.nodes)]):  # the largest groups first
        for fusion in _FUSIONS:
            tensors: dict[str, str] = {}
            if not _matches(graph, fusion.pattern, node.output[0], tensors):
                continue
            if not _has_values(graph, tensors, fusion.constants):
                continue
            fused = fusion.fuse(graph, tensors)
            if fused is not None:
                inputs, attributes = fused
                new = helper.make_node(fusion.operator, inputs, list(node.output), **attributes)
                graph.nodes[place] = graph.producers[node.output[0]] = new
                break
    graph.nodes = _live_nodes(graph.nodes, outputs)


def _matches(graph: Graph, pattern: Pattern, name: str, tensors: dict[str, str]) -> bool:
    """Whether a tensor is computed as a pattern says; adds the tensors of the pattern's names."""
    if isinstance(pattern, str):
        if pattern.isupper() and name not in graph.constants:
            return False
        return tensors.setdefault(pattern, name) == name
    operator, *patterns = pattern
    node = graph.producers.get(name)
    if node is None or node.op_type != operator or len(node.input) != len(patterns):
        return False
    orders = [list(node.input)]
    if operator in _COMMUTATIVE:
        orders.append(orders[0][::-1])
    for order in orders:
        found = dict(tensors)
        if all(_matches(graph, *pair, found) for pair in zip(patterns, order, strict=True)):
            tensors.update(found)
            return True
    return False


def _has_values(graph: Graph, tensors: Tensors, constants: Mapping[str, float]) -> bool:
    return all(
        np.allclose(graph.constants[tensors[name]], value, _CLOSE, 0)
        for name, value in constants.items()
    )


def _live_nodes(nodes: list[NodeProto], outputs: set[str]) -> list[NodeProto]:
    live, kept = set(outputs), list[NodeProto]()
    for node in reversed(nodes):
        if live.intersection(node.output):
            live.update(names_read(node))
            kept.append(node)
    return kept[::-1]


def names_read(node: NodeProto) -> set[str]:
    """The tensors that a node reads; the body of a loop also reads tensors around it."""
    bodies = [inner for attribute in node.attribute for inner in attribute.g.node]
    return {*node.input}.union(*map(names_read, bodies))

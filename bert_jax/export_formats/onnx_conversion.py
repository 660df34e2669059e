"""Converts traced functions to ONNX models with symbolic shapes.

Each primitive of a jaxpr becomes a few operators (onnx_operators.py). Sizes that depend on the
inputs are computed in the graph, from the shape of an input.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import onnx
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var
from numpy.typing import ArrayLike
from onnx import helper, numpy_helper

from bert_jax.errors import UserError
from bert_jax.export_formats import onnx_fusion
from bert_jax.export_formats.onnx_graph import Equation, Graph, Size, value_info
from bert_jax.export_formats.onnx_operators import CONVERTERS, ELEMENTWISE
from bert_jax.types import Params

OPSET = 20  # the first with Gelu
IR_VERSION = 10
_INNER = ('jaxpr', 'call_jaxpr', 'fun_jaxpr')  # parameters that hold the jaxpr of a call


def to_model(
    function: Callable[..., Mapping[str, jax.Array]],
    params: Params,
    inputs: Mapping[str, jax.ShapeDtypeStruct],
) -> onnx.ModelProto:
    """Convert a function of params and inputs by name, which returns outputs by name.

    Args:
        params: nested dictionaries of arrays, which become constants.
        inputs: shapes of the inputs, int32; each symbolic dimension must be an axis of the first
            input. The inputs of the model are int64, as clients of ONNX models feed them.

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
    casts = [graph.cast(name, inputs[name].dtype) for name in sorted(inputs)]
    results = _run(graph, closed.jaxpr, closed.consts, [*leaves, *casts])
    for name, result in zip(sorted(outputs), results, strict=True):
        graph.nodes.append(helper.make_node('Identity', [graph.expanded(result)], [name]))
    onnx_fusion.fuse(graph, {*outputs})
    used = set[str]().union(*map(onnx_fusion.names_read, graph.nodes))
    proto = helper.make_graph(
        graph.nodes,
        'model',
        [value_info(name, inputs[name], np.int64) for name in inputs],
        [value_info(name, outputs[name]) for name in sorted(outputs)],
        [numpy_helper.from_array(a, n) for n, a in graph.constants.items() if n in used],
    )
    opset = helper.make_opsetid('', OPSET)
    return helper.make_model(
        proto, opset_imports=[opset], ir_version=IR_VERSION, producer_name='bert_jax'
    )


def _run(
    graph: Graph, jaxpr: Jaxpr, constants: Sequence[ArrayLike], inputs: Sequence[str]
) -> list[str]:
    """Add the equations of a jaxpr; return the names of its outputs, broadcasts deferred."""
    names: dict[Var, str] = dict(zip(jaxpr.invars, inputs, strict=True))
    for variable, value in zip(jaxpr.constvars, constants, strict=True):
        names[variable] = graph.constant(value)

    def read(atom: Literal | Var) -> str:
        if isinstance(atom, Literal):
            aval: Any = atom.aval  # abstract in the types of JAX
            return graph.constant(atom.val, aval.dtype)
        return names[atom]

    for equation in _live_equations(jaxpr):
        outputs = _convert(graph, equation, [read(atom) for atom in equation.invars])
        names.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _live_equations(jaxpr: Jaxpr) -> list[Equation]:
    """The equations on which an output depends."""
    live = {atom for atom in jaxpr.outvars if not isinstance(atom, Literal)}
    equations = []
    for equation in reversed(jaxpr.eqns):
        if live.intersection(equation.outvars):
            live.update(atom for atom in equation.invars if not isinstance(atom, Literal))
            equations.append(equation)
    return equations[::-1]


def _convert(graph: Graph, equation: Equation, inputs: list[str]) -> list[str]:
    primitive, parameters = equation.primitive.name, equation.params
    if primitive == 'scan':
        return _scan(graph, equation, *map(graph.expanded, inputs))
    inner = next((parameters[key] for key in _INNER if key in parameters), None)
    if inner is not None and primitive not in CONVERTERS:
        closed = isinstance(inner, ClosedJaxpr)
        jaxpr, constants = (inner.jaxpr, inner.consts) if closed else (inner, ())
        return _run(graph, jaxpr, constants, inputs)
    if primitive not in CONVERTERS:
        raise UserError(f'--format=onnx has no operators for {primitive}')
    if primitive not in ELEMENTWISE:
        inputs = [graph.expanded(name) for name in inputs]
    outputs = CONVERTERS[primitive](graph, equation, *inputs)
    return [outputs] if isinstance(outputs, str) else outputs


def _scan(graph: Graph, equation: Equation, *inputs: str) -> list[str]:
    """The operator Scan, whose body is a graph that sees the tensors around it."""
    closed, reverse = equation.params['jaxpr'], int(equation.params['reverse'])
    num_scanned, num_stacked = (
        sum(outer.aval.ndim > inner.aval.ndim for outer, inner in zip(*variables, strict=True))
        for variables in (
            (equation.invars, closed.jaxpr.invars),
            (equation.outvars, closed.jaxpr.outvars),
        )
    )
    num_consts = len(inputs) - num_scanned - (len(equation.outvars) - num_stacked)
    body = Graph(graph)
    names = [body.new_name() for _ in inputs[num_consts:]]
    outputs = _run(body, closed.jaxpr, closed.consts, [*inputs[:num_consts], *names])
    outputs = [
        body.add_many('Identity', [body.expanded(name)], 1)[0] for name in outputs
    ]  # distinct tensors of the body
    variables = closed.jaxpr.invars[num_consts:]
    proto = helper.make_graph(
        body.nodes,
        graph.new_name(),
        [value_info(name, v.aval) for name, v in zip(names, variables, strict=True)],
        [value_info(name, v.aval) for name, v in zip(outputs, closed.jaxpr.outvars, strict=True)],
    )
    directions = {
        'scan_input_directions': [reverse] * num_scanned,
        'scan_output_directions': [reverse] * num_stacked,
    }
    return graph.add_many(
        'Scan',
        inputs[num_consts:],
        len(outputs),
        body=proto,
        num_scan_inputs=num_scanned,
        **{name: values for name, values in directions.items() if values},  # ONNX: none if empty
    )

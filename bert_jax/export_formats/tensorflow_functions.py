"""Converts exported computations to TensorFlow functions."""

from collections.abc import Callable
from typing import Any

import jax
import jax.export
import numpy as np

from bert_jax import tensorflow_import
from bert_jax.export_formats import stablehlo_programs
from bert_jax.export_formats.computation import Computation

_PLATFORMS = ('cpu', 'cuda', 'tpu')
# TensorFlow 2.21 reads versions up to 1.13.7; a newer JAX writes for readers of the last weeks.
_STABLEHLO = '1.13.0'


class TensorFlowFunctions:
    """A computation as TensorFlow functions of several shapes, which share their variables.

    Attributes:
        module: a tf.Module that holds the variables.
    """

    def __init__(self, computation: Computation) -> None:
        """Make a variable of each parameter."""
        self._tensorflow = tensorflow_import.tensorflow()
        self._computation = computation
        self._variables = jax.tree.map(
            lambda array: self._tensorflow.Variable(array, trainable=False), computation.params
        )
        self.module = self._tensorflow.Module()
        self.module.weights = jax.tree.leaves(self._variables)

    def concrete(self, batch: int | None, length: int | None, longest: int = 0) -> Any:
        """The concrete function for an input shape.

        Args:
            batch, length: both None for any number of texts and any length up to `longest`.
        """
        tensorflow, computation = self._tensorflow, self._computation
        shapes = {
            name: [batch, *(length if size == 't' else size for size in shape)]
            for name, shape in computation.inputs.items()
        }
        inputs = (
            {name: jax.ShapeDtypeStruct(shape, np.int32) for name, shape in shapes.items()}
            if length
            else computation.symbolic_inputs(longest)
        )
        exported = jax.export.export(
            jax.jit(computation.function), platforms=('cpu',) if length else _PLATFORMS
        )(
            jax.tree.map(
                lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), computation.params
            ),
            inputs,
        )
        call = self._operation(exported)

        def function(**inputs: object) -> object:
            return call(self._variables, inputs)

        signature = {
            name: tensorflow.TensorSpec(shape, tensorflow.int32, name=name)
            for name, shape in shapes.items()
        }
        traced = tensorflow.function(function, autograph=False)
        return traced.get_concrete_function(**signature)

    def _operation(self, exported: jax.export.Exported) -> Callable[..., Any]:
        """Return a function that runs an exported program by TensorFlow's operation for it."""
        from tensorflow.compiler.tf2xla.python import xla  # as jax2tf, which cannot choose versions

        tensorflow = self._tensorflow
        attributes = {
            'version': exported.calling_convention_version,
            'module': stablehlo_programs.rewrite(exported.mlir_module_serialized, _STABLEHLO),
            'Sout': [
                [size if isinstance(size, int) else None for size in output.shape]
                for output in exported.out_avals
            ],
            'Tout': [tensorflow.as_dtype(output.dtype) for output in exported.out_avals],
            'platforms': [platform.upper() for platform in exported.platforms],
        }

        def call(*arguments: object) -> Any:
            leaves = jax.tree.leaves(arguments)
            kept = [tensorflow.convert_to_tensor(leaves[i]) for i in exported.module_kept_var_idx]
            results = xla.call_module(kept, **attributes)
            return jax.tree.unflatten(exported.out_tree, results)

        return call

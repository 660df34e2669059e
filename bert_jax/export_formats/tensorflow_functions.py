"""Converts exported computations to TensorFlow functions."""

from typing import Any

import jax

from bert_jax import tensorflow_import
from bert_jax.export_formats.computation import Computation

_PLATFORMS = ('cpu', 'cuda', 'tpu')


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

    def concrete(self, batch: int | None, length: int | None, longest: int | None = None) -> Any:
        """The concrete function for an input shape.

        Args:
            batch, length: both None for any number of texts and any length up to `longest`.
        """
        from jax.experimental import jax2tf  # imports TensorFlow

        tensorflow, computation = self._tensorflow, self._computation
        shapes = {
            name: [batch, *(length if size == 't' else size for size in shape)]
            for name, shape in computation.inputs.items()
        }
        symbolic = {
            name: f'({", ".join(map(str, ("b", *shape)))})'
            for name, shape in computation.inputs.items()
        }
        converted = jax2tf.convert(
            computation.function,
            with_gradient=False,
            polymorphic_shapes=None if length else [None, symbolic],
            polymorphic_constraints=() if length else (f't <= {longest}',),
            native_serialization_platforms=('cpu',) if length else _PLATFORMS,
        )

        def function(**inputs: object) -> object:
            return converted(self._variables, inputs)

        signature = {
            name: tensorflow.TensorSpec(shape, tensorflow.int32, name=name)
            for name, shape in shapes.items()
        }
        traced = tensorflow.function(function, autograph=False)
        return traced.get_concrete_function(**signature)

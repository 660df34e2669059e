"""StableHLO: a program of XLA for CPU, CUDA and TPU, with its weights as arguments."""

import pathlib
from typing import Any

import jax
import jax.export
from flax import traverse_util

from bert_jax import tree_paths
from bert_jax.export_formats.base import Export, Format, Result
from bert_jax.interop import weights

_PLATFORMS = ('cpu', 'cuda', 'tpu')


class StableHlo(Format):
    """model.stablehlo, for any number of texts and any length, and weights.safetensors.

    Weights are arguments: the program then has tens of kilobytes, and whoever runs it decides where
    they are.
    """

    runtime = (f'jax>={jax.__version__}', 'flatbuffers', 'safetensors')

    def write(self, export: Export, folder: pathlib.Path) -> Result:
        computation, longest = export.computation, export.model.architecture.max_length
        arrays = tree_paths.flatten(computation.params)

        def function(arrays: Any, inputs: Any) -> Any:
            return computation.function(traverse_util.unflatten_dict(arrays, sep='/'), inputs)

        batch, length = jax.export.symbolic_shape('b, t', constraints=[f't <= {longest}'])
        shapes = jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), arrays)
        exported = jax.export.export(jax.jit(function), platforms=_PLATFORMS)(
            shapes, computation.abstract_inputs(batch, length)
        )
        (folder / 'model.stablehlo').write_bytes(exported.serialize())
        weights.write(folder / 'weights.safetensors', arrays)
        return Result()

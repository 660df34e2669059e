"""StableHLO: a program of XLA for CPU, CUDA and TPU, with its weights as arguments."""

import pathlib

import jax
from flax import traverse_util

from bert_jax import tree_paths
from bert_jax.export_formats.base import Export, Format, Result
from bert_jax.export_formats.computation import Arrays
from bert_jax.interop import weights

_PLATFORMS = ('cpu', 'cuda', 'tpu')


class StableHlo(Format):
    """model.stablehlo, for any number of texts and any length, and weights.safetensors.

    Weights are arguments: the program has tens of kilobytes, and its user chooses their device.
    """

    runtime = (f'jax>={jax.__version__}', 'flatbuffers', 'safetensors')

    def write(self, export: Export, folder: pathlib.Path) -> Result:
        computation = export.computation
        arrays = tree_paths.flatten(computation.params)

        def function(arrays: Arrays, inputs: Arrays) -> dict[str, jax.Array]:
            return computation.function(traverse_util.unflatten_dict(arrays, sep='/'), inputs)

        shapes = jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), arrays)
        exported = jax.export.export(jax.jit(function), platforms=_PLATFORMS)(
            shapes, computation.symbolic_inputs(export.model.architecture.max_length)
        )
        (folder / 'model.stablehlo').write_bytes(exported.serialize())
        weights.write(folder / 'weights.safetensors', arrays)
        return Result()

"""StableHLO: a program of XLA for CPU, CUDA and TPU, with its weights as arguments."""

import dataclasses
import pathlib
from collections.abc import Mapping

import jax
import jax.export
from flax import traverse_util

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.export_formats import stablehlo_programs
from bert_jax.export_formats.base import Export, Format, Result
from bert_jax.export_formats.computation import Arrays
from bert_jax.interop import weights

_PLATFORMS = ('cpu', 'cuda', 'tpu')


class StableHlo(Format):
    """model.stablehlo, for any number of texts and any length, and weights.safetensors.

    Weights are arguments: the program has tens of kilobytes, and its user chooses their device.
    With the option `shape`, the program has a fixed shape, and model.mlirbc is the same program for
    compilers other than JAX, such as IREE.
    """

    runtime = (f'jax>={jax.__version__}', 'flatbuffers', 'safetensors')

    def write(self, export: Export, folder: pathlib.Path) -> Result:
        computation, shape = export.computation, export.options.shape
        arrays = tree_paths.flatten(computation.params)

        def function(arrays: Arrays, inputs: Arrays) -> dict[str, jax.Array]:
            return computation.function(traverse_util.unflatten_dict(arrays, sep='/'), inputs)

        shapes = jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), arrays)
        longest = export.model.architecture.max_length
        if shape:
            _check_shape(shape, longest)
            inputs = computation.fixed_inputs(*shape)
        else:
            inputs = computation.symbolic_inputs(longest)
        exported = jax.export.export(jax.jit(function), platforms=_PLATFORMS)(shapes, inputs)
        program = stablehlo_programs.program_of(exported)
        portable = dataclasses.replace(exported, mlir_module_serialized=program)
        (folder / 'model.stablehlo').write_bytes(portable.serialize())
        weights.write(folder / 'weights.safetensors', arrays)
        if not shape:
            return Result()
        exported = jax.export.export(jax.jit(function), platforms=('cpu',))(shapes, inputs)
        (folder / 'model.mlirbc').write_bytes(stablehlo_programs.program_of(exported))
        signature = {'shape': list(shape), 'arguments': _arguments(exported, arrays, inputs)}
        return Result(signature)


def _check_shape(shape: tuple[int, ...], longest: int) -> None:
    if len(shape) != 2 or not 3 <= shape[1] <= longest:
        given = ','.join(map(str, shape))
        raise UserError(
            f'--shape is {given}; it is a number of texts and a number of tokens from 3 to '
            f'{longest}, such as 1,{longest}'
        )


def _arguments(
    exported: jax.export.Exported, arrays: Arrays, inputs: Mapping[str, object]
) -> list[str]:
    """The names of the arguments of the program; it has none for unused arrays."""
    names = [*sorted(arrays), *sorted(inputs)]
    return [names[index] for index in exported.module_kept_var_idx]

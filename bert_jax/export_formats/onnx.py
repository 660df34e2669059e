"""ONNX: one file for ONNX Runtime and the many others that read it."""

import pathlib

import jax.export
import numpy as np

from bert_jax import tree_paths
from bert_jax.export_formats.base import Export, Format, Result

_MAX_BYTES = 2**31 - 2**26  # of a file of protobuf; larger weights are in a file beside it


class Onnx(Format):
    """model.onnx, for any number of texts and any length, written operator by operator."""

    requires = {'onnx': 'onnx==1.23.2', 'onnxruntime': 'onnxruntime==1.32.0'}
    runtime = ('onnxruntime>=1.20',)

    def write(self, export: Export, folder: pathlib.Path) -> Result:
        import onnx

        from bert_jax.export_formats import onnx_conversion

        computation, longest = export.computation, export.model.architecture.max_length
        batch, length = jax.export.symbolic_shape('b, t', constraints=[f't <= {longest}'])
        inputs = computation.abstract_inputs(batch, length)
        model = onnx_conversion.to_model(computation.function, computation.params, inputs)
        arrays = tree_paths.flatten(computation.params).values()
        is_large = sum(np.asarray(array).nbytes for array in arrays) > _MAX_BYTES
        path, beside = str(folder / 'model.onnx'), 'model.onnx.data'
        onnx.save_model(model, path, save_as_external_data=is_large, location=beside)
        onnx.checker.check_model(path)
        return Result()

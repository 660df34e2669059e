"""ONNX: one file for ONNX Runtime and many other libraries."""

import pathlib

import jax
import numpy as np

from bert_jax.export_formats.base import Export, Format, Result

_MAX_BYTES = 2**31 - 2**26  # of a protobuf file; larger weights go to a second file


class Onnx(Format):
    """model.onnx, for any number of texts and any length, written operator by operator."""

    requires = {'onnx': 'onnx==1.23.2', 'onnxruntime': 'onnxruntime==1.32.0'}
    runtime = ('onnxruntime>=1.20',)

    def write(self, export: Export, folder: pathlib.Path) -> Result:
        import onnx

        from bert_jax.export_formats import onnx_conversion

        computation = export.computation
        inputs = computation.symbolic_inputs(export.model.architecture.max_length)
        model = onnx_conversion.to_model(computation.function, computation.params, inputs)
        arrays = jax.tree.leaves(computation.params)
        is_large = sum(np.asarray(array).nbytes for array in arrays) > _MAX_BYTES
        path = str(folder / 'model.onnx')
        onnx.save_model(model, path, save_as_external_data=is_large, location='model.onnx.data')
        onnx.checker.check_model(path)
        return Result()

"""TensorFlow Lite (LiteRT): one file of built-in operators, for phones and small devices."""

import pathlib
import re
import tempfile

import numpy as np

from bert_jax import tensorflow_import
from bert_jax.errors import UserError
from bert_jax.export_formats.base import Export, Format, Result
from bert_jax.export_formats.tensorflow_functions import TensorFlowFunctions

_LENGTHS = (32, 128)  # and the longest
_DTYPES = ('float32', 'int8')
# Relative to the largest output, if above 1; detects a broken file, not a loss of quality.
_INT8_TOLERANCE = 0.5


class TensorFlowLite(Format):
    """model.tflite, with a signature `tokens_T` for one text of length T, for several T.

    TensorFlow Lite has no symbolic shapes; the signatures share the weights. With dtype 'int8',
    weight matrices are int8 with a scale for each row, and activations are quantized at run time.
    """

    requires = {'ai_edge_litert': 'ai-edge-litert==2.3.0'}
    needs_tensorflow = True
    runtime = ('ai-edge-litert>=2.3',)
    has_erf = False

    def write(self, export: Export, folder: pathlib.Path) -> Result:
        tensorflow = tensorflow_import.tensorflow()
        lengths, dtype = _lengths(export), export.options.dtype
        if dtype not in _DTYPES:
            raise UserError(f'--dtype is {dtype!r}; --format=tflite supports {", ".join(_DTYPES)}')
        functions = TensorFlowFunctions(export.computation)
        signatures = {f'tokens_{length}': functions.concrete(1, length) for length in lengths}
        with tempfile.TemporaryDirectory() as saved:
            tensorflow.saved_model.save(functions.module, saved, signatures=signatures)
            converter = tensorflow.lite.TFLiteConverter.from_saved_model(
                saved, signature_keys=list(signatures)
            )
            if dtype == 'int8':
                converter.optimizations = [tensorflow.lite.Optimize.DEFAULT]
            try:
                (folder / 'model.tflite').write_bytes(converter.convert())
            except Exception as error:  # TensorFlow does not export the converter's exception
                missing = re.search(r"error: '(\S+)' op", str(error))
                reason = f'{missing[1]} is not built in' if missing else str(error).splitlines()[0]
                raise UserError(f'--format=tflite cannot express the model: {reason}') from error
        signature = {'lengths': lengths, 'dtype': dtype}
        if dtype == 'float32':
            return Result(signature)
        largest = {name: float(np.nanmax(np.abs(x))) for name, x in export.expected.items()}
        tolerance = {name: _INT8_TOLERANCE * max(1, size) for name, size in largest.items()}
        return Result(
            signature | {'tolerance': tolerance},
            ('int8 changes the outputs: compare scores on your own data',),
        )


def _lengths(export: Export) -> list[int]:
    """The lengths of the signatures, ascending. Raises UserError if one is not valid."""
    longest, lengths = export.max_length, export.options.lengths
    for length in lengths:
        if not 3 <= length <= longest:
            raise UserError(f'--lengths has {length}, must be from 3 to {longest}')
    return sorted({*(n for n in lengths or _LENGTHS if n < longest), longest})

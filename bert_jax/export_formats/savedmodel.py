"""SavedModel: a folder that TensorFlow loads, and TensorFlow Serving serves."""

import pathlib

from bert_jax import tensorflow_import
from bert_jax.export_formats.base import Export, Format, Result
from bert_jax.export_formats.tensorflow_functions import TensorFlowFunctions


class SavedModel(Format):
    """The folder `model`, with one signature for any number of texts and any length.

    TensorFlow has an operation for programs of XLA, so no other package is needed.
    """

    needs_tensorflow = True
    runtime = ('tensorflow>=2.21',)
    has_erf = False  # the StableHLO of TensorFlow 2.21 lacks it

    def write(self, export: Export, folder: pathlib.Path) -> Result:
        functions = TensorFlowFunctions(export.computation)
        function = functions.concrete(None, None, export.model.architecture.max_length)
        tensorflow_import.tensorflow().saved_model.save(
            functions.module, str(folder / 'model'), signatures={'serving_default': function}
        )
        return Result()

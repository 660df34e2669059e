"""Exports models to formats of other libraries, which run them without bert_jax.

computation.py has the exported function, samples.py three inputs with the outputs of bert_jax,
folder.py the folder around a format. A format is a file with a subclass of `Format`, a line in
FORMATS, and a file in loaders.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bert_jax.export_formats.base import Format

FORMATS = {
    'onnx': 'bert_jax.export_formats.onnx:Onnx',
    'savedmodel': 'bert_jax.export_formats.savedmodel:SavedModel',
    'sentence_transformers': 'bert_jax.export_formats.sentence_transformers:SentenceTransformers',
    'stablehlo': 'bert_jax.export_formats.stablehlo:StableHlo',
    'tflite': 'bert_jax.export_formats.tflite:TensorFlowLite',
}


def load(name: str) -> 'Format':
    """Import the format of this name."""
    module, _, class_name = FORMATS[name].partition(':')
    made: Format = getattr(importlib.import_module(module), class_name)()
    return made

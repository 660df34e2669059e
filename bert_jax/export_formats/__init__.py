"""Exports models to formats of other libraries, which run them without bert_jax.

computation.py has the exported function, samples.py three inputs with the outputs of bert_jax,
folder.py the folder around a format. A format is a file with a subclass of `Format`, a line in
FORMATS, and a file in loaders.
"""

from typing import TYPE_CHECKING

from bert_jax.lazy_table import LazyTable

if TYPE_CHECKING:
    from bert_jax.export_formats.base import Format

FORMATS: 'LazyTable[type[Format]]' = LazyTable(
    {
        'onnx': 'bert_jax.export_formats.onnx:Onnx',
        'savedmodel': 'bert_jax.export_formats.savedmodel:SavedModel',
        'sentence_transformers': 'bert_jax.export_formats.sentence_transformers:SentenceTransformers',  # noqa: E501
        'stablehlo': 'bert_jax.export_formats.stablehlo:StableHlo',
        'tflite': 'bert_jax.export_formats.tflite:TensorFlowLite',
    }
)

"""ONNX: a folder for ONNX Runtime, transformers.js, fastembed, optimum and others."""

import dataclasses
import pathlib

import jax
import numpy as np

from bert_jax import files
from bert_jax.errors import UserError
from bert_jax.export_formats.base import Export, Format, Result
from bert_jax.interop import huggingface_config, huggingface_export

_MAX_BYTES = 2**31 - 2**26  # of a protobuf file; larger weights go to a second file


class Onnx(Format):
    """onnx/model.onnx, for any number of texts and any length, and the config of transformers."""

    requires = {'onnx': 'onnx==1.23.2', 'onnxruntime': 'onnxruntime==1.32.0'}
    runtime = ('onnxruntime>=1.20',)
    input_dtype = 'int64'

    def write(self, export: Export, folder: pathlib.Path) -> Result:
        import onnx

        from bert_jax.export_formats import onnx_conversion, onnx_variants

        computation = export.computation
        inputs = computation.symbolic_inputs(export.model.architecture.max_length)
        model = onnx_conversion.to_model(computation.function, computation.params, inputs)
        arrays = jax.tree.leaves(computation.params)
        is_large = sum(np.asarray(array).nbytes for array in arrays) > _MAX_BYTES
        (folder / 'onnx').mkdir()
        path = str(folder / 'onnx/model.onnx')
        onnx.save_model(model, path, save_as_external_data=is_large, location='model.onnx_data')
        onnx.checker.check_model(path)
        lines = onnx_variants.write(export.options.variants, export, folder / 'onnx')
        lines = [*_write_config(export, folder), *_name_tokenizer(export, folder), *lines]
        return Result(lines=tuple(lines))


def _name_tokenizer(export: Export, folder: pathlib.Path) -> list[str]:
    """Name the class of tokenizers whose pairs have token types in transformers.js.

    It reads tokenizer.json for every class, but gives the second text of a pair another type only
    for the classes of some models. transformers encodes WordPiece alike by both classes.

    Returns:
        A line if no class fits.
    """
    tokenizer = export.model.tokenizer
    if 'token_type_ids' not in export.computation.inputs or tokenizer is None:
        return []
    if tokenizer.kind != 'wordpiece':
        return ['transformers.js gives both texts of a pair the token type 0 with this tokenizer']
    path = folder / 'tokenizer_config.json'
    files.write_json(path, files.read_json(path) | {'tokenizer_class': 'BertTokenizer'})
    return []


def _write_config(export: Export, folder: pathlib.Path) -> tuple[str, ...]:
    """Write config.json, from which clients learn the kind of model and the names of classes.

    Returns:
        A line if the folder has none.
    """
    model = export.model
    if export.task == 'embed':
        params = {'encoder': model.params['encoder']}
        model = dataclasses.replace(model, params=params, labels=())
    try:
        published, _ = huggingface_export.publishable(model)
        huggingface_config.write(published, folder)
    except UserError as error:
        return (f'no config.json, without which transformers.js does not open the folder: {error}',)
    return ()

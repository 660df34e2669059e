"""sentence-transformers: a Hugging Face folder with its pooling, dense layers and normalization."""

import dataclasses
import pathlib

from bert_jax.export_formats.base import Export, Format, Result
from bert_jax.interop import huggingface_export
from bert_jax.loaded.sentence_modules import SentenceModules


class SentenceTransformers(Format):
    """A folder for SentenceTransformer(FOLDER): the encoder, modules.json and the modules.

    Without modules.json the library takes the mean of at most 512 tokens, without normalization.
    """

    requires = {'sentence_transformers': 'sentence-transformers==6.2.0'}
    runtime = ('sentence-transformers>=5',)
    only_task = 'embed'

    def write(self, export: Export, folder: pathlib.Path) -> Result:
        model, length = export.model, export.max_length
        modules = model.sentence_modules or SentenceModules()
        encoder = dataclasses.replace(
            model,
            params={'encoder': model.params['encoder']},
            labels=(),
            sentence_modules=dataclasses.replace(modules, max_length=length),
        )
        _, lines = huggingface_export.write(encoder, folder)
        note = f'sentence-transformers truncates texts to {length} tokens without a warning'
        return Result(lines=(*lines, note))

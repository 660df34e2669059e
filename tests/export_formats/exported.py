"""Small models, exported, and the loaders of their folders."""

import dataclasses
import importlib
import sys

import numpy as np

from bert_jax.export_formats import folder
from bert_jax.export_formats.base import FormatOptions
from bert_jax.inference.predictor import Predictor
from tests.page import pages

TEXTS = ['The cats sat on the mats; the dog sits.', 'dogs', '', "we're 3.14 € poorer, aren't we?"]


def write(path, format_name, model, **options):
    """The folder of a model in a format, and what was reported."""
    fields = {field.name for field in dataclasses.fields(FormatOptions)}
    of_format = FormatOptions(**{k: v for k, v in options.items() if k in fields})
    others = {name: value for name, value in options.items() if name not in fields}
    return folder.write(model, 'the model', path, format_name, options=of_format, **others)


def loader(path):
    """The module load.py of a folder."""
    names = ('load', 'runtime')
    sys.path.insert(0, str(path))
    try:
        for name in names:
            sys.modules.pop(name, None)
        return importlib.import_module('load')
    finally:
        sys.path.remove(str(path))
        for name in names:
            sys.modules.pop(name, None)


def small_model(**changes):
    """A BERT with a masked-language-model head."""
    return pages.random_model('bert', pages.tokenizer('wordpiece'), **changes)


def embeds_like_predict(path, model, texts):
    """Whether the vectors of a folder are those of `embed` but for rounding."""
    ours, load = Predictor(model).embed(texts), loader(path)
    difference = np.abs(load.run(texts)['sentence_embedding'] - ours).max()
    return difference <= load.SIGNATURE['tolerance']['sentence_embedding']

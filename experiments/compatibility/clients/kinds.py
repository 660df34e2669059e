"""Small models of every kind, with random weights, exported."""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from bert_jax import tokenizers
from bert_jax.export_formats import folder, huggingface
from bert_jax.export_formats.base import FormatOptions
from bert_jax.interop import loading
from bert_jax.loaded import loaded_model
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.loaded.record import Usage
from bert_jax.loaded.sentence_modules import Normalize, SentenceModules
from bert_jax.models import architectures
from bert_jax.models.heads import HEADS
from bert_jax.models.sparse_pooling import SparsePooling
from tests.inference import small_runs

_LINES = ['The ship left at dawn; nobody saw it leave. Good news from Oslo and Bern, Anna!'] * 5
_SIZES = {'hidden_size': 64, 'num_heads': 2, 'max_position_embeddings': 64}
_LAYERS = {'num_layers': 2, 'intermediate_size': 128}
# Shape of programs for compilers that need a fixed one. With one row, IREE 3.13 turns the mean over
# tokens into a product of a vector of truth values, which it then cannot compile.
_SHAPE = (2, 48)


def _random(
    name: str, tokenizer: str, heads: tuple[str, ...] = (), number: int = 2, **fields: Any
) -> LoadedModel:
    """A model with normal noise of deviation 0.12, six times the usual, around 1 in norms."""
    trained = tokenizers.train(tokenizer, _LINES)
    sizes = _SIZES | _LAYERS | {'vocab_size': trained.vocab_size}
    if name in ('bart', 't5_1_0'):
        sizes['decoder.num_layers'] = 2
    architecture = architectures.build(name, **sizes)
    rng = np.random.default_rng(0)

    def draw(path: Any, leaf: Any) -> np.ndarray:
        mean = float(path[-1].key == 'scale')
        return rng.normal(mean, 0.12, leaf.shape).astype(np.float32)

    shapes = nn.unbox(loaded_model.abstract(architecture, heads, number))
    params = jax.tree.map_with_path(draw, shapes)
    family = architectures.find(name).family
    return LoadedModel(family, architecture, params, trained, **fields)


def _bert(*heads: str, **fields: Any) -> LoadedModel:
    return _random('bert', 'wordpiece:150', heads, **fields)


def _relation(scratch: pathlib.Path) -> LoadedModel:
    return loading.load_any(small_runs.save_run(scratch / 'relation', 'relation'))


_CLASSES = 'sequence_classification'
_MEAN = SentenceModules(('mean',), (Normalize(),))
# Name → makes the model, given a folder for files.
KINDS: dict[str, Callable[[pathlib.Path], LoadedModel]] = {
    'BERT': lambda _: _bert('mlm'),
    'RoBERTa': lambda _: _random('roberta', 'bytebpe:300', ('mlm',)),
    'embedding': lambda _: _bert(sentence_modules=_MEAN),
    'classifier': lambda _: _bert(_CLASSES, labels=('no', 'yes')),
    'multi-label': lambda _: _bert(
        _CLASSES,
        number=3,
        labels=('a', 'b', 'c'),
        problem_type='multi_label_classification',
    ),
    'reranker': lambda _: _bert(
        _CLASSES,
        number=1,
        labels=('score',),
        activation_fn='torch.nn.modules.linear.Identity',
        usage=Usage(texts=2),
    ),
    'tagger': lambda _: _bert('token_classification', number=3, labels=('O', 'B-X', 'I-X')),
    'answers': lambda _: _bert('question_answering'),
    'relations': _relation,
    'sparse': lambda _: _bert(
        'mlm', sentence_modules=SentenceModules(unsupported='SpladePooling', sparse=SparsePooling())
    ),
    'GPT-2': lambda _: _random('gpt2', 'bytebpe:300', is_causal=True),
    'BART': lambda _: _random('bart', 'bytebpe:300', ('seq2seq',)),
    'T5': lambda _: _random('t5_1_0', 'unigram:60:sentinels=5:cls=no', ('seq2seq',)),
}


def export(kind: str, format_name: str, path: pathlib.Path) -> None:
    """Export the model of a kind; `path` is the folder to make.

    Raises:
        UserError: the format has no such models.
    """
    model = KINDS[kind](path.parent / 'scratch')
    if format_name == 'huggingface':
        if not any(HEADS[head].writes for head in model.heads):  # their readers know encoders
            params = {'encoder': model.params['encoder']}
            model = dataclasses.replace(model, params=params, labels=(), activation_fn=None)
        huggingface.write(model, path, overwrite=True)
        return
    task = {'embedding': 'embed', 'RoBERTa': 'embed'}.get(kind)
    if kind == 'RoBERTa':
        model = dataclasses.replace(model, params={'encoder': model.params['encoder']})
    options = FormatOptions(shape=_SHAPE if format_name == 'stablehlo' else ())
    folder.write(model, kind, path, format_name, task, overwrite=True, options=options)

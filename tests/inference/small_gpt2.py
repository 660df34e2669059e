"""A small folder of GPT-2 with a vocabulary of bytes, as transformers writes its files."""

import json
import pathlib

import numpy as np

from bert_jax import tokenizers
from bert_jax.interop import huggingface_export
from bert_jax.loaded.loaded_model import LoadedModel, build_model
from bert_jax.models import architectures
from bert_jax.models.rows import Rows
from bert_jax.tokenizers import Tokenizer, byte_bpe
from tests.random_parameters import random_parameters


def folder(path: pathlib.Path) -> pathlib.Path:
    """Write a folder with random weights below `path`."""
    from transformers import GPT2TokenizerFast

    vocab = {token: index for index, token in enumerate([*byte_bpe._BYTES, '<|endoftext|>'])}
    (path / 'vocab.json').write_text(json.dumps(vocab))
    (path / 'merges.txt').write_text('#version: 0.2\n')
    theirs = GPT2TokenizerFast(vocab=str(path / 'vocab.json'), merges=str(path / 'merges.txt'))
    theirs.save_pretrained(path / 'tokenizer')
    huggingface_export.save(make('gpt2', tokenizers.load(str(path / 'tokenizer'))), path / 'model')
    return path / 'model'


def make(name: str, tokenizer: Tokenizer, max_length: int = 160) -> LoadedModel:
    """A causal model with random weights."""
    sizes = dict(hidden_size=16, num_layers=2, num_heads=2, intermediate_size=32)
    size = tokenizer.vocab_size
    architecture = architectures.build(
        name, vocab_size=size, max_position_embeddings=max_length, **sizes
    )
    model = build_model(architecture, ['clm'], is_causal=True)
    rows = Rows(np.zeros((1, 8), np.int32), np.ones((1, 8), np.int32))
    params = random_parameters(model, rows, deviation=0.5)
    family = architectures.find(name).family
    return LoadedModel(family, architecture, params, tokenizer, is_causal=True)

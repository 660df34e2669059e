"""The parsers of files that strangers send, each with valid samples to damage."""

import argparse
import io
import json
import os
import pathlib
import tempfile
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import safetensors.numpy
import sentencepiece
import torch

from bert_jax import files, problems, tokenizers
from bert_jax.corpus import corpus, corpus_writer
from bert_jax.interop import families, torch_file, weights
from bert_jax.labels import formats
from bert_jax.storage import names
from tests.interop import published
from tests.labels import reading


class Parser(NamedTuple):
    """A parser.

    Attributes:
        samples: Valid files.
        read: Reads a file with the bytes of a damaged sample in an empty folder.
    """

    samples: list[bytes]
    read: Callable[[bytes, pathlib.Path], object]


def _torch_samples(is_fairseq: bool = False) -> list[bytes]:
    state = {'a.weight': torch.ones(4, 3), 'a.bias': torch.zeros(3, dtype=torch.float16)}
    if is_fairseq:
        options = argparse.Namespace(arch='roberta', encoder_layers=2, dropout=0.1)
        state = {'args': options, 'model': state, 'extra_state': {'epoch': 1}}
    samples = []
    for is_zip in (True, False):
        buffer = io.BytesIO()
        torch.save(state, buffer, _use_new_zipfile_serialization=is_zip)
        samples.append(buffer.getvalue())
    return samples


def _arrays() -> dict[str, np.ndarray]:
    return {'a.weight': np.ones((4, 3), np.float32), 'a.bias': np.zeros(3, np.float16)}


def _index() -> dict[str, object]:
    return {'metadata': {}, 'weight_map': dict.fromkeys(_arrays(), 'model-1.safetensors')}


def _read_file(name: str, read: Callable[[pathlib.Path], object]):
    def call(data: bytes, folder: pathlib.Path) -> object:
        (folder / name).write_bytes(data)
        return read(folder / name)

    return call


def _read_index(data: bytes, folder: pathlib.Path) -> object:
    safetensors.numpy.save_file(_arrays(), folder / 'model-1.safetensors')
    (folder / 'model.safetensors.index.json').write_bytes(data)
    return weights.read(folder)


def _read_tokenizer(path: pathlib.Path) -> object:
    tokenizer = tokenizers.load(str(path))
    return tokenizer.encode_batch(['A word, 한국어 and [MASK].'])


def _read_config(path: pathlib.Path) -> object:
    config = files.read_json(path)
    return families.of_config(config).read_config(config)


def _labels(kind: str, suffix: str, name: str, **columns: object) -> Parser:
    """The reader of labeled files, with a sample of the project."""
    settings = {'malformed_fraction': 1.0, 'misplaced_fraction': 1.0, 'dev_fraction': 0.0}

    def read(data: bytes, folder: pathlib.Path) -> object:
        path = folder / f'a{suffix}'
        path.write_bytes(data)
        return problems.read(reading.config(columns, train=(str(path),), **settings), kind)

    return Parser([(formats.SAMPLES / name).read_bytes()], read)


def _train(kind: str) -> bytes:
    text = ['the cat sat on the mat', 'a naïve café in Zürich', 'the dog and the bird'] * 20
    return tokenizers.train(kind, text).to_json().encode()


def _sentencepiece_model(model_type: str) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(['the cat sat on the mat', 'a naïve café in Zürich'] * 20),
        model_writer=model,
        model_type=model_type,
        vocab_size=40,
        hard_vocab_limit=False,
        minloglevel=3,
    )
    return model.getvalue()


def _config() -> bytes:
    return json.dumps(published.config('BertForMaskedLM').to_dict()).encode()


def _manifest() -> Parser:
    """The manifest of a small corpus."""
    tokenizer = tokenizers.train('wordpiece:60', ['the cat sat on the mat'] * 9)
    folder = pathlib.Path(tempfile.mkdtemp())
    writer = corpus_writer.CorpusWriter(folder, tokenizer, ['en'], shard_tokens=100)
    counts = np.array([3, 4], np.int64)
    for split in corpus.SPLITS:
        ids = np.arange(7, dtype=np.int32)
        writer.append(
            split, 0, corpus_writer.TokenizedDocuments(ids, counts, np.array([2]), np.array([9]))
        )
    settings = corpus.settings(['text:a'], 'train:wordpiece:60', True, 0.1)
    source = {'spec': 'text:a', 'language': 'en', 'license': 'CC0', 'report': {}}
    writer.finish(settings, [source])
    sample = (folder / 'manifest.json').read_bytes()

    def read(data: bytes, _: pathlib.Path) -> object:
        (folder / 'manifest.json').write_bytes(data)
        opened = corpus.Corpus.open(folder)
        return [opened.split(name).num_tokens for name in corpus.SPLITS]

    return Parser([sample], read)


def _check_key(data: bytes, folder: pathlib.Path) -> None:
    name = names.check(data.decode('utf-8', 'surrogateescape'), 'a bucket')
    path = pathlib.Path(os.path.normpath(folder / name))
    assert path != folder
    assert path.is_relative_to(folder)


# Name → function that makes the parser.
PARSERS: dict[str, Callable[[], Parser]] = {
    'torch': lambda: Parser(_torch_samples(), _read_file('pytorch_model.bin', torch_file.read)),
    'fairseq': lambda: Parser(
        _torch_samples(is_fairseq=True), _read_file('model.pt', torch_file.read_fairseq)
    ),
    'safetensors': lambda: Parser(
        [safetensors.numpy.save(_arrays())],
        _read_file('model.safetensors', weights.read_safetensors),
    ),
    'index': lambda: Parser([json.dumps(_index()).encode()], _read_index),
    'config': lambda: Parser([_config()], _read_file('config.json', _read_config)),
    'sentencepiece': lambda: Parser(
        [_sentencepiece_model('unigram'), _sentencepiece_model('bpe')],
        _read_file('spiece.model', _read_tokenizer),
    ),
    'tokenizer': lambda: Parser(
        [_train('wordpiece:60'), _train('bytebpe:300'), _train('unigram:60')],
        _read_file('tokenizer.json', _read_tokenizer),
    ),
    'vocabulary': lambda: Parser(
        ['\n'.join(published.vocabulary()).encode()], _read_file('vocab.txt', _read_tokenizer)
    ),
    'json': lambda: Parser(
        [json.dumps({'a': [1, 2.5, 'x', None, {'b': []}]}).encode()],
        _read_file('manifest.json', files.read_json),
    ),
    'manifest': _manifest,
    'keys': lambda: Parser([b'a/b-1.txt', b'runs/x/0001/step.json'], _check_key),
    'csv': lambda: _labels('classification', '.csv', 'formats/all.csv'),
    'tsv': lambda: _labels('classification', '.tsv', 'formats/stray_quotes.tsv'),
    'jsonl': lambda: _labels('classification', '.jsonl', 'formats/rows.jsonl'),
    'spans': lambda: _labels('spans', '.jsonl', 'spans.jsonl'),
    'conll': lambda: _labels('tagging', '.conll', 'entities.conll'),
    'conllu': lambda: _labels('tagging', '.conllu', 'pos.conllu', tag='upos'),
    'xml': lambda: _labels(
        'classification', '.xml', 'formats/pairs.xml', text='t', text2='h', label='entailment'
    ),
    'squad': lambda: _labels('question_answering', '.json', 'formats/squad.json'),
    'choice': lambda: _labels(
        'multiple_choice', '.jsonl', 'choice.jsonl', text='premise', choices=('choice1', 'choice2')
    ),
}

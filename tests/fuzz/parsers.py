"""The parsers of files that strangers send, each with valid samples to damage."""

import argparse
import contextlib
import dataclasses
import io
import json
import os
import pathlib
import random
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pytest
import safetensors.numpy
import sentencepiece
import torch
from pyarrow import parquet

from bert_jax import files, problems, tokenizers
from bert_jax.corpus import corpus, corpus_writer, source_files
from bert_jax.errors import UserError
from bert_jax.inference import finetuned
from bert_jax.interop import (
    fairseq_folder,
    families,
    loading,
    peft_folder,
    sentence_folder,
    sparse_modules,
    tf1_folder,
    torch_file,
    usage,
    weights,
)
from bert_jax.labels import arrow_rows, formats
from bert_jax.labels.records import InvalidRecord
from bert_jax.loaded import checksums, sentence_modules
from bert_jax.loaded.record import Base, BestEvaluation, RunRecord
from bert_jax.loaded.sentence_modules import Dense, Normalize, SentenceModules
from bert_jax.models import architectures, tuning
from bert_jax.models.architecture import Compute
from bert_jax.models.sparse_pooling import SparsePooling
from bert_jax.storage import names
from bert_jax.text import saved_datasets
from bert_jax.text.sources import open_source
from tests.fuzz import mutation
from tests.inference import small_runs
from tests.interop import published
from tests.labels import reading

ACTIVATION = 'torch.nn.modules.activation.Tanh'
MANY = 300, 20_000
LOADS = 6, 1_000  # of a parser that loads a model each time


class Parser(NamedTuple):
    """A parser.

    Attributes:
        samples: Valid files.
        read: Reads a file with the bytes of a damaged sample in an empty folder.
        mutate: Damages a sample.
        least: Number of files to try at least, quickly and in the slow test.
    """

    samples: list[bytes]
    read: Callable[[bytes, pathlib.Path], object]
    mutate: Callable[[bytes, random.Random], bytes] = mutation.mutate
    least: tuple[int, int] = (6, 20_000)


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


def _records() -> list[bytes]:
    """The metadata of checkpoints: of pretraining, a classifier, vectors, and a tuned model."""
    tokenizer = tokenizers.train('wordpiece:60', ['the cat sat on the mat'] * 9)
    common = RunRecord(
        task='pretraining',
        family='bert',
        architecture=architectures.build('bert_tiny', vocab_size=tokenizer.vocab_size),
        base=None,
        tokenizer=tokenizer.to_json(),
        tokenizer_fingerprint=tokenizer.fingerprint,
        corpus_fingerprint='a' * 64,
        is_causal=False,
        has_prefix=False,
        is_generative=False,
        config={'objectives': {'mlm': 1.0}, 'training': {'sequence_length': [64]}},
        train_seconds=1.5,
        is_evaluated=True,
        stage_starts=(0, 10),
        best=BestEvaluation(4, {'loss': 2.0}),
    )
    lora = tuning.build('lora', {'rank': 2})
    problem = {'query_prompt': 'q: ', 'document_prompt': '', 'normalize': None}
    kept = {'pooling': 'mean', 'similarity': 'cosine', 'sparse': SparsePooling()._asdict()}
    records = [
        common,
        dataclasses.replace(
            common,
            task='classification',
            problem_type='single_label_classification',
            labels=('no', 'yes'),
            calibrated={'threshold': 0.5},
            kept={'splitter': 'whitespace'},
            texts=1,
            config={'training': {'sequence_length': 64}, 'problem': {'labels': []}, 'data': {}},
        ),
        dataclasses.replace(
            common,
            task='embedding',
            kept=kept,
            config={'training': {'sequence_length': 64}, 'problem': problem},
        ),
        dataclasses.replace(
            common,
            architecture=dataclasses.replace(common.architecture, tuning=lora),
            base=Base('base', '/base', ('encoder',), 'a' * 64),
        ),
    ]
    return [json.dumps(record.to_json()).encode() for record in records]


def _read_record(path: pathlib.Path) -> object:
    """Read a record and what a load derives from it."""
    record = RunRecord.from_json(files.read_json(path), path)
    text = json.dumps(record.to_json())
    assert json.dumps(RunRecord.from_json(json.loads(text), path).to_json()) == text
    sections = [record.section(name) for name in ('data', 'evaluation', 'problem', 'rtd')]
    return record.architecture.layer_numbers, sentence_modules.of_run(record), sections


def _of_small_run(name: str, load: Callable[[pathlib.Path], object]) -> Parser:
    """A file of a small run's checkpoint, which is complete by its digests whatever it says."""
    folder = pathlib.Path(tempfile.mkdtemp())
    small_runs.save_run(folder / 'run', 'classification')
    checkpoint = folder / 'run/checkpoints/1'
    sample = (checkpoint / name).read_bytes()

    def read(data: bytes, _: pathlib.Path) -> object:
        (checkpoint / name).write_bytes(data)
        checksums.write(checkpoint)
        return load(folder / 'run')

    return Parser([sample], read, mutation.mutate_json, LOADS)


def _run() -> Parser:
    """The record of a small run."""

    def load(run: pathlib.Path) -> object:
        model = loading.load_any(run)
        return finetuned.build(model, 'classification', model.tokenizer, Compute(), 64, 0.0)

    return _of_small_run('metadata.json', load)


def _description() -> Parser:
    """The description of the arrays of a small run."""
    return _of_small_run('arrays.json', loading.load_any)


def _table(write: Callable[[pyarrow.Table, io.BytesIO], None], suffix: str) -> Parser:
    """A table, read for its labels and for its texts; the sample has many kinds of columns."""
    texts = ['the cat sat', None, 'naïve', 'x' * 300] * 8
    table = pyarrow.table(
        {
            'text': texts,
            'label': pyarrow.array(['no', 'yes'] * 16).dictionary_encode(),
            'lists': [['a', None], [], None, ['b']] * 8,
            'deep': [{'a': {'b': 'c', 'd': [1, 2]}}, None] * 16,
            'number': list(range(32)),
            'map': pyarrow.array([[('a', 'b')], None] * 16, pyarrow.map_('string', 'string')),
        }
    )
    buffer = io.BytesIO()
    write(table, buffer)
    settings = {'malformed_fraction': 1.0, 'misplaced_fraction': 1.0, 'dev_fraction': 0.0}

    def read(data: bytes, folder: pathlib.Path) -> object:
        path = folder / f'a{suffix}'
        path.write_bytes(data)
        source = open_source(f'parquet:{path}')
        with contextlib.suppress(UserError):
            list(source.documents())
        return problems.read(reading.config(train=(str(path),), **settings), 'classification')

    return Parser([buffer.getvalue()], read)


def _write_arrow(table: pyarrow.Table, buffer: io.BytesIO, new: Any = pyarrow.ipc.new_file) -> None:
    compression = pyarrow.ipc.IpcWriteOptions(compression='zstd')
    with new(buffer, table.schema, options=compression) as writer:
        writer.write_table(table, max_chunksize=16)


def _write_stream(table: pyarrow.Table, buffer: io.BytesIO) -> None:
    with pyarrow.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table, max_chunksize=16)


def _in_folder(
    make: Callable[[pathlib.Path], None], name: str, read: Callable[[pathlib.Path], object]
) -> Parser:
    """A file of a folder that a function makes once; the other files stay as they are."""
    folder = pathlib.Path(tempfile.mkdtemp())
    make(folder)
    sample = (folder / name).read_bytes()

    def call(data: bytes, _: pathlib.Path) -> object:
        (folder / name).write_bytes(data)
        return read(folder)

    is_json = name.endswith('.json')
    return Parser([sample], call, mutation.mutate_json if is_json else mutation.mutate, MANY)


def _sentence_modules(folder: pathlib.Path) -> None:
    """Write a folder of sentence-transformers with a Dense and prompts, without its encoder."""
    weight = np.ones((3, 4), np.float32)
    layers = (Dense(weight, np.zeros(3, np.float32), ACTIVATION), Normalize())
    modules = SentenceModules(('cls', 'mean'), layers, 64, {'query': 'q: '}, 'query', 'cosine')
    sentence_folder.write(modules, folder, 2)


def _read_sentence(folder: pathlib.Path) -> object:
    path = sentence_folder.transformer_folder(folder)
    config = files.read_json(folder / 'config_sentence_transformers.json')
    return path, sentence_folder.read(folder), sentence_folder.activation_fn(folder, config)


def _sentence(name: str) -> Parser:
    return _in_folder(_sentence_modules, name, _read_sentence)


def _sparse(name: str) -> Parser:
    def make(folder: pathlib.Path) -> None:
        sparse_modules.write(SparsePooling(max_active=9), {'query': 'q: '}, None, 'dot', folder)

    return _in_folder(make, name, _read_sentence)


def _adapter(name: str) -> Parser:
    """A file of a folder of peft: LoRA of one layer, and the base model, which is loaded once."""
    config = published.config('BertForSequenceClassification').to_dict()
    family = families.of_config(config)
    base_folder = pathlib.Path(tempfile.mkdtemp())
    published.folder(base_folder, 'BertForSequenceClassification')
    base, size = loading.load_any(base_folder), config['hidden_size']
    assert family

    def make(folder: pathlib.Path) -> None:
        settings = {'peft_type': 'LORA', 'task_type': 'SEQ_CLS', 'r': 2, 'lora_alpha': 4}
        settings |= {'target_modules': ['query'], 'base_model_name_or_path': str(base_folder)}
        settings |= {'layers_to_transform': [0], 'layers_pattern': ['layer']}
        settings |= {'rank_pattern': {'query': 2}, 'alpha_pattern': {'.*query': 4}}
        settings |= {'modules_to_save': ['classifier'], 'use_rslora': True}
        (folder / peft_folder.CONFIG).write_text(json.dumps(settings))
        query = 'base_model.model.bert.encoder.layer.0.attention.self.query'
        arrays = {
            f'{query}.lora_A.weight': np.ones((2, size), np.float32),
            f'{query}.lora_B.weight': np.ones((size, 2), np.float32),
            'base_model.model.classifier.weight': np.ones((2, size), np.float32),
            'base_model.model.classifier.bias': np.ones(2, np.float32),
        }
        safetensors.numpy.save_file(arrays, folder / peft_folder.WEIGHTS)

    parser = _in_folder(
        make, name, lambda folder: peft_folder.load(folder, (), (), load_base=lambda _: base)
    )
    return parser._replace(least=LOADS)


def _tokenizer_folder(name: str) -> Parser:
    """A JSON file beside the vocabulary of a folder."""
    contents = {
        'tokenizer_config.json': {
            'tokenizer_class': 'BertTokenizer',
            'do_lower_case': True,
            'mask_token': {'content': '[MASK]', 'lstrip': True},
            'additional_special_tokens': ['[E1]'],
            'added_tokens_decoder': {'4': {'content': '[MASK]', 'special': True}},
        },
        'special_tokens_map.json': {
            'mask_token': '[MASK]',
            'pad_token': {'content': '[PAD]', 'normalized': False},
            'additional_special_tokens': ['[E1]', '[E2]'],
        },
        'added_tokens.json': {'[E1]': 131, 'ship': 132},
        'config.json': {'model_type': 'bert', 'tokenizer_class': None},
    }

    def make(folder: pathlib.Path) -> None:
        (folder / 'vocab.txt').write_text('\n'.join(published.vocabulary()))
        (folder / name).write_text(json.dumps(contents[name]))

    return _in_folder(make, name, _read_tokenizer)


def _byte_bpe(name: str) -> Parser:
    def make(folder: pathlib.Path) -> None:
        model = json.loads(_train('bytebpe:300'))['model']
        (folder / 'vocab.json').write_text(json.dumps(model['vocab']))
        merges = (merge if isinstance(merge, str) else ' '.join(merge) for merge in model['merges'])
        (folder / 'merges.txt').write_text('\n'.join(merges))

    return _in_folder(make, name, _read_tokenizer)._replace(mutate=mutation.mutate)


def _fairseq_dictionary() -> Parser:
    sample = '\n'.join(f'{word} {9 - number}' for number, word in enumerate(['the', '7', 'naïve']))
    return Parser([sample.encode()], _read_file('dict.txt', fairseq_folder._symbols), least=MANY)


def _tf1(name: str) -> Parser:
    """A file of a checkpoint of TensorFlow, which is read in C++."""
    tensorflow = pytest.importorskip('tensorflow')

    def make(folder: pathlib.Path) -> None:
        with tensorflow.Graph().as_default(), tensorflow.compat.v1.Session() as session:
            variables = tensorflow.compat.v1
            variables.get_variable('bert/pooler/dense/kernel', initializer=np.ones((3, 2), 'f4'))
            variables.get_variable('bert/pooler/dense/bias', initializer=np.ones(2, 'f4'))
            session.run(variables.global_variables_initializer())
            variables.train.Saver().save(session, str(folder / 'model.ckpt'))

    return _in_folder(make, name, lambda folder: tf1_folder._read(folder / 'model.ckpt'))


def _read_usage(data: bytes, folder: pathlib.Path) -> object:
    (folder / usage.FILE).write_bytes(data)
    return usage.read(folder)


def _usages() -> list[bytes]:
    fields = {
        'task': 'classification',
        'labels': ['no', 'yes'],
        'heads': ['sequence_classification'],
        'problem_type': None,
        'kept': {'splitter': 'whitespace'},
        'calibrated': {'threshold': 0.5},
        'texts': 2,
        'config': {'objectives': {}, 'problem': {'labels': []}, 'training': {}, 'data': {}},
    }
    return [json.dumps(fields).encode()]


def _saved(name: str, read: Callable[[pathlib.Path], object], **fields: object) -> Parser:
    """A JSON file in a folder of `datasets`."""

    def call(data: bytes, folder: pathlib.Path) -> object:
        (folder / name).write_bytes(data)
        return read(folder)

    return Parser([json.dumps(fields).encode()], call, mutation.mutate_json, MANY)


def _saved_list(value: list[object]) -> Parser:
    sample = json.dumps(value).encode()
    read = _read_file(source_files.NAME, lambda path: source_files.read(path.parent))
    return Parser([sample], read, mutation.mutate_json, MANY)


def _read_features(folder: pathlib.Path) -> object:
    """Read the declared types of columns, and the values of a row by them."""
    info = files.read_json(folder / 'dataset_info.json')
    values = {'label': 1, 'tags': [0, 1], 'parts': {'text': ['a'], 'tag': [0]}}
    features = arrow_rows.features_of(info)
    with contextlib.suppress(InvalidRecord):
        return [arrow_rows.with_class_names(values[name], features.get(name)) for name in values]


_CLASSES = {'_type': 'ClassLabel', 'names': ['no', 'yes']}
_FEATURES = {
    'label': _CLASSES,
    'tags': {'_type': 'Sequence', 'feature': _CLASSES},
    'parts': {'_type': 'Sequence', 'feature': {'text': {'_type': 'Value'}, 'tag': _CLASSES}},
}


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
    'record': lambda: Parser(
        _records(), _read_file('metadata.json', _read_record), mutation.mutate_json, MANY
    ),
    'run': _run,
    'description': _description,
    'saved_splits': lambda: _saved(saved_datasets.SPLITS, saved_datasets.splits, splits=['train']),
    'saved_state': lambda: _saved(
        saved_datasets.STATE,
        saved_datasets.state,
        _split='train',
        _data_files=[{'filename': 'data-00000-of-00001.arrow'}],
    ),
    'dataset_info': lambda: _saved('dataset_info.json', _read_features, features=_FEATURES),
    'parquet': lambda: _table(lambda table, file: parquet.write_table(table, file), '.parquet'),
    'arrow': lambda: _table(_write_arrow, '.feather'),
    'arrow_stream': lambda: _table(_write_stream, '.arrow'),
    'adapter_config': lambda: _adapter(peft_folder.CONFIG),
    'adapter_weights': lambda: _adapter(peft_folder.WEIGHTS),
    'sentence_modules': lambda: _sentence('modules.json'),
    'sentence_settings': lambda: _sentence('sentence_bert_config.json'),
    'sentence_config': lambda: _sentence('config_sentence_transformers.json'),
    'sentence_pooling': lambda: _sentence('1_Pooling/config.json'),
    'sentence_dense': lambda: _sentence('2_Dense/config.json'),
    'sentence_weights': lambda: _sentence('2_Dense/model.safetensors'),
    'sparse_config': lambda: _sparse('config_sentence_transformers.json'),
    'sparse_pooling': lambda: _sparse('1_SpladePooling/config.json'),
    'tokenizer_config': lambda: _tokenizer_folder('tokenizer_config.json'),
    'special_tokens': lambda: _tokenizer_folder('special_tokens_map.json'),
    'added_tokens': lambda: _tokenizer_folder('added_tokens.json'),
    'tokenizer_class': lambda: _tokenizer_folder('config.json'),
    'byte_vocabulary': lambda: _byte_bpe('vocab.json'),
    'byte_merges': lambda: _byte_bpe('merges.txt'),
    'fairseq_dictionary': _fairseq_dictionary,
    'tf1_index': lambda: _tf1('model.ckpt.index'),
    'tf1_data': lambda: _tf1('model.ckpt.data-00000-of-00001'),
    'source_files': lambda: _saved_list([{'/a.txt': [3, 4], '/b.txt': [5, 6]}, {}]),
    'usage': lambda: Parser(_usages(), _read_usage, mutation.mutate_json, MANY),
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

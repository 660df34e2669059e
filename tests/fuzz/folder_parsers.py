"""The parsers of tables, and of files in folders of models and tokenizers."""

import contextlib
import io
import json
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow
import pytest
import safetensors.numpy

from bert_jax import files, problems
from bert_jax.errors import UserError
from bert_jax.interop import (
    fairseq_folder,
    families,
    loading,
    peft_folder,
    sentence_folder,
    sparse_modules,
    tf1_folder,
)
from bert_jax.loaded.sentence_modules import Dense, Normalize, SentenceModules
from bert_jax.models.sparse_pooling import SparsePooling
from bert_jax.text.sources import open_source
from tests.fuzz import mutation, parser
from tests.interop import published
from tests.labels import reading

ACTIVATION = 'torch.nn.modules.activation.Tanh'


def table(write: Callable[[pyarrow.Table, io.BytesIO], None], suffix: str) -> parser.Parser:
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

    return parser.Parser([buffer.getvalue()], read)


def write_arrow(table: pyarrow.Table, buffer: io.BytesIO, new: Any = pyarrow.ipc.new_file) -> None:
    compression = pyarrow.ipc.IpcWriteOptions(compression='zstd')
    with new(buffer, table.schema, options=compression) as writer:
        writer.write_table(table, max_chunksize=16)


def write_stream(table: pyarrow.Table, buffer: io.BytesIO) -> None:
    with pyarrow.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table, max_chunksize=16)


def _in_folder(
    make: Callable[[pathlib.Path], None], name: str, read: Callable[[pathlib.Path], object]
) -> parser.Parser:
    """A file of a folder that a function makes once; the other files stay as they are."""
    folder = pathlib.Path(tempfile.mkdtemp())
    make(folder)
    sample = (folder / name).read_bytes()

    def call(data: bytes, _: pathlib.Path) -> object:
        (folder / name).write_bytes(data)
        return read(folder)

    is_json = name.endswith('.json')
    return parser.Parser(
        [sample], call, mutation.mutate_json if is_json else mutation.mutate, parser.MANY
    )


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


def sentence(name: str) -> parser.Parser:
    return _in_folder(_sentence_modules, name, _read_sentence)


def sparse(name: str) -> parser.Parser:
    def make(folder: pathlib.Path) -> None:
        sparse_modules.write(SparsePooling(max_active=9), {'query': 'q: '}, None, 'dot', folder)

    return _in_folder(make, name, _read_sentence)


def adapter(name: str) -> parser.Parser:
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

    adapter = _in_folder(
        make, name, lambda folder: peft_folder.load(folder, (), (), load_base=lambda _: base)
    )
    return adapter._replace(least=parser.LOADS)


def tokenizer_folder(name: str) -> parser.Parser:
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

    return _in_folder(make, name, parser.read_tokenizer)


def byte_bpe(name: str) -> parser.Parser:
    def make(folder: pathlib.Path) -> None:
        model = json.loads(parser.train_tokenizer('bytebpe:300'))['model']
        (folder / 'vocab.json').write_text(json.dumps(model['vocab']))
        merges = (merge if isinstance(merge, str) else ' '.join(merge) for merge in model['merges'])
        (folder / 'merges.txt').write_text('\n'.join(merges))

    return _in_folder(make, name, parser.read_tokenizer)._replace(mutate=mutation.mutate)


def fairseq_dictionary() -> parser.Parser:
    sample = '\n'.join(f'{word} {9 - number}' for number, word in enumerate(['the', '7', 'naïve']))
    return parser.Parser(
        [sample.encode()], parser.read_file('dict.txt', fairseq_folder._symbols), least=parser.MANY
    )


def tf1(name: str) -> parser.Parser:
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

"""The parsers of files that strangers send, each with valid samples to damage."""

import argparse
import contextlib
import dataclasses
import io
import json
import os
import pathlib
import tempfile
from collections.abc import Callable

import numpy as np
import safetensors.numpy
import sentencepiece
import torch
from pyarrow import parquet

from bert_jax import files, problems, tokenizers
from bert_jax.corpus import corpus, corpus_writer, source_files
from bert_jax.inference import finetuned
from bert_jax.interop import (
    families,
    loading,
    peft_folder,
    torch_file,
    usage,
    weights,
)
from bert_jax.labels import arrow_rows, formats
from bert_jax.labels.records import InvalidRecord
from bert_jax.loaded import checksums, sentence_modules
from bert_jax.loaded.record import Base, BestEvaluation, RunRecord
from bert_jax.models import architectures, tuning
from bert_jax.models.architecture import Compute
from bert_jax.models.sparse_pooling import SparsePooling
from bert_jax.storage import names
from bert_jax.text import saved_datasets
from tests.fuzz import folder_parsers, mutation, parser
from tests.inference import small_runs
from tests.interop import published
from tests.labels import reading


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


def _read_index(data: bytes, folder: pathlib.Path) -> object:
    safetensors.numpy.save_file(_arrays(), folder / 'model-1.safetensors')
    (folder / 'model.safetensors.index.json').write_bytes(data)
    return weights.read(folder)


def _read_config(path: pathlib.Path) -> object:
    config = files.read_json(path)
    return families.of_config(config).read_config(config)


def _labels(kind: str, suffix: str, name: str, **columns: object) -> parser.Parser:
    """The reader of labeled files, with a sample of the project."""
    settings = {'malformed_fraction': 1.0, 'misplaced_fraction': 1.0, 'dev_fraction': 0.0}

    def read(data: bytes, folder: pathlib.Path) -> object:
        path = folder / f'a{suffix}'
        path.write_bytes(data)
        return problems.read(reading.config(columns, train=(str(path),), **settings), kind)

    return parser.Parser([(formats.SAMPLES / name).read_bytes()], read)


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


def _manifest() -> parser.Parser:
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

    return parser.Parser([sample], read)


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


def _of_small_run(name: str, load: Callable[[pathlib.Path], object]) -> parser.Parser:
    """A file of a small run's checkpoint, which is complete by its digests whatever it says."""
    folder = pathlib.Path(tempfile.mkdtemp())
    small_runs.save_run(folder / 'run', 'classification')
    checkpoint = folder / 'run/checkpoints/1'
    sample = (checkpoint / name).read_bytes()

    def read(data: bytes, _: pathlib.Path) -> object:
        (checkpoint / name).write_bytes(data)
        checksums.write(checkpoint)
        return load(folder / 'run')

    return parser.Parser([sample], read, mutation.mutate_json, parser.LOADS)


def _run() -> parser.Parser:
    """The record of a small run."""

    def load(run: pathlib.Path) -> object:
        model = loading.load_any(run)
        return finetuned.build(model, 'classification', model.tokenizer, Compute(), 64, 0.0)

    return _of_small_run('metadata.json', load)


def _description() -> parser.Parser:
    """The description of the arrays of a small run."""
    return _of_small_run('arrays.json', loading.load_any)


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


def _saved(name: str, read: Callable[[pathlib.Path], object], **fields: object) -> parser.Parser:
    """A JSON file in a folder of `datasets`."""

    def call(data: bytes, folder: pathlib.Path) -> object:
        (folder / name).write_bytes(data)
        return read(folder)

    return parser.Parser([json.dumps(fields).encode()], call, mutation.mutate_json, parser.MANY)


def _saved_list(value: list[object]) -> parser.Parser:
    sample = json.dumps(value).encode()
    read = parser.read_file(source_files.NAME, lambda path: source_files.read(path.parent))
    return parser.Parser([sample], read, mutation.mutate_json, parser.MANY)


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
PARSERS: dict[str, Callable[[], parser.Parser]] = {
    'torch': lambda: parser.Parser(
        _torch_samples(), parser.read_file('pytorch_model.bin', torch_file.read)
    ),
    'fairseq': lambda: parser.Parser(
        _torch_samples(is_fairseq=True), parser.read_file('model.pt', torch_file.read_fairseq)
    ),
    'safetensors': lambda: parser.Parser(
        [safetensors.numpy.save(_arrays())],
        parser.read_file('model.safetensors', weights.read_safetensors),
    ),
    'index': lambda: parser.Parser([json.dumps(_index()).encode()], _read_index),
    'config': lambda: parser.Parser([_config()], parser.read_file('config.json', _read_config)),
    'sentencepiece': lambda: parser.Parser(
        [_sentencepiece_model('unigram'), _sentencepiece_model('bpe')],
        parser.read_file('spiece.model', parser.read_tokenizer),
    ),
    'tokenizer': lambda: parser.Parser(
        [
            parser.train_tokenizer('wordpiece:60'),
            parser.train_tokenizer('bytebpe:300'),
            parser.train_tokenizer('unigram:60'),
        ],
        parser.read_file('tokenizer.json', parser.read_tokenizer),
    ),
    'vocabulary': lambda: parser.Parser(
        ['\n'.join(published.vocabulary()).encode()],
        parser.read_file('vocab.txt', parser.read_tokenizer),
    ),
    'json': lambda: parser.Parser(
        [json.dumps({'a': [1, 2.5, 'x', None, {'b': []}]}).encode()],
        parser.read_file('manifest.json', files.read_json),
    ),
    'manifest': _manifest,
    'record': lambda: parser.Parser(
        _records(),
        parser.read_file('metadata.json', _read_record),
        mutation.mutate_json,
        parser.MANY,
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
    'parquet': lambda: folder_parsers.table(
        lambda table, file: parquet.write_table(table, file), '.parquet'
    ),
    'arrow': lambda: folder_parsers.table(folder_parsers.write_arrow, '.feather'),
    'arrow_stream': lambda: folder_parsers.table(folder_parsers.write_stream, '.arrow'),
    'adapter_config': lambda: folder_parsers.adapter(peft_folder.CONFIG),
    'adapter_weights': lambda: folder_parsers.adapter(peft_folder.WEIGHTS),
    'sentence_modules': lambda: folder_parsers.sentence('modules.json'),
    'sentence_settings': lambda: folder_parsers.sentence('sentence_bert_config.json'),
    'sentence_config': lambda: folder_parsers.sentence('config_sentence_transformers.json'),
    'sentence_pooling': lambda: folder_parsers.sentence('1_Pooling/config.json'),
    'sentence_dense': lambda: folder_parsers.sentence('2_Dense/config.json'),
    'sentence_weights': lambda: folder_parsers.sentence('2_Dense/model.safetensors'),
    'sparse_config': lambda: folder_parsers.sparse('config_sentence_transformers.json'),
    'sparse_pooling': lambda: folder_parsers.sparse('1_SpladePooling/config.json'),
    'tokenizer_config': lambda: folder_parsers.tokenizer_folder('tokenizer_config.json'),
    'special_tokens': lambda: folder_parsers.tokenizer_folder('special_tokens_map.json'),
    'added_tokens': lambda: folder_parsers.tokenizer_folder('added_tokens.json'),
    'tokenizer_class': lambda: folder_parsers.tokenizer_folder('config.json'),
    'byte_vocabulary': lambda: folder_parsers.byte_bpe('vocab.json'),
    'byte_merges': lambda: folder_parsers.byte_bpe('merges.txt'),
    'fairseq_dictionary': folder_parsers.fairseq_dictionary,
    'tf1_index': lambda: folder_parsers.tf1('model.ckpt.index'),
    'tf1_data': lambda: folder_parsers.tf1('model.ckpt.data-00000-of-00001'),
    'source_files': lambda: _saved_list([{'/a.txt': [3, 4], '/b.txt': [5, 6]}, {}]),
    'usage': lambda: parser.Parser(_usages(), _read_usage, mutation.mutate_json, parser.MANY),
    'keys': lambda: parser.Parser([b'a/b-1.txt', b'runs/x/0001/step.json'], _check_key),
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

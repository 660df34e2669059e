import hashlib
import json
import os

import numpy as np
import pytest

from bert_jax import errors, tokenizers
from bert_jax.corpus import corpus, corpus_writer
from bert_jax.examples.single_segments import SingleSegments
from bert_jax.examples.text_example_source import RowSettings

MADE_FROM = corpus.settings(['text:a'], 'train:wordpiece:60', True, 0.1)
SOURCES = [
    {'spec': 'text:a', 'language': 'en', 'license': 'CC0', 'report': {'malformed_lines': 7}},
    {'spec': 'text:b', 'language': 'de', 'license': 'MIT', 'report': {}},
]


@pytest.fixture(scope='module')
def tokenizer():
    return tokenizers.train('wordpiece:60', ['some words to make a small vocabulary of'] * 3)


def random_documents(rng, tokenizer, number=20):
    """Documents of 1–5 sentences of 1–8 tokens, as nested lists and as TokenizedDocuments."""
    nested = [
        [
            rng.integers(tokenizer.vocab_size, size=rng.integers(1, 9)).tolist()
            for _ in range(rng.integers(1, 6))
        ]
        for _ in range(number)
    ]
    return nested, pack(nested)


def pack(nested):
    sentences = [sentence for document in nested for sentence in document]
    return corpus_writer.TokenizedDocuments(
        np.array([token for sentence in sentences for token in sentence], np.int32),
        np.array([len(sentence) for sentence in sentences], np.int64),
        np.array([len(document) for document in nested], np.int64),
        np.array([sum(map(len, document)) for document in nested], np.int64),  # a byte a token
    )


def unpack(shard):
    """The documents of a shard as nested lists."""
    return [
        [
            shard.tokens[shard.sentences[s] : shard.sentences[s + 1]].tolist()
            for s in range(shard.documents[d], shard.documents[d + 1])
        ]
        for d in range(len(shard.documents) - 1)
    ]


@pytest.fixture
def made(tokenizer, tmp_path):
    """The folder of a corpus with two sources, and its documents as nested lists."""
    rng = np.random.default_rng(0)
    writer = corpus_writer.CorpusWriter(tmp_path, tokenizer, ['en', 'de'], shard_tokens=200)
    written = {name: {0: [], 1: []} for name in corpus.SPLITS}
    for source in (0, 0, 0, 1, 1):
        for split in corpus.SPLITS:
            nested, documents = random_documents(rng, tokenizer)
            writer.append(split, source, documents)
            written[split][source] += nested
    writer.finish(MADE_FROM, SOURCES)
    return tmp_path, written


def test_all_arrays_are_synced_before_the_state_is_returned_and_when_closed(
    tokenizer, tmp_path, monkeypatch
):
    synced = []
    monkeypatch.setattr(
        os, 'fsync', lambda number: synced.append(os.readlink(f'/proc/self/fd/{number}'))
    )
    writer = corpus_writer.CorpusWriter(tmp_path, tokenizer, ['en', 'de'], shard_tokens=10**6)
    writer.append('train', 0, random_documents(np.random.default_rng(0), tokenizer)[1])
    arrays = {str(path) for path in tmp_path.rglob('*.npy')}
    for finish in (writer.state, lambda: writer.finish(MADE_FROM, SOURCES)):
        synced.clear()
        finish()
        assert arrays
        assert arrays <= {*synced}


def test_a_corpus_is_read_as_it_was_written(made, tokenizer):
    directory, written = made
    opened = corpus.Corpus.open(directory)
    opened.verify()
    assert opened.tokenizer.fingerprint == tokenizer.fingerprint
    for name in corpus.SPLITS:
        split = opened.split(name)
        for source, language in enumerate(['en', 'de']):
            shards = [shard for shard in split.shards if shard.source == source]
            assert {shard.language for shard in shards} == {language}
            assert sum((unpack(shard) for shard in shards), []) == written[name][source]
        documents = written[name][0] + written[name][1]
        sentences = [sentence for document in documents for sentence in document]
        tokens = [token for sentence in sentences for token in sentence]
        assert split.num_documents == len(documents)
        assert split.num_sentences == len(sentences)
        assert split.num_tokens == len(tokens)
        assert opened.bytes_per_token(name) == 1.0  # see `pack`
        np.testing.assert_array_equal(
            opened.unigram_counts(name), np.bincount(tokens, minlength=tokenizer.vocab_size)
        )


def test_shards_are_memory_mapped_uint16_and_limited_in_size(made):
    shards = corpus.Corpus.open(made[0]).split('train').shards
    assert len(shards) > 3
    for shard in shards:
        assert isinstance(shard.tokens, np.memmap)
        assert shard.tokens.dtype == np.uint16
        assert shard.sentences.dtype == shard.documents.dtype == np.int64
        assert len(shard.tokens) < 200 + 20 * 5 * 8
    assert all(len(shard.tokens) >= 200 for shard in shards[:1])


def test_tokens_of_large_vocabularies_are_uint32():
    assert corpus.token_dtype(2**16) == np.uint16
    assert corpus.token_dtype(2**16 + 1) == np.uint32


def test_select_keeps_whole_documents(tokenizer):
    nested, documents = random_documents(np.random.default_rng(1), tokenizer)
    chosen = np.arange(len(nested)) % 3 == 0
    picked = documents.select(chosen)
    expected = pack(nested[::3])
    np.testing.assert_array_equal(picked.tokens, expected.tokens)
    np.testing.assert_array_equal(picked.sentence_lengths, expected.sentence_lengths)
    np.testing.assert_array_equal(picked.document_lengths, expected.document_lengths)
    np.testing.assert_array_equal(picked.byte_lengths, expected.byte_lengths)


def test_manifest_and_datasheet_describe_the_corpus(made, tokenizer):
    manifest = json.loads((made[0] / 'manifest.json').read_text('utf-8'))
    assert manifest['made_from'] == MADE_FROM
    assert manifest['sources'] == SOURCES
    assert manifest['tokenizer']['fingerprint'] == tokenizer.fingerprint
    tokens = (made[0] / 'train' / '00000.tokens.npy').read_bytes()
    assert manifest['files']['train/00000.tokens.npy'] == {
        'bytes': len(tokens),
        'sha256': hashlib.sha256(tokens).hexdigest(),
    }
    datasheet = (made[0] / 'DATASHEET.md').read_text('utf-8')
    opened = corpus.Corpus.open(made[0])
    train = opened.split('train')
    german = [shard for shard in train.shards if shard.language == 'de']
    german_tokens = sum(len(shard.tokens) for shard in german)
    for expected in ('text:a', 'CC0', 'malformed lines: 7', tokenizer.fingerprint, 'train:wordp'):
        assert expected in datasheet
    row = next(line for line in datasheet.split('\n') if line.startswith('| train | 2 | de |'))
    assert row.endswith(f' {german_tokens:,} |')
    unknown = sum(opened.unigram_counts(name)[1] for name in corpus.SPLITS)
    assert f'[UNK]): {unknown:,},' in datasheet


def test_a_language_is_opened_without_reading_its_tokens(made, monkeypatch):
    """Counting the tokens of a shard took 1 GB of memory."""
    monkeypatch.setattr(np, 'bincount', None)
    part = corpus.Corpus.open(made[0]).split('train', 'de')
    assert 0 < part.num_tokens == sum(len(shard.tokens) for shard in part.shards)


def test_the_fingerprint_only_depends_on_the_contents(tokenizer, tmp_path):
    def make(name, seed):
        (tmp_path / name).mkdir()
        writer = corpus_writer.CorpusWriter(tmp_path / name, tokenizer, ['en'])
        for split in corpus.SPLITS:
            writer.append(split, 0, random_documents(np.random.default_rng(seed), tokenizer)[1])
        writer.finish(MADE_FROM, SOURCES[:1])
        return corpus.Corpus.open(tmp_path / name).fingerprint

    assert make('a', seed=1) == make('b', seed=1) != make('c', seed=2)


def test_missing_and_damaged_files_are_named(made):
    directory, _ = made
    path = directory / 'held_out' / '00001.tokens.npy'
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(errors.UserError, match='held_out/00001.tokens.npy'):
        corpus.Corpus.open(directory).verify()
    path.write_bytes(content[:-2])
    with pytest.raises(errors.UserError, match=r'00001.tokens.npy has .* expected'):
        corpus.Corpus.open(directory)
    path.unlink()
    with pytest.raises(errors.UserError, match='00001.tokens.npy is missing'):
        corpus.Corpus.open(directory)


def test_a_replaced_tokenizer_is_an_error(made):
    directory, _ = made
    path = directory / 'tokenizer.json'
    path.write_text(path.read_text().replace('"lowercase":true', '"lowercase":false'))
    with pytest.raises(errors.UserError, match='tokenizer.json'):
        corpus.Corpus.open(directory)


@pytest.mark.parametrize(
    ('content', 'message'),
    [(None, 'no corpus'), ('{', 'damaged'), ('[]', 'damaged'), ('{"format": 99}', 'format 99')],
)
def test_a_folder_without_a_valid_manifest_is_an_error(content, message, tmp_path):
    if content:
        (tmp_path / 'manifest.json').write_text(content)
    with pytest.raises(errors.UserError, match=message):
        corpus.Corpus.open(tmp_path)


def test_an_unknown_split_is_an_error(made):
    with pytest.raises(errors.UserError, match="'valid'; known: held_out, train"):
        corpus.Corpus.open(made[0]).split('valid')


@pytest.mark.parametrize(
    ('key', 'value'),
    [
        ('sources', ['text:other']),
        ('tokenizer', 'train:wordpiece:70'),
        ('lowercase', False),
        ('held_out_fraction', 0.2),
    ],
)
def test_different_settings_are_named(made, key, value):
    opened = corpus.Corpus.open(made[0])
    opened.check_settings(**MADE_FROM)
    with pytest.raises(errors.UserError, match=key) as info:
        opened.check_settings(**(MADE_FROM | {key: value}))
    assert repr(value) in str(info.value)
    assert repr(MADE_FROM[key]) in str(info.value)


def test_a_tokenizer_path_is_compared_by_content(tokenizer, tmp_path):
    for name in ('corpus', 'same', 'other'):
        (tmp_path / name).mkdir()
    tokenizer.save(tmp_path / 'same')
    tokenizers.train('wordpiece:50', ['other text than that'] * 3).save(tmp_path / 'other')
    writer = corpus_writer.CorpusWriter(tmp_path / 'corpus', tokenizer, ['en'])
    for split in corpus.SPLITS:
        writer.append(split, 0, random_documents(np.random.default_rng(0), tokenizer)[1])
    made_from = MADE_FROM | {'tokenizer': 'somewhere/else'}
    writer.finish(made_from, SOURCES[:1])
    opened = corpus.Corpus.open(tmp_path / 'corpus')
    opened.check_settings(**made_from)
    opened.check_settings(**made_from | {'tokenizer': str(tmp_path / 'same')})
    with pytest.raises(errors.UserError, match='tokenizer'):
        opened.check_settings(**made_from | {'tokenizer': str(tmp_path / 'other')})


def test_every_damaged_file_is_found(made):
    directory = made[0]
    opened = corpus.Corpus.open(directory)
    for name in opened.manifest['files']:
        path = directory / name
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(errors.UserError, match=f'is damaged: {name}: '):
            opened.verify()
        path.write_bytes(content)
    opened.verify()


def replace(directory, name: str, array) -> None:
    """Replace an array of a corpus, and describe the new file in the manifest."""
    np.save(directory / name, array)
    content = (directory / name).read_bytes()
    manifest = json.loads((directory / 'manifest.json').read_text())
    manifest['files'][name] = {
        'bytes': len(content),
        'sha256': hashlib.sha256(content).hexdigest(),
    }
    (directory / 'manifest.json').write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ('array', 'change'),
    [
        ('00000.tokens', lambda values: values.astype(np.int64)),
        ('00000.tokens', lambda values: values[:-1]),
        ('00000.tokens', lambda values: values[:, None]),
        ('00000.sentences', lambda values: np.append(values, 1)),
        ('00000.documents', lambda values: values.astype(float)),
        ('00000.documents', lambda values: np.array(None)),
    ],
)
def test_arrays_that_the_manifest_does_not_describe_are_refused(array, change, made):
    directory = made[0]
    name = f'train/{array}.npy'
    replace(directory, name, change(np.load(directory / name)))
    opened = corpus.Corpus.open(directory)
    with pytest.raises(errors.UserError, match='prepare') as caught:
        opened.split('train')
    assert '\n' not in str(caught.value)


def test_frequencies_of_another_vocabulary_are_refused(made):
    directory = made[0]
    replace(directory, 'train/unigram.npy', np.ones(7, np.int64))
    with pytest.raises(errors.UserError, match=r'int64\[7\], but the vocabulary has'):
        corpus.Corpus.open(directory).unigram_counts('train')


def test_ids_beyond_the_vocabulary_are_found(made, tokenizer):
    """A run on such ids skipped 24 of 40 steps and ended with status 0."""
    directory = made[0]
    name = 'held_out/00000.tokens.npy'
    ids = np.load(directory / name)
    ids[3] = tokenizer.vocab_size
    replace(directory, name, ids)
    opened = corpus.Corpus.open(directory)
    with pytest.raises(errors.UserError, match=rf'token id {len(tokenizer.vocab)}, but the voc'):
        opened.verify()
    settings = RowSettings(opened.split('held_out'), tokenizer, 16, 4, seed=0)
    source = SingleSegments(settings)
    with pytest.raises(errors.UserError, match=rf'token id {len(tokenizer.vocab)}, but the voc'):
        source.examples(np.arange(source.num_examples))


def change(path, kind):
    content = path.read_bytes()
    if kind == 'truncated':
        os.truncate(path, 0)
    elif kind == 'changed':
        with open(path, 'r+b') as file:
            file.write(b'0' * 200)
    elif kind == 'removed':
        path.unlink()
    else:
        os.utime(path, (1, 1))
    return content


@pytest.mark.parametrize('kind', ['truncated', 'changed', 'removed', 'touched'])
def test_a_corpus_that_changes_while_it_is_read_gives_one_line(made, tokenizer, kind):
    """The process was killed by SIGBUS."""
    settings = RowSettings(
        corpus.Corpus.open(made[0]).split('train'), tokenizer, 16, 4, seed=0, mark_sentences=True
    )
    source = SingleSegments(settings)
    numbers = np.arange(source.num_examples)
    expected = source.examples(numbers)['input_ids']
    for array in ('tokens', 'sentences'):
        path = made[0] / f'train/00001.{array}.npy'
        content = change(path, kind)
        if kind == 'touched':
            assert (source.examples(numbers)['input_ids'] == expected).all()
            continue
        with pytest.raises(errors.UserError, match=f'00001.{array}.npy (has changed|was removed)'):
            source.examples(numbers)
        path.write_bytes(content)
        assert (source.examples(numbers)['input_ids'] == expected).all()

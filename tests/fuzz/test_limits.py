"""Small files cannot take much time or memory; the errors name the limits."""

import bz2
import contextlib
import gzip
import io
import json
import lzma
import os
import pickle
import time
import zipfile

import pyarrow
import pytest
import sentencepiece
import torch

from bert_jax import files, limits, problems, tokenizers
from bert_jax.errors import UserError
from bert_jax.interop import families, torch_file
from bert_jax.text import text_files
from bert_jax.tokenizers import sentence_piece
from tests.interop import published
from tests.labels import reading

DEEP = 100_000


@pytest.fixture(autouse=True)
def is_fast():
    start = time.process_time()
    yield
    assert time.process_time() - start < 10


def save(path, state):
    torch.save(state, path)
    return path


def test_a_tensor_that_repeats_its_storage_is_refused(tmp_path):
    path = save(tmp_path / 'a.bin', {'a': torch.ones(1).expand(10**5, 10**5)})
    with pytest.raises(UserError, match='repeats elements of its storage'):
        torch_file.read(path)


def test_a_storage_that_is_named_very_often_is_refused(tmp_path):
    tensor = torch.ones(1000)
    few = save(tmp_path / 'few.bin', {'a': tensor, 'b': tensor, 'c': tensor.view(10, 100)})
    assert torch_file.read(few)['c'].shape == (10, 100)
    many = save(tmp_path / 'many.bin', {f'a{n}': torch.ones(10**6) * 0 for n in range(1)})
    assert len(torch_file.read(many)) == 1
    shared = torch.ones(10**6)
    path = save(tmp_path / 'a.bin', {f'a{n}': shared for n in range(1000)})
    with pytest.raises(UserError, match=f'more than {limits.SHARED_STORAGE} times'):
        torch_file.read(path)


def test_compressed_storages_are_refused(tmp_path):
    path = save(tmp_path / 'a.bin', {'a': torch.zeros(10**5)})
    with (
        zipfile.ZipFile(path) as stored,
        zipfile.ZipFile(tmp_path / 'b.bin', 'w', zipfile.ZIP_DEFLATED) as compressed,
    ):
        for name in stored.namelist():
            compressed.writestr(name, stored.read(name))
    with pytest.raises(UserError, match='compressed entries'):
        torch_file.read(tmp_path / 'b.bin')


def test_claimed_sizes_of_the_old_format_are_refused(tmp_path):
    torch.save({'a': torch.ones(3)}, tmp_path / 'a.bin', _use_new_zipfile_serialization=False)
    data = (tmp_path / 'a.bin').read_bytes()
    size = b'K\x03N'  # of the storage, followed by its view
    assert data.count(size) == 1
    claimed = data.replace(size, b'\x8a\x05' + (2**36).to_bytes(5, 'little') + b'N')
    (tmp_path / 'a.bin').write_bytes(claimed)
    with pytest.raises(UserError, match='more than the file'):
        torch_file.read(tmp_path / 'a.bin')


def test_pickles_of_other_things_are_refused(tmp_path):
    for value in ({frozenset({1}): 1}, {1, 2}, [1], {(1, 2): 3}):
        with zipfile.ZipFile(tmp_path / 'a.bin', 'w') as archive:
            archive.writestr('a/data.pkl', pickle.dumps(value, 2))
        with pytest.raises(UserError, match=r'a\.bin'):
            torch_file.read(tmp_path / 'a.bin')


def test_a_number_without_end_in_a_sentencepiece_model_is_refused():
    with pytest.raises(UserError, match='not a SentencePiece model'):
        sentence_piece.read(b'\x80' * 10**7)


def test_a_long_piece_of_a_sentencepiece_model_is_refused():
    piece = b'\x0a\xff\xff\x03' + b'a' * 65535
    with pytest.raises(UserError, match='65,535 characters; the limit is 1,000'):
        sentence_piece.read(b'\x0a' + varint(len(piece)) + piece)


def varint(number: int) -> bytes:
    result = b''
    while number > 127:
        result += bytes([number & 127 | 128])
        number >>= 7
    return result + bytes([number])


@pytest.mark.parametrize('is_added', [True, False])
def test_large_ids_are_refused(tmp_path, is_added):
    settings = json.loads(tokenizers.train('wordpiece:40', ['a b c']).to_json())
    if is_added:
        settings['added_tokens'].append(
            {**settings['added_tokens'][0], 'id': 2**32 - 1, 'content': 'x'}
        )
        settings['model']['vocab']['x'] = 2**32 - 1
    else:
        settings['model']['vocab']['zz'] = 2**32 - 1
    (tmp_path / 'tokenizer.json').write_text(json.dumps(settings))
    with pytest.raises(UserError, match='the limit of 10,000,000 ids'):
        tokenizers.load(str(tmp_path))


@pytest.mark.parametrize('place', ['added_tokens.json', 'user-defined pieces'])
def test_large_vocabularies_of_added_tokens_load_at_once(place, tmp_path):
    """As those of speech and of items; a call of the library takes time for all added so far."""
    names = [f'<item{number}>' for number in range(20_000)]
    text = ['the cat sat on the mat', 'a dog in the fog'] * 50
    if place == 'added_tokens.json':
        tokenizers.train('wordpiece:60', text).save(tmp_path)
        first = tokenizers.load(str(tmp_path)).vocab_size
        ids = {name: first + number for number, name in enumerate(names)}
        (tmp_path / place).write_text(json.dumps(ids))
    else:
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(text),
            model_writer=model,
            vocab_size=20_060,
            hard_vocab_limit=False,
            user_defined_symbols=names,
            minloglevel=3,
        )
        (tmp_path / 'spiece.model').write_bytes(model.getvalue())
    tokenizer = tokenizers.load(str(tmp_path))
    places = [tokenizer.vocab.index(name) for name in (names[0], names[-1])]
    assert places[1] - places[0] == len(names) - 1
    assert not tokenizer.added_ids.isdisjoint(places)
    ids, _ = tokenizer.encode_ids([f'the {names[7]} sat'])
    assert places[0] + 7 in ids


@pytest.mark.parametrize(
    'key', ['num_hidden_layers', 'hidden_size', 'vocab_size', 'max_position_embeddings']
)
def test_absurd_sizes_in_a_config_are_refused(key):
    config = published.config('BertForMaskedLM').to_dict() | {key: 10**12}
    with pytest.raises(UserError, match='above the limit of|must be at most 1000'):
        families.of_config(config).read_config(config)


@pytest.mark.parametrize('text', ['[' * DEEP, '{"a":' * DEEP, '9' * 5000])
def test_deep_or_long_json_is_refused(text, tmp_path):
    path = tmp_path / 'a.json'
    path.write_text(text)
    with pytest.raises(UserError, match='is not valid JSON'):
        files.read_json(path)
    with pytest.raises(UserError, match='is not valid JSON'):
        problems.read(reading.config(train=(str(path),)), 'classification')
    (tmp_path / 'tokenizer.json').write_text(text)
    with pytest.raises(UserError, match=r'tokenizer\.json'):
        tokenizers.load(str(tmp_path / 'tokenizer.json'))
    (tmp_path / 'a.jsonl').write_text('{"text": "a", "label": "b"}\n' * 3 + text + '\n')
    config = reading.config(
        train=(f'{tmp_path}/a.jsonl',), malformed_fraction=0.5, dev_fraction=0.0
    )
    assert len(problems.read(config, 'classification').train) == 3


@pytest.mark.parametrize(
    'text',
    [
        '<a>' * DEEP + 'x' + '</a>' * DEEP,
        '<r>' + ''.join(f'<a{n}>' for n in range(DEEP)),
        '<a>' * 101 + 'x' * 10**6 + '</a>' * 101,
    ],
)
def test_deep_markup_is_refused(text, tmp_path):
    (tmp_path / 'a.xml').write_text(text)
    with pytest.raises(UserError, match='nested more than 100 deep'):
        problems.read(reading.config(train=(f'{tmp_path}/a.xml',)), 'classification')


@pytest.mark.parametrize(
    'text', ['<', '<a ', '</', '<!--', '<!', '<?', '&#', '&', '<a b="', '<![CDATA[']
)
def test_unclosed_markup_takes_linear_time(text, tmp_path):
    (tmp_path / 'a.xml').write_text('<r><p>a</p>' + text * DEEP)
    with contextlib.suppress(UserError):
        problems.read(reading.config(train=(f'{tmp_path}/a.xml',)), 'classification')


def zstd(data: bytes) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, 'zstd') as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize('compress', [gzip.compress, bz2.compress, lzma.compress, zstd])
def test_a_pipe_may_be_compressed(compress):
    read, write = os.pipe()
    os.write(write, compress('Zürich\n'.encode()))
    os.close(write)
    assert text_files.read_text(f'/dev/fd/{read}', 'utf-8') == 'Zürich\n'
    os.close(read)


@pytest.mark.parametrize('compress', [gzip.compress, bz2.compress, lzma.compress, zstd])
def test_a_file_that_expands_without_end_is_refused(compress, tmp_path, monkeypatch):
    path = tmp_path / 'a.txt'
    path.write_bytes(compress(b'a' * 10**7))
    assert len(text_files.read_text(str(path), 'utf-8')) == 10**7
    monkeypatch.setattr(limits, 'EXPANDED', 10**6)
    monkeypatch.setattr(limits, 'EXPANSION', 100)
    with pytest.raises(UserError, match='expands to more than 100 times its size'):
        text_files.read_text(str(path), 'utf-8')

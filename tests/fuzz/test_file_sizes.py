"""Files that describe others are read up to a limit, and refused before they are read."""

import json
import os
import pathlib
import tracemalloc
from collections.abc import Callable
from typing import NamedTuple

import pytest

from bert_jax import files, limits, tokenizers
from bert_jax.corpus import corpus, source_files
from bert_jax.errors import UserError
from bert_jax.interop import loading, peft_folder, weights
from bert_jax.loaded import checkpoint_files, checksums
from bert_jax.reports import glue
from bert_jax.tasks import initialization
from bert_jax.text import saved_datasets


class Side(NamedTuple):
    """A file of a folder, its limit in bytes, and what reads it."""

    name: str
    limit: int
    read: Callable[[pathlib.Path], object]


def _tokenizer(folder: pathlib.Path) -> object:
    return tokenizers.load(str(folder))


SIDES = [
    Side('README.md', limits.SMALL_FILE, lambda folder: initialization.license_of(str(folder))),
    Side('config.json', limits.SMALL_FILE, loading.load_any),
    Side(
        'modules.json', limits.SMALL_FILE, lambda folder: files.read_json(folder / 'modules.json')
    ),
    Side('adapter_config.json', limits.SMALL_FILE, peft_folder.base_path),
    Side('model.safetensors.index.json', limits.SMALL_FILE, weights.read),
    Side('tokenizer.json', limits.LARGE_FILE, _tokenizer),
    Side('vocab.txt', limits.LARGE_FILE, _tokenizer),
    Side('spiece.model', limits.LARGE_FILE, _tokenizer),
    Side('vocab.json', limits.LARGE_FILE, _tokenizer),
    Side('tokenizer_config.json', limits.SMALL_FILE, _tokenizer),
    Side('manifest.json', limits.LARGE_FILE, corpus.read_manifest),
    Side(source_files.NAME, limits.LARGE_FILE, source_files.read),
    Side('metadata.json', limits.LARGE_FILE, checkpoint_files.read_metadata),
    Side('arrays.json', limits.LARGE_FILE, checkpoint_files.read_description),
    Side(saved_datasets.STATE, limits.SMALL_FILE, saved_datasets.state),
    Side('results.json', limits.SMALL_FILE, lambda folder: glue.read_results([folder])),
]


@pytest.mark.parametrize('side', SIDES, ids=lambda side: side.name)
def test_files_above_their_limit_are_refused_unread(side, tmp_path):
    with open(tmp_path / side.name, 'wb') as file:
        os.truncate(file.fileno(), side.limit + 1)
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=f'more than {side.limit:,} bytes'):
            side.read(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < side.limit
    finally:
        tracemalloc.stop()


def test_a_large_digest_list_is_damage(tmp_path):
    with open(tmp_path / checksums.NAME, 'wb') as file:
        os.truncate(file.fileno(), limits.SMALL_FILE + 1)
    assert 'more than' in checksums.find_damage(tmp_path)


def test_files_are_read_as_pathlib_reads_them(tmp_path):
    path = tmp_path / 'a.txt'
    for content in (b'', b'a\r\nb\rc\n', '\ufeffé'.encode()):
        path.write_bytes(content)
        assert files.read_text(path) == path.read_text(encoding='utf-8')
        assert files.read_text(path, limit=len(content)) == path.read_text(encoding='utf-8')
        assert files.read_text(path, 'utf-8-sig') == path.read_text(encoding='utf-8-sig')
    with pytest.raises(UserError, match='more than 4 bytes'):
        files.read_bytes(path, 4)


def test_pipes_and_folders_are_not_read(tmp_path):
    os.mkfifo(tmp_path / 'pipe.json')  # opening it would wait for a writer
    for name in ('pipe.json', ''):
        with pytest.raises(UserError, match=str(tmp_path)):
            files.read_json(tmp_path / name)


def test_json_of_very_many_objects_is_refused():
    for container in ('[],', '{},'):
        with pytest.raises(ValueError, match='more than 4,000,000 objects and lists'):
            files.parse_json('[' + container * limits.JSON_CONTAINERS + '0]')
    assert len(files.parse_json(json.dumps([[]] * 99))) == 99

"""The time left while text is read: positions of sources, and the bar."""

import gzip
import io
import json
import re
import sys

import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from bert_jax import progress
from bert_jax.corpus.preparation import prepare
from bert_jax.text.sources import open_source
from tests.text.sources.test_tfds import tfds_folder  # noqa: F401

TEXTS = [f'Document {number} has some words. ' * (number % 7 + 1) for number in range(2000)]


def write(folder, kind):
    """Write the texts to files of a kind; return the spec of a source."""
    path = folder / 'texts'
    table = pa.table({'text': TEXTS})
    if kind == 'text':
        path.write_text('\n'.join(TEXTS), encoding='utf-16')
        return f'text:{path};documents=line;encoding=utf-16'
    if kind == 'gzip':
        path.write_bytes(gzip.compress('\n'.join(TEXTS).encode(), 0))
        return f'text:{path};documents=line'
    if kind == 'jsonl':
        for part in (0, 1):
            rows = [json.dumps({'text': text, 'n': 1}) for text in TEXTS[part::2]]
            (folder / f'{part}.jsonl').write_text('\n'.join(rows))
        return f'jsonl:{folder}/*.jsonl'
    if kind == 'parquet':
        parquet.write_table(table, path)
    elif kind == 'feather':
        with ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, 100)
    elif kind == 'stream':
        with ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table, 100)
    return f'parquet:{path}'


KINDS = ['text', 'gzip', 'jsonl', 'parquet', 'feather', 'stream']


@pytest.mark.parametrize('kind', KINDS)
def test_the_position_is_proportional_to_the_text_that_is_read(tmp_path, kind):
    source = open_source(write(tmp_path, kind))
    size = source.size()
    assert size == sum(path.stat().st_size for path in tmp_path.iterdir())
    total = sum(map(len, TEXTS))
    for _ in range(2):
        read, positions = 0, []
        for document in source.documents():
            read += len(document.text)
            positions.append(source.position / size)
            assert abs(source.position / size - read / total) < 0.2
        assert positions == sorted(positions)
        assert positions[0] < 0.2
        assert source.position == size


def test_a_source_of_another_kind_knows_its_size(tfds_folder):  # noqa: F811
    for spec in ('canaries:2', 'sample', f'tfds:wiki/fr;data_dir={tfds_folder}'):
        source = open_source(spec)
        size = source.size()
        positions = [source.position for _ in source.documents()]
        assert positions == sorted(positions)
        assert positions[0] < source.position == size, spec


def bars(monkeypatch, *arguments, **options):
    monkeypatch.setattr(progress, 'SECONDS_BETWEEN_LINES', 0.0)
    monkeypatch.setattr(sys, 'stderr', io.StringIO())
    prepare(*arguments, workers=0, **options)
    return sys.stderr.getvalue().splitlines()


def shares(lines, name):
    return [int(found[1]) for line in lines if (found := re.match(rf'{name}: +(\d+)%', line))]


@pytest.mark.parametrize('alpha', [1.0, 0.3])
def test_preparing_shows_shares_that_grow_to_all(tmp_path, monkeypatch, alpha):
    jsonl, text = tmp_path / 'jsonl', tmp_path / 'text'
    jsonl.mkdir(), text.mkdir()
    sources = [f'{write(jsonl, "jsonl")};language=en', f'{write(text, "text")};language=de']
    lines = bars(
        monkeypatch, sources, 'train:wordpiece:60', tmp_path / 'corpus', language_alpha=alpha
    )
    names = ['vocabulary wordpiece:60', 'preparing', *['counting characters'] * (alpha < 1)]
    for name in names:
        found = shares(lines, name)
        assert found == sorted(found), name
        assert (found[0] < 50, found[-1]) == (True, 100), name
    assert '4,000 documents' in lines[-1]


def test_a_source_of_unknown_size_counts_documents(tmp_path, monkeypatch):
    spec = write(tmp_path, 'jsonl')
    monkeypatch.setattr('bert_jax.text.sources.files.JsonLinesSource.size', lambda self: None)
    lines = bars(monkeypatch, [spec], 'train:wordpiece:60', tmp_path / 'corpus')
    assert any(line.startswith('vocabulary wordpiece:60: 2000 documents') for line in lines)
    assert not shares(lines, 'preparing')

"""Apache Beam's DirectRunner makes the same corpus as a local run, byte for byte."""

import json
import sys

import pytest

from bert_jax import prepare
from bert_jax.data import beam as beam_lib
from bert_jax.data import corpus_builder, unfinished, workers
from bert_jax.data.beam import Beam
from bert_jax.errors import UserError
from tests.end_to_end import small

TOKENIZER = 'train:wordpiece:120'


def contents(folder) -> dict:
    """The bytes of every file; the manifest without its creation time."""
    found = {p.relative_to(folder): p.read_bytes() for p in folder.rglob('*') if p.is_file()}
    manifests = [path for path in found if path.name == 'manifest.json']
    for path in manifests:
        found[path] = json.loads(found[path]) | {'created': None}
    return {p: data for p, data in found.items() if p.name != 'DATASHEET.md'}


def test_beam_makes_the_same_corpus(tmp_path, monkeypatch):
    pytest.importorskip('apache_beam')
    monkeypatch.setattr(corpus_builder, 'BLOCK_CHARACTERS', 2000)
    (tmp_path / 'more').mkdir()
    sources = [small.write_text(tmp_path), small.write_text(tmp_path / 'more', 9, seed=1)]
    prepare.prepare(sources, TOKENIZER, tmp_path / 'local', workers=0, shard_tokens=900)
    runner = Beam(('--runner=BundleBasedDirectRunner',), f'{tmp_path}/blocks')
    options = {'workers': 3, 'shard_tokens': 900, 'beam': runner}
    blocks, tokenize = [], beam_lib.tokenize_block
    monkeypatch.setattr(beam_lib, 'tokenize_block', lambda *own: blocks.append(1) or tokenize(*own))
    prepare.prepare(sources, TOKENIZER, tmp_path / 'beam', **options)
    num_blocks = len(blocks)
    ours = contents(tmp_path / 'beam')
    assert ours == contents(tmp_path / 'local')
    assert sum(path.name.endswith('.tokens.npy') for path in ours) > 4
    assert not list(tmp_path.glob('*.partial'))
    assert not (tmp_path / 'blocks').exists()

    # Beam resumes what another run began.
    monkeypatch.setattr(unfinished, 'SAVE_SECONDS', 0.0)
    calls = iter(range(6))

    def interrupt(*arguments):
        return tokenize(*arguments) if next(calls, None) is not None else 1 / 0

    with monkeypatch.context() as patch:
        patch.setattr(workers, 'tokenize_block', interrupt)
        with pytest.raises(ZeroDivisionError):
            prepare.prepare(sources, TOKENIZER, tmp_path / 'resumed', workers=0, shard_tokens=900)
    assert (tmp_path / 'resumed.partial').exists()
    blocks.clear()
    prepare.prepare(sources, TOKENIZER, tmp_path / 'resumed', **options)
    assert len(blocks) == num_blocks - 6
    assert ours == contents(tmp_path / 'resumed')

    # An error if the workers read a different text.
    write = beam_lib.tokenize_part

    def elsewhere(part, work):
        changed = tmp_path / 'more/text.txt'
        text = changed.read_text()
        changed.write_text(text.replace('near', 'beyond'))
        write(part, work)
        changed.write_text(text)

    monkeypatch.setattr(beam_lib, 'tokenize_part', elsewhere)
    with pytest.raises(UserError, match='block 0 of .*more/text.txt.* differs from'):
        prepare.prepare(sources, TOKENIZER, tmp_path / 'other', **options)
    assert not (tmp_path / 'other').exists()


def test_the_error_without_beam_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'apache_beam', None)
    with pytest.raises(UserError, match='pip install apache-beam'):
        prepare.prepare(
            [small.write_text(tmp_path)],
            TOKENIZER,
            tmp_path / 'out',
            beam=Beam((), f'{tmp_path}/blocks'),
        )

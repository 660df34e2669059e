"""Text, labeled data, tokenizers and outputs in buckets, against the same files on a disk."""

import contextlib
import gzip
import json

import pyarrow
import pytest
from pyarrow import parquet

from bert_jax import tokenizers
from bert_jax.errors import UserError
from bert_jax.labels import formats, text_lines
from bert_jax.storage import leases, partial_files, paths
from bert_jax.text.sources import open_source
from configs import finetune

TEXTS = ['The first text.', 'The second, ä.', 'The third.']


@pytest.fixture
def folder(tmp_path):
    """Files of all kinds on a disk."""
    (tmp_path / 'a.txt').write_text('\n'.join(TEXTS))
    lines = ''.join(json.dumps({'text': text}) + '\n' for text in TEXTS)
    (tmp_path / 'b.jsonl.gz').write_bytes(gzip.compress(lines.encode()))
    (tmp_path / 'hub/data').mkdir(parents=True)
    table = pyarrow.table({'text': TEXTS})
    parquet.write_table(table, tmp_path / 'hub/data/train-00000-of-00001.parquet')
    (tmp_path / 'vocab.txt').write_text('[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nfirst\n')
    return tmp_path


@pytest.fixture
def copied(root, folder):
    """The same files in a bucket."""
    for file in folder.rglob('*'):
        if file.is_file():
            (root / file.relative_to(folder).as_posix()).upload(file)
    return root


def test_sources_read_the_same_from_a_bucket(copied, folder):
    for spec in (
        'text:{}/*.txt;documents=line',
        'jsonl:{}/**/*.gz',
        'parquet:{}/**/*.parquet',
        'hf:{}/hub',
    ):
        ours, theirs = (
            [document.text for document in open_source(spec.format(place)).documents()]
            for place in (copied, folder)
        )
        assert ours == theirs
        assert len(ours) >= 3


def test_a_missing_file_in_a_bucket_is_named(copied):
    with pytest.raises(UserError, match=f'no file matches .{copied}/none'):
        open_source(f'text:{copied}/none*.txt')
    with pytest.raises(UserError, match='no such file or folder'):
        tokenizers.load(f'{copied}/none.txt')


def test_tokenizers_are_read_from_a_bucket(copied, folder):
    theirs = tokenizers.load(str(folder / 'vocab.txt')).fingerprint
    assert tokenizers.load(f'{copied}/vocab.txt').fingerprint == theirs


def test_labeled_files_are_read_from_a_bucket(copied):
    data = finetune.get_config('classification').data
    (path,) = formats.expand_globs([f'{copied}/a.txt'])
    assert [text for _, text in text_lines.numbered_lines(path, data)] == TEXTS


def test_an_output_in_a_bucket_is_complete_or_absent(root):
    output = f'{root}/out.jsonl'
    with contextlib.suppress(RuntimeError), partial_files.resumed(paths.path(output)) as files:
        files.append('lines', b'half')
        raise RuntimeError
    assert not paths.path(output).exists()
    with partial_files.resumed(paths.path(output)) as files:
        files.append('lines', b'whole')
        files.publish('lines')
    assert paths.path(output).read_bytes() == b'whole'


def test_nothing_is_changed_once_a_lock_is_lost(root, tmp_path):
    (root / 'run/checkpoints/2/marker').write_text('theirs')
    lease = leases.Lease(root / 'run/lock')
    lease.acquire()
    lease._lost_to = 'process 1 on elsewhere'
    (tmp_path / 'new').mkdir()
    (tmp_path / 'new/marker').write_text('ours')
    log = paths.local(root / 'run/log')
    log.parent.mkdir(parents=True)
    log.write_text('ours')
    for change in (
        lambda: paths.retract(root / 'run/checkpoints/2', 'marker'),
        lambda: paths.publish(tmp_path / 'new', root / 'run/checkpoints/4', 'marker'),
        lambda: paths.push(root / 'run'),
    ):
        with pytest.raises(UserError, match='taken over by process 1 on elsewhere'):
            change()
    lease.release()
    assert {str(file.relative_to(root / 'run')) for file in root.files()} == {
        'checkpoints/2/marker',
        'lock.000001',
    }

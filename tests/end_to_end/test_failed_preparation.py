"""Whatever ends a preparation: the error is one line, and no files are left."""

import contextlib
import errno
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import time

import pytest

from bert_jax import errors, tokenizers
from bert_jax.corpus import corpus, preparation
from tests import disks
from tests.end_to_end.preparation import (
    ROOT,
    TOKENIZER,
    command,
    contents,
    many_texts,
    run,
    texts,
)

__all__ = ['texts', 'many_texts']  # fixtures


@pytest.mark.parametrize('copies', [1, 3])
def test_a_corpus_of_a_single_document_is_an_error(copies, texts, tmp_path):
    for i in range(copies):
        shutil.copy(texts / '00.txt', tmp_path / f'copy{i}.txt')
    with pytest.raises(errors.UserError, match='at least two'):
        preparation.prepare([f'text:{tmp_path}/copy*.txt'], TOKENIZER, tmp_path / 'out', workers=0)
    assert not list(tmp_path.glob('out*'))


@pytest.mark.parametrize(
    ('changed', 'message'),
    [
        ({'sources': []}, 'no source given'),
        ({'sources': ['txet:a']}, "unknown source 'txet'"),
        ({'sources': ['text:/nowhere/*.txt']}, '/nowhere'),
        ({'sources': ['text:{empty}']}, 'no text'),
        ({'tokenizer': '/nowhere/vocab.txt'}, '/nowhere/vocab.txt'),
        ({'tokenizer': 'train:wordpeace:80'}, 'wordpeace'),
        ({'tokenizer': '{no_mask}'}, r'lacks \[MASK\]'),
        ({'held_out_fraction': 0.0}, 'held_out_fraction'),
        ({'held_out_fraction': 1.0}, 'held_out_fraction'),
        ({'workers': -1}, 'workers'),
        ({'output': '{texts}'}, 'is not a corpus'),
        ({'output': '{texts}/00.txt/out'}, 'cannot prepare'),
        ({'output': '{texts}/00.txt'}, 'is not a corpus'),
    ],
)
def test_errors_are_one_line_and_leave_no_files(changed, message, texts, tmp_path):
    (tmp_path / 'empty').write_text(' \n ')
    (tmp_path / 'no_mask').write_text('\n'.join(tokenizers.SPECIAL_TOKENS[:4]))
    places = {'empty': tmp_path / 'empty', 'no_mask': tmp_path / 'no_mask', 'texts': texts}
    wanted = {
        'sources': [f'text:{texts}/*.txt'],
        'tokenizer': TOKENIZER,
        'output': str(tmp_path / 'out'),
        'workers': 0,
    } | changed
    for key in ('tokenizer', 'output'):
        wanted[key] = wanted[key].format(**places)
    wanted['sources'] = [source.format(**places) for source in wanted['sources']]
    with pytest.raises(errors.UserError, match=message) as info:
        preparation.prepare(**wanted)
    assert '\n' not in str(info.value)
    assert not list(tmp_path.rglob('*.partial'))
    assert not (tmp_path / 'out').exists()


def test_a_file_size_limit_is_a_one_line_error_and_leaves_no_files(texts, tmp_path):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))

    done = run(command(f'text:{texts}/*.txt', tmp_path / 'out', '--workers=0'), preexec_fn=limit)
    assert done.returncode == 2
    last = done.stderr.strip().split('\n')[-1]
    assert last.startswith('error: cannot prepare')
    assert os.strerror(errno.EFBIG) in last
    assert 'Traceback' not in done.stderr
    assert not list(tmp_path.glob('out*'))


@pytest.mark.parametrize(('workers', 'size'), [(0, '16k'), (2, '48k')])  # full early, full later
def test_a_full_disk_is_a_one_line_error_and_leaves_no_files(workers, size, many_texts, tmp_path):
    with disks.small(tmp_path, size) as disk:
        done = run(command(many_texts, disk / 'out', f'--workers={workers}'))
        left = list(disk.glob('out*'))
    assert done.returncode == 2
    last = done.stderr.strip().split('\n')[-1]
    assert last.startswith('error: cannot prepare')
    assert os.strerror(errno.ENOSPC) in last
    assert 'Traceback' not in done.stderr
    assert not left


def wait_for(condition, seconds=60):
    """Poll until condition() is true and return its value."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.01)
    raise TimeoutError


def children(pid):
    return [
        int(child)
        for task in pathlib.Path(f'/proc/{pid}/task').iterdir()
        for child in (task / 'children').read_text().split()
    ]


def alive(pid):
    try:
        return pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] != 'Z'
    except FileNotFoundError:
        return False


def has_written_tokens(partial):
    def found():
        with contextlib.suppress(FileNotFoundError):  # files are renamed meanwhile
            return any(path.stat().st_size > 1000 for path in partial.rglob('*.tokens.npy'))

    return found


def test_a_run_after_a_killed_run_makes_the_same_files(many_texts, tmp_path):
    output, partial = tmp_path / 'out', tmp_path / 'out.partial'
    process = subprocess.Popen(
        command(many_texts, output, '--workers=2'), cwd=ROOT, stderr=subprocess.DEVNULL
    )
    wait_for(has_written_tokens(partial))
    workers = children(process.pid)
    assert len(workers) == 2
    process.kill()
    process.wait()
    assert not output.exists()
    assert not (partial / 'manifest.json').exists()
    with pytest.raises(errors.UserError, match='no corpus'):
        corpus.Corpus.open(output)
    wait_for(lambda: not any(map(alive, workers)))

    (partial / 'train' / '99999.tokens.npy').write_bytes(b'left behind')
    preparation.prepare([many_texts], TOKENIZER, output, workers=2)
    assert not partial.exists()
    preparation.prepare([many_texts], TOKENIZER, tmp_path / 'undisturbed', workers=0)
    assert contents(output) == contents(tmp_path / 'undisturbed')


def test_a_killed_worker_is_a_one_line_error(many_texts, tmp_path):
    process = subprocess.Popen(
        command(many_texts, tmp_path / 'out', '--workers=2'),
        cwd=ROOT, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for(has_written_tokens(tmp_path / 'out.partial'))
    os.kill(children(process.pid)[0], signal.SIGKILL)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2
    assert 'error: a worker process ended' in stderr.strip().split('\n')[-1]
    assert 'status -9' in stderr
    assert 'Traceback' not in stderr
    assert not list(tmp_path.glob('out*'))


def test_workers_that_cannot_start_are_a_one_line_error(texts, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, 'executable', shutil.which('false'))
    with pytest.raises(errors.UserError, match='worker process ended .*status 1'):
        preparation.prepare([f'text:{texts}/*.txt'], TOKENIZER, tmp_path / 'out', workers=2)
    assert not list(tmp_path.glob('out*'))

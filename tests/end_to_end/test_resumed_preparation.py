"""An interrupted preparation resumes, waits for others, and never destroys what is finished."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from bert_jax import errors, prepare
from bert_jax.corpus import corpus, preparation, source_files, unfinished, workers
from bert_jax.corpus.workers import Amounts
from bert_jax.storage import drafts, locks
from tests.end_to_end.preparation import TOKENIZER, command, contents, make_text, texts

__all__ = ['texts']  # a fixture

SMALL_BLOCKS = Amounts(block_characters=1000)
SETTINGS = {
    'held_out_fraction': 0.2,
    'workers': 0,
    'shard_tokens': 700,
    'amounts': SMALL_BLOCKS,
}


class Interruption(Exception):
    """Stands for whatever ends a run."""


@pytest.fixture
def interrupt(monkeypatch):
    """A function that lets the tokenizer fail after some blocks, and counts its blocks."""
    original, calls = workers.tokenize_block, []

    def after(number):
        calls.clear()

        def tokenize(*arguments):
            if len(calls) == number:
                raise Interruption
            calls.append(1)
            return original(*arguments)

        monkeypatch.setattr(workers, 'tokenize_block', tokenize)
        return calls

    return after


def specs(texts):
    return [f'text:{texts}/0*.txt;language=en', f'text:{texts}/1*.txt', f'text:{texts}/2*.txt']


@pytest.mark.parametrize('save_seconds', [0.0, 1000.0])  # after each block, or after each shard
def test_a_resumed_corpus_is_the_same(save_seconds, texts, tmp_path, interrupt, monkeypatch):
    monkeypatch.setattr(drafts.DraftOnDisk, 'save_seconds', save_seconds)
    (texts / '07.txt').write_text('\u200b')  # a document without tokens is counted once
    calls = interrupt(1000)
    preparation.prepare(specs(texts), TOKENIZER, tmp_path / 'whole', **SETTINGS)
    total, made = len(calls), []
    for number in (total // 3, total // 3, 1000):
        calls = interrupt(number)
        try:
            preparation.prepare(specs(texts), TOKENIZER, tmp_path / 'out', **SETTINGS)
        except Interruption:
            saved = json.loads((tmp_path / 'out.partial/progress.json').read_text())
            made.append(saved['progress']['writer']['shards'])
            (tmp_path / 'out.partial/train/99999.tokens.npy').write_bytes(b'written later')
    assert 0 < len(made[0]['train']) < len(made[1]['train'])
    assert made[1]['train'][: len(made[0]['train'])] == made[0]['train']
    assert len(calls) < total / 2
    assert contents(tmp_path / 'out') == contents(tmp_path / 'whole')
    corpus.Corpus.open(tmp_path / 'out').verify()
    assert not (tmp_path / 'out.partial').exists()


@pytest.mark.parametrize('change', ['settings', 'file', 'new file'])
def test_an_interrupted_preparation_is_not_resumed_with_other_text(
    change, texts, tmp_path, interrupt
):
    interrupt(10)
    with pytest.raises(Interruption):
        preparation.prepare(specs(texts), TOKENIZER, tmp_path / 'out', **SETTINGS)
    interrupt(1000)
    before = sorted(tmp_path.rglob('out.partial/**/*'))
    settings, message = SETTINGS, 'has changed'
    if change == 'settings':
        settings, message = SETTINGS | {'lowercase': False}, 'lowercase was True and is False'
    elif change == 'file':
        (texts / '05.txt').write_text('Another text. It is short.')
    else:
        (texts / '055.txt').write_text('A further text. It is short.')
        message = '055.txt is new'
    with pytest.raises(errors.UserError, match=f'out.partial holds .*{message}'):
        preparation.prepare(specs(texts), TOKENIZER, tmp_path / 'out', **settings)
    assert sorted(tmp_path.rglob('out.partial/**/*')) == before


def test_a_bad_file_late_in_the_text_costs_nothing(texts, tmp_path, interrupt):
    (texts / '25.txt').write_bytes(b'%PDF-1.7 ...')
    vocab = tmp_path / 'vocab.txt'
    vocab.write_text('\n'.join(['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *'abcdefgh', 'the']))
    calls = interrupt(1000)
    with pytest.raises(errors.UserError, match='1 of 10 files .*25.txt is a PDF file'):
        preparation.prepare(specs(texts), str(vocab), tmp_path / 'out', **SETTINGS)
    before = len(calls)
    made = preparation.prepare(
        specs(texts), str(vocab), tmp_path / 'out', max_bad_share=0.1, **SETTINGS
    )
    assert len(calls) - before < before / 2
    assert made.manifest['sources'][2]['report']['bad_files'] == 1


@pytest.mark.parametrize('step', ['print', 'datasheet'])
def test_a_failure_at_the_end_costs_nothing(step, texts, tmp_path, interrupt, monkeypatch):
    def fail(*_):
        raise Interruption

    calls = interrupt(1000)
    with monkeypatch.context() as patch:
        if step == 'print':
            patch.setattr(preparation, '_print_summary', fail)
        else:
            patch.setattr('bert_jax.corpus.datasheet.render', fail)
        with pytest.raises(Interruption):
            preparation.prepare(specs(texts), TOKENIZER, tmp_path / 'out', **SETTINGS)
    assert (tmp_path / 'out').exists() == (step == 'print')
    before = len(calls)
    preparation.prepare(specs(texts), TOKENIZER, tmp_path / 'out', **SETTINGS).verify()
    assert len(calls) == before


def test_odd_file_names_do_no_harm(texts, tmp_path, capsys):
    folder = os.fsencode(tmp_path) + b'/b\xfccher'
    os.rename(texts, folder)
    spec = f'text:{os.fsdecode(folder)}/*.txt'
    made = preparation.prepare([spec], TOKENIZER, tmp_path / 'out', workers=0)
    assert made.manifest['sources'][0]['spec'] == spec
    assert 'b\\udcfccher' in capsys.readouterr().out
    assert 'b\\udcfccher' in (tmp_path / 'out/DATASHEET.md').read_text()
    preparation.prepare([spec], TOKENIZER, tmp_path / 'out', workers=0)


def test_a_changed_source_file_is_reported(texts, tmp_path, capsys):
    def warning():
        preparation.prepare([f'text:{texts}/*.txt'], TOKENIZER, tmp_path / 'out', workers=0)
        lines = capsys.readouterr().err.splitlines()
        return [line for line in lines if 'was prepared before' in line]

    assert warning() == warning() == []
    (texts / '05.txt').write_text(make_text(random.Random(99)))
    (texts / '06.txt').unlink()
    (texts / '31.txt').write_text('New text.')
    (line,) = warning()
    assert '06.txt is gone' in line
    assert '31.txt is new' in line
    assert '05.txt has changed' in line
    for path in texts.iterdir():
        path.unlink()
    assert source_files.changes(tmp_path / 'out') == []


def test_a_second_run_waits_and_uses_the_corpus_of_the_first(texts, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(locks, '_POLL_SECONDS', 0.05)
    code = (
        'import pathlib, sys\n'
        'from bert_jax.storage.locks import Lock\n'
        f"with Lock(pathlib.Path('{tmp_path}/.out.lock')).waited_for(str):\n"
        "    print('locked', flush=True)\n"
        '    sys.stdin.read()\n'
    )
    root = pathlib.Path(prepare.__file__).parents[1]
    holder = subprocess.Popen(
        [sys.executable, '-c', code], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout.readline() == b'locked\n'
    (tmp_path / 'out.partial').mkdir()
    (tmp_path / 'out.partial' / unfinished.OWNER).write_text(unfinished._OWNER_TEXT)
    (tmp_path / 'out.partial/live').write_text('of the other process')
    made = []
    waiting = threading.Thread(
        target=lambda: made.append(
            preparation.prepare([f'text:{texts}/*.txt'], TOKENIZER, tmp_path / 'out', workers=0)
        )
    )
    waiting.start()
    time.sleep(0.5)
    assert (tmp_path / 'out.partial/live').exists()
    assert not made
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    waiting.join()
    assert f'of process {holder.pid} on ' in capsys.readouterr().err
    assert made[0].split('train').num_documents > 20


def test_two_runs_at_once_make_one_corpus(texts, tmp_path):
    commands = [command(f'text:{texts}/*.txt', tmp_path / 'out', '--workers=0')] * 2
    root = pathlib.Path(prepare.__file__).parents[1]
    running = [
        subprocess.Popen(c, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for c in commands
    ]
    outputs = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0, 0], outputs
    assert sorted('already' in output for output, _ in outputs) == [False, True]
    corpus.Corpus.open(tmp_path / 'out').verify()


def test_threads_hold_a_lock_one_after_the_other(tmp_path):
    inside, most = [], []

    def work():
        with locks.Lock(tmp_path / 'lock').waited_for(str):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.02)
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 4


@pytest.mark.parametrize('num_blocks', [0, 8])
def test_control_c_says_what_remains_and_that_the_command_resumes(
    num_blocks, texts, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(drafts.DraftOnDisk, 'save_seconds', 0.0)
    monkeypatch.setitem(preparation.prepare.__kwdefaults__, 'amounts', SMALL_BLOCKS)
    original, calls = workers.tokenize_block, []

    def tokenize(*arguments):
        if len(calls) == num_blocks:
            raise KeyboardInterrupt
        calls.append(1)
        return original(*arguments)

    output = tmp_path / 'out'
    flags = [f'--input=text:{texts}/*.txt', f'--tokenizer={TOKENIZER}', f'--output={output}']
    with monkeypatch.context() as patch:
        patch.setattr(workers, 'tokenize_block', tokenize)
        with pytest.raises(SystemExit) as ended:
            prepare.main([*flags, '--workers=0'])
    assert ended.value.code == 128 + signal.SIGINT
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith('interrupted: ')
    kept = tmp_path / 'out.partial'
    assert kept.exists() == bool(num_blocks)
    expected = [str(kept), 'to resume'] if num_blocks else ['to start again']
    assert all(word in line for word in [*expected, 'rerun the same command'])
    prepare.main([*flags, '--workers=0'])
    corpus.Corpus.open(output).verify()

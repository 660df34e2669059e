"""How far a library is that trains a vocabulary, and that showing it changes nothing."""

import io
import os
import random
import subprocess
import sys

import pytest

from bert_jax import progress, tokenizers
from bert_jax.tokenizers import training_progress


def texts():
    rng = random.Random(0)
    return [
        ' '.join(''.join(rng.choices('abcdefgh', k=rng.randint(2, 7))) for _ in range(300))
        for _ in range(40)
    ]


@pytest.mark.parametrize('kind', ['wordpiece', 'bytebpe', 'unigram', 'sentencepiece-bpe'])
def test_training_shows_how_much_is_done_and_nothing_else(kind, monkeypatch, capfd):
    shown = io.StringIO()
    monkeypatch.setattr(sys, 'stderr', shown)
    monkeypatch.setattr(progress, 'SECONDS_BETWEEN_LINES', 0.0)
    monkeypatch.setattr(training_progress, '_DELAY', progress._DELAY)
    trained = tokenizers.train(f'{kind}:700', texts())
    os.write(2, b'afterwards\n')
    assert capfd.readouterr().err == 'afterwards\n'
    lines = shown.getvalue().splitlines()
    assert len(lines) > 2
    assert all('700 tokens:' in line and '<' in line for line in lines)  # elapsed<left
    assert int(lines[-1].split('%')[0].split()[-1]) > 40
    again = tokenizers.train(f'{kind}:700', texts())
    assert again.fingerprint == trained.fingerprint


def test_an_error_of_a_library_is_raised_and_standard_error_is_restored(capfd):
    def fail():
        with training_progress.shown('work', training_progress.parse_merges):
            os.write(2, b'{"stage":"Compute merges","current":1,"total":2}\nnoise\n')
            raise RuntimeError('broken')

    with pytest.raises(RuntimeError, match='broken'):
        fail()
    os.write(2, b'afterwards\n')
    assert capfd.readouterr().err == 'noise\nafterwards\n'


def test_a_process_that_is_started_meanwhile_does_not_delay_the_end(monkeypatch):
    monkeypatch.setattr(training_progress, '_JOIN', 0.1)
    with training_progress.shown('work', training_progress.parse_merges):
        process = subprocess.Popen(['sleep', '60'])  # inherits the standard error of the block
    assert process.poll() is None
    process.kill()
    process.wait()


def test_what_is_not_a_report_is_passed_on(capfd):
    with training_progress.shown('training', training_progress.parse_merges):
        os.write(2, b'{"stage": "Compute merges", "current": 1, "total": 4}\n')
        os.write(2, b'a warning of another library\n')
    assert capfd.readouterr().err == 'a warning of another library\n'

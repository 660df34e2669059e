"""Existing results are kept unless --overwrite is given, in every command."""

import contextlib
import ctypes
import json
import os
import pathlib
import sys

import pytest
from ml_collections import ConfigDict

from bert_jax import evaluate, export, files, main, predict
from bert_jax.analyze import __main__ as analyze
from bert_jax.corpus import preparation
from bert_jax.errors import UserError
from bert_jax.page import __main__ as page
from bert_jax.reports import ensemble
from bert_jax.storage import outputs, paths
from bert_jax.training.workdir import Workdir

FILES = {
    predict: ['--model=none', '--task=classify', '--input=none'],
    page: ['--model=none'],
    ensemble: ['none'],
}
FOLDERS = {
    evaluate: ['--model=none', '--input=none'],
    export: ['--model=none'],
    analyze: ['isotropy', '--model=none', '--input=none'],
}


def refusal(command, arguments, capsys) -> str:
    """What a command that ends with status 2 says."""
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize('command', FILES, ids=lambda command: command.__name__)
def test_a_file_is_kept_and_nothing_is_computed(command, tmp_path, capsys):
    output = tmp_path / 'mine'
    output.write_text('kept')
    arguments = [*FILES[command], f'--output={output}']
    assert f'--output={output} exists; add --overwrite' in refusal(command, arguments, capsys)
    assert output.read_text() == 'kept'
    # The model is looked for only after this check.
    assert 'exists' not in refusal(command, [*arguments, '--overwrite'], capsys).split('none')[0]
    output.unlink()
    output.mkdir()
    assert 'is a folder' in refusal(command, [*arguments, '--overwrite'], capsys)


def test_devices_and_pipes_are_written_as_they_are(tmp_path):
    os.mkfifo(tmp_path / 'pipe')
    (tmp_path / 'file').touch()
    for stream in ('/dev/null', '/dev/stdout', str(tmp_path / 'pipe')):
        assert paths.is_stream(stream)
        outputs.check_file(stream, overwrite=False)
    for other in (tmp_path, tmp_path / 'file', tmp_path / 'new'):
        assert not paths.is_stream(other)


@pytest.mark.parametrize('command', FOLDERS, ids=lambda command: command.__name__)
def test_a_folder_is_kept_and_a_foreign_one_is_never_replaced(command, tmp_path, capsys):
    output = tmp_path / 'mine'
    output.mkdir()
    (output / 'notes.txt').write_text('kept')
    arguments = [*FOLDERS[command], f'--output={output}']
    assert f'--output={output} exists; add --overwrite' in refusal(command, arguments, capsys)
    arguments.append('--overwrite')
    assert 'was not made by this command' in refusal(command, arguments, capsys)
    assert (output / 'notes.txt').read_text() == 'kept'


@pytest.mark.parametrize('place', ['disk', 'bucket'])
def test_a_folder_is_replaced_only_once_the_new_one_is_complete(place, buckets):
    old = paths.path('gs://bucket/out') if place == 'bucket' else buckets / 'bucket/out'

    def contents():
        return sorted(file.name for file in (buckets / 'bucket/out').iterdir())

    for name in ('load.py', 'old'):
        with files.new_folder(old, 'load.py', overwrite=True) as new:
            (new / 'load.py').touch()
            (new / name).touch()
    assert contents() == ['load.py', 'old']
    with contextlib.suppress(ZeroDivisionError), files.new_folder(old, overwrite=True) as new:
        (new / 'new').touch()
        raise ZeroDivisionError
    with files.new_folder(old, 'load.py', overwrite=True) as new:
        assert contents() == ['load.py', 'old']
        (new / 'load.py').touch()
        (new / 'new').touch()
    assert contents() == ['load.py', 'new']


@pytest.mark.skipif(sys.platform != 'linux', reason='one step on Linux only')
def test_a_folder_is_replaced_in_one_step(tmp_path, monkeypatch):
    """A kill between two renames left nothing at the path."""
    (tmp_path / 'out').mkdir()
    (tmp_path / 'out/old').touch()
    monkeypatch.setattr(pathlib.Path, 'rename', None)
    with files.new_folder(tmp_path / 'out', overwrite=True) as new:
        (new / 'new').touch()
    assert [path.name for path in (tmp_path / 'out').iterdir()] == ['new']
    assert [path.name for path in tmp_path.iterdir()] == ['out']


def test_a_folder_is_replaced_where_two_cannot_be_exchanged(tmp_path, monkeypatch):
    (tmp_path / 'out').mkdir()
    (tmp_path / 'out/old').touch()
    monkeypatch.setattr(ctypes, 'CDLL', lambda *_, **__: None)
    with files.new_folder(tmp_path / 'out', overwrite=True) as new:
        (new / 'new').touch()
    assert [path.name for path in (tmp_path / 'out').iterdir()] == ['new']


def test_a_corpus_is_replaced_on_request(tmp_path):
    (tmp_path / 'a.txt').write_text('\n'.join(f'One line with number {i}.' for i in range(20)))
    source = f'text:{tmp_path}/a.txt;documents=line'

    def make(size, **options):
        output = tmp_path / 'corpus'
        return preparation.prepare(
            [source], f'train:wordpiece:{size}', output, workers=0, **options
        )

    make(60)
    with pytest.raises(UserError, match='made with tokenizer=.*--overwrite'):
        make(70)
    replaced = make(70, overwrite=True)
    assert replaced.manifest['made_from']['tokenizer'] == 'train:wordpiece:70'
    with pytest.raises(UserError, match='no-such-source'):
        preparation.prepare(
            ['no-such-source:x'], 'train:wordpiece:60', tmp_path / 'corpus', workers=0
        )
    assert (tmp_path / 'corpus/manifest.json').exists()


def test_a_run_does_not_write_over_files_of_others(tmp_path):
    (tmp_path / 'README.md').write_text('my notes')
    for read in (Workdir.check_files, lambda workdir: workdir.claim(ConfigDict())):
        with pytest.raises(UserError, match='holds README.md, but no run'):
            read(Workdir.of(tmp_path))
    (tmp_path / 'README.md').rename(tmp_path / 'notes.md')
    (tmp_path / 'config.json').write_text(json.dumps({'model_type': 'bert'}))  # published weights
    with pytest.raises(UserError, match='holds config.json, but no run'):
        Workdir.of(tmp_path).check_files()
    with pytest.raises(UserError, match='holds config.json, but no run'):
        Workdir.of(tmp_path).delete_run()
    (tmp_path / 'config.json').unlink()
    Workdir.of(tmp_path).check_files()  # nothing would be replaced
    with pytest.raises(UserError, match='holds no run'):
        Workdir.of(tmp_path).delete_run()
    assert (tmp_path / 'notes.md').exists()


def test_a_run_is_deleted_on_request(tmp_path):
    run = tmp_path / 'run'
    (run / 'checkpoints/5').mkdir(parents=True)
    (run / 'config.json').write_text(json.dumps({'task': 'pretraining', 'workdir': 'x', 'seed': 1}))
    with pytest.raises(UserError, match='--overwrite'):
        Workdir.of(run).check_config(ConfigDict(dict(task='pretraining', workdir='x', seed=2)))
    Workdir.of(run).delete_run()
    assert not list(run.iterdir())
    Workdir.of(run).delete_run()  # nothing is left to delete
    line = main.command_line.parse(['main', '--config=configs/tiny.py', '--overwrite'], '')
    assert line.flags.overwrite


@pytest.mark.parametrize(
    ('argument', 'message'),
    [
        ('--config.data.train=("missing.tsv",)', "'missing.tsv' does not exist"),
        ('--config.schedule.name=sine', 'unknown schedule'),
        ('--config.init_from={}', 'would delete init_from'),
        ('--config.sweep.seeds=(0,1) --config.sweep.vmap=True', 'set transfer.method, such as'),
    ],
)
def test_a_run_is_kept_if_the_next_one_cannot_be_built(argument, message, tmp_path, capsys):
    run = tmp_path / 'run'
    (run / 'checkpoints/5').mkdir(parents=True)
    (run / 'config.json').write_text(json.dumps({'task': 'pretraining', 'workdir': 'x'}))
    config = ['--config=configs/finetune.py:sample_sentiment', f'--config.workdir={run}']
    arguments = ['main', *config, *argument.format(run).split(), '--overwrite']
    assert message in refusal(main, arguments, capsys)
    assert (run / 'checkpoints/5').exists()


def test_a_run_that_was_interrupted_right_after_its_start_can_be_started_again(tmp_path):
    (tmp_path / 'checkpoints').mkdir()
    (tmp_path / 'lock').touch()
    Workdir.of(tmp_path).check_files()
    (tmp_path / 'checkpoints/100').mkdir()
    with pytest.raises(UserError, match='holds checkpoints, but no run'):
        Workdir.of(tmp_path).check_files()

"""Temporary folders: those of killed processes are removed, those of a user never are."""

import concurrent.futures
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import pytest
from ml_collections import ConfigDict

from bert_jax import files
from bert_jax.corpus import unfinished
from bert_jax.errors import UserError
from bert_jax.storage import paths, temporary
from bert_jax.storage.locks import Lock
from bert_jax.training.workdir import Workdir

ROOT = pathlib.Path(paths.__file__).parents[2]


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A function that makes the scratch folder of a process whose TMPDIR is a test's folder."""
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
    temporary._make_scratch.cache_clear()
    yield temporary.scratch
    temporary._make_scratch.cache_clear()


def test_threads_that_ask_first_get_the_same_folder(scratch, monkeypatch):
    class Slow(temporary.TemporaryFolder):
        def __init__(self, *arguments):
            time.sleep(0.05)
            super().__init__(*arguments)

    monkeypatch.setattr(temporary, 'TemporaryFolder', Slow)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert len({*pool.map(lambda _: scratch(), range(8))}) == 1


def test_folders_of_a_user_are_kept(scratch, tmp_path):
    users = [tmp_path / name for name in ('bert_jax-run', 'bert_jax-scratch-run')]
    for folder in users:  # as the workdir of a run has
        folder.mkdir()
        (folder / 'lock').touch()
        (folder / 'results.json').write_text('{}')
    (users[1] / temporary._OWNER).write_text('mine')
    scratch()
    assert all((folder / 'results.json').exists() for folder in users)


def test_pipes_and_links_are_left_alone(scratch, tmp_path):
    own = tmp_path / 'own'
    own.mkdir()
    (own / temporary._OWNER).write_bytes(temporary._TEXT)
    (tmp_path / 'bert_jax-scratch-link').symlink_to(own)
    for name in ('lock', temporary._OWNER):
        (tmp_path / f'bert_jax-scratch-{name}').mkdir()
        os.mkfifo(tmp_path / f'bert_jax-scratch-{name}' / name)
    scratch()  # would wait for the other end of the pipe
    assert (own / temporary._OWNER).exists()
    assert len(list(tmp_path.glob('bert_jax-scratch-*'))) == 4


def test_the_folder_of_a_killed_process_is_removed(tmp_path):
    code = (
        'import pathlib, sys\n'
        'from bert_jax.storage import temporary\n'
        f"folder = temporary.TemporaryFolder(pathlib.Path('{tmp_path}'), 'x-')\n"
        'print(folder.path, flush=True)\n'
        'sys.stdin.read()\n'
    )
    holder = subprocess.Popen(
        [sys.executable, '-c', code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    path = pathlib.Path(holder.stdout.readline().decode().strip())
    temporary.TemporaryFolder(tmp_path, 'x-').remove()
    assert path.is_dir()  # in use
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    temporary.TemporaryFolder(tmp_path, 'x-').remove()
    assert list(tmp_path.iterdir()) == []


def test_an_export_leaves_other_folders_alone(tmp_path):
    mine = tmp_path / 'model.partial'
    mine.mkdir()
    (mine / 'thesis.tex').touch()
    with files.new_folder(tmp_path / 'model') as folder:
        (folder / 'config.json').write_text('{}')
    assert (mine / 'thesis.tex').exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ['model', 'model.partial']
    assert [path.name for path in (tmp_path / 'model').iterdir()] == ['config.json']


def test_two_exports_to_one_folder_do_not_mix(tmp_path):
    first = files.new_folder(tmp_path / 'model')
    (first.__enter__() / 'first').touch()
    with files.new_folder(tmp_path / 'model') as second:
        (second / 'second').touch()
    with pytest.raises(UserError, match='model already exists'):
        first.__exit__(None, None, None)
    assert [path.name for path in (tmp_path / 'model').iterdir()] == ['second']
    assert [path.name for path in tmp_path.iterdir()] == ['model']


def test_a_full_disk_is_one_line_also_in_other_libraries(tmp_path):
    for error in (OSError(28, os.strerror(28)), RuntimeError('IoError: No space left on device')):
        with (
            pytest.raises(UserError, match='model cannot be written: No space left on device'),
            files.new_folder(tmp_path / 'model'),
        ):
            raise error
    assert list(tmp_path.iterdir()) == []


def test_a_json_file_replaces_only_itself(tmp_path):
    (tmp_path / 'results.tmp').write_text('mine')
    (tmp_path / 'other').write_text('mine')
    (tmp_path / '.results.json-x.partial').symlink_to(tmp_path / 'other')
    files.write_json(tmp_path / 'results.json', {})
    assert (tmp_path / 'results.tmp').read_text() == 'mine'
    assert (tmp_path / 'other').read_text() == 'mine'
    assert not (tmp_path / 'results.json').is_symlink()


def test_two_processes_may_write_one_file_at_once(tmp_path):
    path = tmp_path / 'README.md'
    with files.new_file(path) as first:
        first.write_text('first')
        files.write_text(path, 'second')
        assert path.read_text() == 'second'
    assert path.read_text() == 'first'
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize('name', ['', 'notes.txt', unfinished.OWNER])
def test_a_preparation_starts_only_in_a_folder_of_its_own(name, tmp_path):
    output, partial = tmp_path / 'corpus', tmp_path / 'corpus.partial'
    partial.mkdir()
    if name:
        (partial / name).write_text('mine')
        (partial / 'more.txt').touch()
        with pytest.raises(UserError, match='corpus.partial exists, but is not an unfinished'):
            unfinished.open_unfinished(output, {}, [])
        assert (partial / name).read_text() == 'mine'
        return
    with unfinished.open_unfinished(output, {}, []):
        pass
    assert [path.name for path in output.iterdir()] == ['source_files.json']


def test_a_preparation_removes_what_is_left_of_its_own(tmp_path):
    output = tmp_path / 'corpus'
    killed = unfinished.open_unfinished(output, {}, [])
    killed.__enter__()
    (killed.folder / 'train').mkdir()
    with unfinished.open_unfinished(output, {}, []) as resumed:
        assert not (resumed.folder / 'train').exists()


@pytest.mark.parametrize('name', ['../../train/x', '/home/user/x'])
def test_saved_progress_names_only_files_of_the_corpus(name, tmp_path):
    for writer in (
        {'files': {name: {}}},
        {'open': {'train': {'name': name}}},
        {'shards': {'train': [{'name': name}]}},
    ):
        killed = unfinished.open_unfinished(tmp_path / 'corpus', {}, [])
        killed.progress = {}
        killed.__enter__()
        killed.save({'writer': writer})
        with pytest.raises(UserError, match='progress.json: the name .* is not of a file below'):
            unfinished.open_unfinished(tmp_path / 'corpus', {}, [])
        (killed.folder / unfinished.RECORD).unlink()


def test_a_lock_keeps_the_content_of_its_file(tmp_path):
    (tmp_path / 'lock').write_text('mine')
    assert Lock(tmp_path / 'lock').take()
    with Lock(tmp_path / 'lock').waited_for(str):
        pass
    assert (tmp_path / 'lock').read_text() == 'mine'


def test_a_pipe_is_not_a_lock(tmp_path):
    os.mkfifo(tmp_path / 'lock')
    with pytest.raises(UserError, match='not a regular file'):
        Workdir.of(tmp_path).claim(ConfigDict())
    with pytest.raises(OSError, match='not a regular file'):
        Lock(tmp_path / 'lock').take()

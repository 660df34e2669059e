"""Preparing and training with everything in a bucket: killed, disturbed, and as on disk."""

import contextlib
import json
import random
import signal
import threading

import numpy as np
import pytest

from bert_jax import tree_paths
from bert_jax.corpus.corpus import Corpus
from bert_jax.corpus.preparation import prepare
from bert_jax.errors import UserError
from bert_jax.loaded import checkpoint_arrays
from bert_jax.storage import paths
from tests.end_to_end import commands, small
from tests.storage.test_bucket import random_faults

ARGUMENTS = (
    '--config.training.steps=(4,)',
    '--config.training.sequence_length=(16,)',
    '--config.training.batch_size=(16,)',
    '--config.training.max_predictions=(3,)',
    '--config.schedule.warmup_steps=1',
    '--config.checkpoint.every_steps=2',
    '--config.evaluation.every_steps=1000',
    '--config.logging.every_steps=1',
)


def write_text(root, folder) -> str:
    """Write the text of `small` into a bucket and return its source."""
    spec = small.write_text(folder)
    if not (root / 'text.txt').exists():
        (root / 'text.txt').upload(folder / 'text.txt')
    return spec.replace(str(folder), str(root))


def places(root, folder) -> tuple[str, ...]:
    """Arguments for text, corpus and workdir in a bucket."""
    return (
        f'--config.data.sources=("{write_text(root, folder)}",)',
        f'--config.data.corpus={root}/corpus',
        f'--config.data.cache_folder={folder}/cache',
        f'--config.workdir={root}/run',
    )


def start(root, folder, *arguments) -> commands.Command:
    """Start training with text, corpus and workdir in a bucket."""
    return small.start(folder, *places(root, folder), *arguments)


def finish(command) -> str:
    """Wait for a command that succeeds and return its stderr."""
    _, stderr = command.communicate()
    assert command.returncode == 0, stderr
    return stderr


@contextlib.contextmanager
def killed_at(server, command, is_last):
    """End a command by SIGKILL at the first request for which `is_last` is true."""

    def kill(request: str) -> str:
        if command.poll() is None and is_last(request):
            with contextlib.suppress(ProcessLookupError):
                command.send_signal(signal.SIGKILL)
            return 'drop'
        return ''

    with server.failing(kill):
        yield


def check_same(root, folder, steps: int):
    """Compare a run in a bucket with one on disk: every bit, and the records of all steps."""
    ours, theirs = (checkpoint_arrays.load(f'{place}/run').state for place in (root, folder))
    ours, theirs = tree_paths.flatten(ours), tree_paths.flatten(theirs)
    assert ours.keys() == theirs.keys()
    assert len(ours) > 30
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    records = map(json.loads, (root / 'run/metrics.jsonl').read_text().splitlines())
    assert [r['step'] for r in records if r['kind'] == 'train'] == list(range(1, steps + 1))
    assert json.loads((root / 'run/results.json').read_text())['steps'] == steps


def digests(folder) -> dict[str, str]:
    """Name → SHA-256 of the files of a corpus."""
    files = json.loads((folder / 'manifest.json').read_text())['files']
    return {name: file['sha256'] for name, file in files.items()}


@pytest.fixture(scope='module')
def on_disk(tmp_path_factory):
    folder = tmp_path_factory.mktemp('on_disk')
    status, stderr = small.run(folder, *ARGUMENTS)
    assert status == 0, stderr
    return folder


def test_a_run_killed_between_arrays_and_marker_ends_as_on_disk(root, server, on_disk, tmp_path):
    def is_marker(request):
        is_written = request.startswith(('PUT', 'POST'))
        return is_written and 'checkpoints/4/manifest.sha256' in request

    command = start(root, tmp_path, *ARGUMENTS)
    with killed_at(server, command, is_marker):
        command.communicate()
    assert command.returncode == -signal.SIGKILL
    assert list((root / 'run/checkpoints/4/arrays').files())
    assert [path.name for path in paths.finished(root / 'run/checkpoints', 'manifest.sha256')] == [
        '2'
    ]
    stderr = finish(start(root, tmp_path, *ARGUMENTS))
    assert 'removing unfinished checkpoint' in stderr
    assert 'resuming from step 2' in stderr
    check_same(root, on_disk, 4)
    assert digests(root / 'corpus') == digests(on_disk / 'corpus')


def prepared(root, folder, **options) -> Corpus:
    settings = {'tokenizer': 'train:wordpiece:120', 'held_out_fraction': 0.2, 'workers': 0}
    return prepare([write_text(root, folder)], output=root / 'corpus', **settings | options)


def test_a_preparation_disturbed_by_faults_makes_the_same_corpus(
    root, server, on_disk, tmp_path, no_waiting
):
    with server.failing(random_faults(5, share=0.2)):
        corpus = prepared(root, tmp_path)
        corpus.verify()
    assert digests(root / 'corpus') == digests(on_disk / 'corpus')
    local = Corpus.open(on_disk / 'corpus')
    for ours, theirs in zip(corpus.split('train').shards, local.split('train').shards, strict=True):
        np.testing.assert_array_equal(np.asarray(ours.tokens), theirs.tokens)


def test_a_preparation_that_cannot_write_is_one_line(root, server, tmp_path, no_waiting):
    write_text(root, tmp_path)
    with (
        server.failing(lambda request: '503' if 'corpus' in request else ''),
        pytest.raises(UserError, match='cannot be read or written: .*(busy|503|Service)') as found,
    ):
        prepared(root, tmp_path)
    assert '\n' not in str(found.value)
    prepared(root, tmp_path).verify()


def test_an_interrupted_preparation_resumes_with_what_is_in_the_bucket(
    root, server, on_disk, tmp_path, monkeypatch
):
    from bert_jax.corpus.unfinished import Unfinished
    from bert_jax.corpus.workers import Amounts
    from bert_jax.storage.drafts import DraftInBucket

    small = dict(shard_tokens=1500, amounts=Amounts(block_characters=2000))
    monkeypatch.setattr(DraftInBucket, 'save_seconds', 0.0)
    save, saved = Unfinished.save, []

    def save_some(self, progress):
        saved.append(progress)
        if len(saved) == 4:
            raise KeyboardInterrupt
        save(self, progress)

    with monkeypatch.context() as patch:
        patch.setattr(Unfinished, 'save', save_some)
        with pytest.raises(KeyboardInterrupt):
            prepared(root, tmp_path, **small)
    assert not (root / 'corpus/manifest.json').exists()
    paths.drop(root / 'corpus')  # as on another machine
    prepared(root, tmp_path, **small).verify()
    whole = prepared(paths.path(f'{root}-whole'), tmp_path, **small)
    assert digests(root / 'corpus') == digests(whole.directory)
    assert sum('held_out/00000' in name for name in digests(whole.directory)) == 3
    assert not (root / 'corpus/progress.json').exists()


def test_two_preparations_of_one_corpus_wait_for_each_other(root, server, tmp_path):
    made = []
    threads = [
        threading.Thread(target=lambda: made.append(prepared(root, tmp_path))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({corpus.fingerprint for corpus in made}) == 1
    assert len(list(root.glob('.corpus.lock.*'))) == 1


@pytest.mark.slow
def test_a_run_killed_twenty_times_ends_as_on_disk(root, server, on_disk, tmp_path):
    """Text, corpus, workdir and init_from are in the bucket; kills fall into all phases."""
    paths.upload(on_disk / 'run', root / 'initial')
    more = ('--config.training.steps=(60,)', *ARGUMENTS[1:])
    (tmp_path / 'disk').mkdir()
    finish(small.start(tmp_path / 'disk', f'--config.init_from={on_disk}/run', *more))
    more += (f'--config.init_from={root}/initial',)
    rng, kills = random.Random(0), 0
    while kills < 20:
        left = iter(range(rng.randint(1, 150)))
        command = start(root, tmp_path, *more)
        with killed_at(server, command, lambda request, left=left: next(left, None) is None):
            command.communicate()
        assert command.returncode == -signal.SIGKILL, command.communicate()
        kills += 1
    finish(start(root, tmp_path, *more))
    check_same(root, tmp_path / 'disk', 60)
    assert digests(root / 'corpus') == digests(on_disk / 'corpus')


@pytest.mark.slow
def test_two_runs_in_one_workdir_take_turns(root, on_disk, tmp_path):
    folders = [tmp_path / name for name in ('first', 'second')]
    for folder in folders:
        folder.mkdir()
    write_text(root, folders[0])
    both = [start(root, folder, *ARGUMENTS) for folder in folders]
    messages = [finish(command) for command in both]
    assert sum('waiting for the lock' in message for message in messages) == 1
    check_same(root, on_disk, 4)

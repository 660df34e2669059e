"""A run that is killed at any step and restarted ends with bitwise the same parameters."""

import json
import random
import signal
import time

import numpy as np
import pytest

from bert_jax import tree_paths
from bert_jax.loaded import checkpoint_arrays
from bert_jax.training import checkpoints, multihost
from tests.end_to_end import small

ARGUMENTS = (
    '--config.training.steps=(120,60)',
    '--config.checkpoint.every_steps=25',
    '--config.evaluation.every_steps=1000',
    '--config.evaluation.steps=(0,30,150)',
    '--config.evaluation.linguistic.isotropy=True',
    '--config.evaluation.linguistic.max_share=1.0',
    '--config.logging.every_steps=1',
)


QUICK = (
    *small.ONE_STAGE_ARGUMENTS,
    '--config.training.steps=(60,)',
    '--config.checkpoint.every_steps=7',
    '--config.evaluation.every_steps=0',
    '--config.evaluation.cloze_examples=0',
    '--config.logging.every_steps=1',
)


def arguments(folder) -> tuple[str, ...]:
    """ARGUMENTS with a file of minimal pairs in the folder."""
    path = folder / 'pairs.tsv'
    path.write_text('sentence_good\tsentence_bad\nthe cow near the barn\tnear cow the the barn\n')
    return (*ARGUMENTS, f"--config.evaluation.linguistic.pairs=('{path}',)")


def last_step(folder) -> int:
    path = folder / 'run/metrics.jsonl'
    lines = path.read_text().splitlines() if path.exists() else []
    return json.loads(lines[-2])['step'] if len(lines) > 1 else 0


def stop_at(folder, step, number, given=None) -> int:
    """Start the run, send the signal once `step` is logged, and return the exit status."""
    process = small.start(folder, *(given or arguments(folder)))
    while last_step(folder) < step and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(number)
    process.communicate(timeout=120)
    return process.returncode


def final_arrays(folder):
    return tree_paths.flatten(checkpoint_arrays.load(folder / 'run').state)


@pytest.fixture(scope='module')
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp('undisturbed')
    status, stderr = small.run(folder, *arguments(folder))
    assert status == 0, stderr
    return folder


def records(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / 'run/metrics.jsonl').read_text().splitlines()]


def check_same_arrays(folder, undisturbed):
    ours, theirs = final_arrays(folder), final_arrays(undisturbed)
    assert ours.keys() == theirs.keys()
    assert len(ours) > 30
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


def check_same(folder, undisturbed):
    check_same_arrays(folder, undisturbed)
    for run in (folder, undisturbed):
        steps = [record['step'] for record in records(run) if record['kind'] == 'train']
        assert steps == list(range(1, 181))
    assert held_out(folder) == held_out(undisturbed)


def held_out(folder):
    """The records of all evaluations, without the time they took."""
    found = [record for record in records(folder) if record['kind'] == 'held_out']
    assert [record['step'] for record in found] == [0, 30, 120, 150, 180]
    for record in found:
        assert record.pop('linguistic_seconds') > 0
        assert {'pairs', 'mean_cosine/1'} <= record.keys()
    return found


def test_a_run_terminated_killed_and_damaged_ends_the_same(tmp_path):
    """One stage without evaluations; slow tests have two stages and what their evaluations find."""
    whole, folder = tmp_path / 'whole', tmp_path / 'disturbed'
    for place in (whole, folder):
        place.mkdir()
    status, stderr = small.run(whole, *QUICK)
    assert status == 0, stderr
    assert stop_at(folder, 9, signal.SIGTERM, QUICK) == multihost.RESTART
    check_saved_on_exit(folder, 9, 7)
    assert stop_at(folder, 35, signal.SIGKILL, QUICK) == -signal.SIGKILL
    damaged = damage_newest_checkpoint(folder)
    status, stderr = small.run(folder, *QUICK)
    assert status == 0, stderr
    assert damaged in stderr
    check_same_arrays(folder, whole)
    losses = [
        [record['loss'] for record in records(place) if record['kind'] == 'train']
        for place in (folder, whole)
    ]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 60


@pytest.mark.slow
def test_a_run_of_two_stages_terminated_killed_and_damaged_ends_the_same(tmp_path, undisturbed):
    assert stop_at(tmp_path, 40, signal.SIGTERM) == multihost.RESTART
    check_saved_on_exit(tmp_path)
    assert stop_at(tmp_path, 130, signal.SIGKILL) == -signal.SIGKILL
    damaged = damage_newest_checkpoint(tmp_path)
    status, stderr = small.run(tmp_path, *arguments(tmp_path))
    assert status == 0, stderr
    assert damaged in stderr
    check_same(tmp_path, undisturbed)


def check_saved_on_exit(folder, least=40, every=25):
    saved = checkpoints.Checkpoints.open(folder / 'run/checkpoints', 2).steps()[0]
    assert saved >= least
    assert saved % every  # not a checkpoint that was due anyway


def damage_newest_checkpoint(run) -> str:
    """Flip a bit of the largest file of the newest checkpoint; return its name."""
    folder = run / 'run/checkpoints'
    newest = checkpoints.Checkpoints.open(folder, 2).steps()[0]
    largest = max(
        (path for path in (folder / str(newest)).rglob('*') if path.is_file()),
        key=lambda path: path.stat().st_size,
    )
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)
    return largest.name


@pytest.mark.slow
def test_a_run_killed_in_both_stages_ends_the_same(tmp_path, undisturbed):
    rng = random.Random(0)
    for low, high in ((10, 100), (121, 160)):
        status = stop_at(tmp_path, rng.randint(low, high), signal.SIGKILL)
        assert status == -signal.SIGKILL
    status, stderr = small.run(tmp_path, *arguments(tmp_path))
    assert status == 0, stderr
    check_same(tmp_path, undisturbed)


@pytest.mark.slow
def test_a_terminated_run_saves_before_it_exits(tmp_path, undisturbed):
    status = stop_at(tmp_path, 40, signal.SIGTERM)
    assert status == multihost.RESTART
    check_saved_on_exit(tmp_path)
    status, stderr = small.run(tmp_path, *arguments(tmp_path))
    assert status == 0, stderr
    check_same(tmp_path, undisturbed)


@pytest.mark.slow
def test_a_damaged_checkpoint_is_reported_and_the_previous_one_is_used(tmp_path, undisturbed):
    stop_at(tmp_path, 90, signal.SIGKILL)
    damaged = damage_newest_checkpoint(tmp_path)
    status, stderr = small.run(tmp_path, *arguments(tmp_path))
    assert status == 0, stderr
    assert damaged in stderr
    check_same(tmp_path, undisturbed)


@pytest.mark.slow
def test_twenty_kills_at_any_moment_lose_nothing(tmp_path, undisturbed):
    rng, reached = random.Random(2), 0
    for number in range(20):
        process = small.start(tmp_path, *arguments(tmp_path), '--config.checkpoint.every_steps=2')
        if number % 4:  # some steps further than last time, often during a save
            while last_step(tmp_path) <= reached and process.poll() is None:
                time.sleep(0.002)
            time.sleep(rng.uniform(0, 0.03))
        else:  # during the start
            time.sleep(rng.uniform(0, 2))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL
        reached = max(reached, last_step(tmp_path))
    assert 10 < reached < 180
    status, stderr = small.run(tmp_path, *arguments(tmp_path))
    assert status == 0, stderr
    check_same(tmp_path, undisturbed)
    assert all(path.name.isdigit() for path in (tmp_path / 'run/checkpoints').iterdir())

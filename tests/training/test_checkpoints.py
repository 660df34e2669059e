"""Saving and restoring: bitwise on any mesh, complete or absent, nothing lost by a kill."""

import contextlib
import random
import shutil
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from bert_jax.errors import UserError
from bert_jax.loaded import checkpoint_arrays, checkpoint_files, checksums
from bert_jax.storage import names
from bert_jax.training import checkpoints
from bert_jax.training.checkpoints import Checkpoints
from tests import disks
from tests.end_to_end import commands
from tests.training.checkpoint_states import (
    METADATA,
    abstract,
    assert_bitwise_equal,
    make_state,
    save_all,
)


def make_mesh(data, fsdp, tensor):
    devices = jax.devices()[: data * fsdp * tensor]
    axes = ('data', 'fsdp', 'tensor')
    return jax.make_mesh((data, fsdp, tensor), axes, (AxisType.Auto,) * 3, devices=devices)


def shardings(tree):
    return jax.tree.map(lambda leaf: leaf.sharding, tree)


@pytest.mark.eight_devices
@pytest.mark.parametrize('saved_on', [(1, 1, 1), (8, 1, 1), (1, 8, 1), (2, 2, 2)])
def test_a_state_is_restored_bitwise_onto_other_meshes(tmp_path, saved_on):
    state = make_state(7)
    made = Checkpoints.open(tmp_path, 1)
    placed = jax.device_put(state, shardings(abstract(state, make_mesh(*saved_on))))
    made.save(7, placed, METADATA)
    for restored_on in (None, (8, 1, 1), (2, 2, 2)):
        target = abstract(state, restored_on and make_mesh(*restored_on))
        restored = made.restore(target)
        assert restored.step == 7
        assert restored.metadata == METADATA
        assert_bitwise_equal(restored.state, state)
        assert shardings(restored.state) == shardings(target)
    made.close()


@pytest.mark.eight_devices
@pytest.mark.parametrize('saved_on', [None, (8, 1, 1), (2, 2, 2)])
def test_arrays_may_be_donated_as_soon_as_save_returns(tmp_path, saved_on):
    shapes = {'x': np.empty((512, 2048), np.float32), 'b': np.empty(4096, np.float32)}
    target = abstract(shapes, saved_on and make_mesh(*saved_on))

    def draw(seed):
        rng = np.random.default_rng(seed)
        return jax.tree.map(
            lambda leaf: jax.device_put(rng.random(leaf.shape, np.float32), leaf.sharding), target
        )

    step = jax.jit(lambda tree: jax.tree.map(lambda x: x * 2 + 1, tree), donate_argnums=0)
    jax.block_until_ready(step(draw(1)))  # compiled before the save
    made, state, expected = Checkpoints.open(tmp_path, 1), draw(0), draw(0)
    made.save(1, state, {})
    for _ in range(5):
        state = step(state)
    jax.block_until_ready(state)
    assert_bitwise_equal(made.restore(target).state, expected)
    made.close()


@pytest.mark.eight_devices
def test_a_restored_state_can_be_donated(tmp_path):
    save_all(tmp_path, [1])
    restored = (
        Checkpoints.open(tmp_path, 1).restore(abstract(make_state(), make_mesh(2, 2, 2))).state
    )
    stepped = jax.jit(lambda s: s._replace(step=s.step + 1), donate_argnums=0)(restored)
    assert int(stepped.step) == 2


def test_only_the_newest_checkpoints_are_kept(tmp_path):
    save_all(tmp_path, [1, 2, 10, 20, 100], keep=2)
    assert Checkpoints.open(tmp_path, 2).steps() == [100, 20]
    assert sorted(path.name for path in tmp_path.iterdir()) == ['100', '20']


@pytest.mark.parametrize('name', ['²', '٣', '007', '9' * 5000])
def test_a_folder_with_another_number_in_its_name_is_not_a_checkpoint(name, tmp_path):
    save_all(tmp_path, [5])
    with contextlib.suppress(OSError):  # too long for the disk
        shutil.copytree(tmp_path / '5', tmp_path / name)
    assert Checkpoints.open(tmp_path, 1).steps() == [5]
    assert not names.is_number(name)


def test_a_new_folder_has_no_checkpoints(tmp_path):
    made = Checkpoints.open(tmp_path / 'new' / 'folder', 1)
    assert made.restore(abstract(make_state())) is None
    assert made.metadata() is None
    assert made.steps() == []


def test_metadata_is_read_without_orbax(tmp_path, monkeypatch):
    save_all(tmp_path, [5])
    monkeypatch.setattr(checkpoint_files, 'orbax', None)
    assert Checkpoints.open(tmp_path, 1).metadata() == METADATA | {'step': 5}


def test_importing_the_module_does_not_import_orbax():
    code = 'import sys, bert_jax.training.checkpoints; print("orbax.checkpoint" in sys.modules)'
    assert subprocess.check_output([sys.executable, '-c', code], text=True).strip() == 'False'


def test_saving_a_step_again_replaces_its_checkpoint(tmp_path):
    made = Checkpoints.open(tmp_path, 3)
    made.save(1, make_state(1), {'try': 1})
    made.save(1, make_state(2), {'try': 2})
    restored = made.restore(abstract(make_state()))
    made.close()
    assert (int(restored.state.step), restored.metadata) == (2, {'try': 2})
    assert made.steps() == [1]


def test_unfinished_checkpoints_of_a_killed_run_are_removed_and_reported(tmp_path, capsys):
    save_all(tmp_path, [1])
    shutil.copytree(tmp_path / '1', tmp_path / '2.unfinished')
    assert Checkpoints.open(tmp_path, 1).steps() == [1]
    assert f'removing unfinished checkpoint {tmp_path}/2.unfinished' in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ['1']


def test_folders_of_a_user_among_the_checkpoints_are_kept(tmp_path):
    for name in ('chapter.unfinished', '2.old.unfinished'):
        (tmp_path / name).mkdir()
    (tmp_path / '3.unfinished').symlink_to(tmp_path / 'chapter.unfinished')
    Checkpoints.open(tmp_path, 1)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_kill_during_the_removal_of_an_old_checkpoint_leaves_no_half_of_it(tmp_path, monkeypatch):
    save_all(tmp_path, [1])
    made = Checkpoints.open(tmp_path, 1)

    def kill(folder, **options):
        if not options:
            (folder / 'metadata.json').unlink()
            raise ZeroDivisionError

    monkeypatch.setattr(checkpoints.shutil, 'rmtree', kill)
    made.save(2, make_state(2), {})
    with pytest.raises(ZeroDivisionError):
        made.wait()
    monkeypatch.undo()
    assert Checkpoints.open(tmp_path, 1).steps() == [2]
    assert [path.name for path in tmp_path.iterdir()] == ['2']


# --- full and read-only disks


@pytest.fixture
def small_disk(tmp_path):
    with disks.small(tmp_path, '6m') as folder:
        yield folder


def test_a_full_disk_is_reported_and_costs_no_checkpoint(small_disk, capfd):
    made = Checkpoints.open(small_disk, 3)
    state = {'params': jnp.arange(600_000, dtype=jnp.float32)}
    made.save(1, state, {})
    made.save(2, state, {})
    with pytest.raises(
        UserError, match=r'checkpoint 3 .*No space left on device \(it needs 2\.4 MB, [\d.]+ MB are'
    ):
        made.save(3, state, {})
    made.wait()  # does not raise the same error again
    assert [path.name for path in sorted(small_disk.iterdir())] == ['1', '2']
    assert made.restore(abstract(state)).step == 2
    shutil.rmtree(small_disk / '1')
    made.save(4, state, {})  # saving works again when there is space
    made.close()
    assert made.steps() == [4, 2]
    assert 'Traceback' not in capfd.readouterr().err


@pytest.mark.parametrize(('number', 'size'), [(1, 1), (100, 100), (100, 1000), (300, 3000)])
def test_a_checkpoint_takes_less_space_than_is_required(number, size, small_disk):
    """Otherwise Orbax would print tracebacks halfway through a save on a full disk."""
    state = {f'array_{i}': np.zeros(size, np.float32) for i in range(number)}
    before = shutil.disk_usage(small_disk).used
    made = Checkpoints.open(small_disk, 1)
    made.save(1, jax.device_put(state), {})
    made.close()
    taken = shutil.disk_usage(small_disk).used - before
    num_bytes = 4 * number * size
    required = checkpoint_files.SPACE_FACTOR * num_bytes + checkpoint_files.SPACE_CONSTANT
    assert num_bytes < taken < required


def test_a_disk_that_fills_up_while_writing_is_an_error_at_the_next_save(small_disk, monkeypatch):
    monkeypatch.setattr(checkpoint_files, 'check_free_space', lambda *_: None)
    made = Checkpoints.open(small_disk, 1)
    made.save(1, {'params': jnp.zeros(3_000_000)}, {})
    with pytest.raises(UserError, match='checkpoint 1 could not be written'):
        made.save(2, {'params': jnp.zeros(3)}, {})
    made.save(3, {'params': jnp.zeros(3)}, {})
    made.close()
    assert made.steps() == [3]


def test_a_disk_that_is_full_for_the_last_files_is_an_error(tmp_path, monkeypatch):
    def raise_full(*_):
        raise OSError(28, 'No space left on device')

    save_all(tmp_path, [1])
    made = Checkpoints.open(tmp_path, 1)
    monkeypatch.setattr(checksums, 'write', raise_full)
    made.save(2, make_state(2), {})
    with pytest.raises(UserError, match='checkpoint 2 .*No space left'):
        made.close()
    assert [path.name for path in tmp_path.iterdir()] == ['1']


def test_an_unexpected_error_in_the_background_is_raised_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(checksums, 'write', lambda *_: 1 / 0)
    made = Checkpoints.open(tmp_path, 1)
    made.save(2, make_state(2), {})
    with pytest.raises(ZeroDivisionError):
        made.wait()


def test_a_folder_that_cannot_be_written_is_an_error_at_once(tmp_path, small_disk):
    (tmp_path / 'file').write_text('')
    with pytest.raises(UserError, match='Not a directory'):
        Checkpoints.open(tmp_path / 'file' / 'checkpoints', 1)
    subprocess.run(['mount', '-o', 'remount,ro', str(small_disk)], check=True)
    with pytest.raises(UserError, match='permission denied or read-only'):
        Checkpoints.open(small_disk, 1)


# --- a killed process


def save_forever(directory):
    made = Checkpoints.open(directory, 2)
    step = (made.steps() or [0])[0]
    while True:
        step += 1
        made.save(step, {'a': jnp.full(200_000, step), 'b': jnp.full((7, 9), step)}, {'step': step})
        made.wait()
        print(step, flush=True)


def test_sigkill_loses_no_finished_checkpoint(tmp_path):
    rng, last = random.Random(1), 0
    for _ in range(5):
        child = commands.Command('tests.training.test_checkpoints', [tmp_path])
        while max(checkpoint_files.steps(tmp_path), default=0) == last:
            assert child.returncode is None
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.3))
        child.send_signal(signal.SIGKILL)
        stdout, _ = child.communicate()
        finished = int(stdout.splitlines()[-1]) if stdout else last + 1
        restored = checkpoint_arrays.load(tmp_path)
        assert restored.step in (finished, finished + 1)
        assert restored.step > last
        assert restored.metadata == {'step': restored.step}
        assert np.all(restored.state['a'] == restored.step)
        assert np.all(restored.state['b'] == restored.step)
        last = restored.step


if __name__ == '__main__':
    save_forever(sys.argv[1])


def test_a_checkpoint_under_another_name_is_loaded_with_its_own_step(tmp_path):
    save_all(tmp_path, [20])
    shutil.copytree(tmp_path / '20', tmp_path / 'best-so-far')
    found = checkpoint_arrays.load(tmp_path / 'best-so-far')
    assert found.step == 20
    assert_bitwise_equal(found.state['params'], make_state(20).params)

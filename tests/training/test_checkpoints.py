"""Checkpoints: bitwise on any mesh, complete or not there, damage found, nothing lost by a kill."""

import pathlib
import random
import shutil
import socket
import subprocess
import sys
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec, SingleDeviceSharding

from bert_jax.errors import UserError
from bert_jax.training import checkpoints, checksums
from bert_jax.training.checkpoints import Checkpoints
from tests import disks

FOLDER = pathlib.Path(__file__).parent
METADATA = {
    'config': {'seed': 1},
    'tokenizer': '{"vocab": ["[PAD]", "日本"]}',
    'labels': ['a', 'b'],
}


class State(NamedTuple):
    step: Any
    params: Any
    opt_state: Any


def bits(shape, dtype, seed=0):
    """Any bit pattern of the dtype, NaNs with payloads among them."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return (
        np.frombuffer(np.random.default_rng(seed).bytes(size), np.uint8).view(dtype).reshape(shape)
    )


def make_state(step=0, hidden_size=8):
    params = {
        'embeddings': {'tokens': bits((16, hidden_size), np.float32)},
        'layers_0': {'kernel': bits((hidden_size, 16), jnp.bfloat16, 1)},
        'layers_1': {'kernel': bits((hidden_size, 16), np.uint32, 2), 'bias': bits((16,), np.int8)},
        'head': {'bias': bits((8,), np.float16, 3)},
    }
    numbers = jax.tree.map(lambda array: jnp.zeros(array.shape, jnp.float32), params)
    opt_state = optax.chain(optax.identity(), optax.adam(1e-3)).init(numbers)
    return jax.tree.map(jnp.asarray, State(np.int32(step), params, opt_state))


def mesh(data, fsdp, tensor):
    devices = jax.devices()[: data * fsdp * tensor]
    axes = ('data', 'fsdp', 'tensor')
    return jax.make_mesh((data, fsdp, tensor), axes, (AxisType.Auto,) * 3, devices=devices)


def placed(state, mesh=None):
    """The abstract state with matrices over ('fsdp', 'tensor') and vectors over 'data'."""

    def sharding(leaf):
        if mesh is None:
            return SingleDeviceSharding(jax.devices()[0])
        spec = {0: [], 1: ['data'], 2: ['fsdp', 'tensor']}[leaf.ndim]
        return NamedSharding(mesh, PartitionSpec(*spec))

    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding(leaf)), state
    )


def assert_bitwise(actual, expected):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def saved(directory, steps, keep=9):
    """A closed set of checkpoints."""
    made = Checkpoints(directory, keep)
    for step in steps:
        made.save(step, make_state(step), METADATA | {'step': step})
    made.close()


@pytest.mark.parametrize('where', [(1, 1, 1), (8, 1, 1), (1, 8, 1), (2, 2, 2)])
@pytest.mark.parametrize('where_to', [None, (8, 1, 1), (2, 2, 2)])
def test_restores_bitwise_onto_another_mesh(tmp_path, where, where_to):
    state = make_state(7)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, placed(state, mesh(*where)))
    made = Checkpoints(tmp_path, 1)
    made.save(7, jax.device_put(state, shardings), METADATA)
    abstract = placed(state, where_to and mesh(*where_to))
    restored = made.restore(abstract)
    assert restored.step == 7
    assert restored.metadata == METADATA
    assert_bitwise(restored.state, state)
    assert jax.tree.map(lambda leaf: leaf.sharding, restored.state) == jax.tree.map(
        lambda leaf: leaf.sharding, abstract
    )
    made.close()


@pytest.mark.parametrize('where', [None, (8, 1, 1), (2, 2, 2)])
def test_arrays_may_be_donated_as_soon_as_save_returns(tmp_path, where):
    target = placed({'x': jnp.zeros((512, 2048)), 'b': jnp.zeros((4096,))}, where and mesh(*where))
    put = lambda seed: jax.tree.map(  # noqa: E731
        lambda leaf: jax.device_put(
            np.random.default_rng(seed).normal(size=leaf.shape).astype(np.float32), leaf.sharding
        ),
        target,
    )
    step = jax.jit(lambda tree: jax.tree.map(lambda x: x * 2 + 1, tree), donate_argnums=0)
    jax.block_until_ready(step(put(1)))
    made, state, expected = Checkpoints(tmp_path, 1), put(0), put(0)
    made.save(1, state, {})
    for _ in range(5):
        state = step(state)
    jax.block_until_ready(state)
    assert_bitwise(made.restore(target).state, expected)
    made.close()


def test_a_restored_state_trains_on_with_donation(tmp_path):
    saved(tmp_path, [1])
    abstract = placed(make_state(), mesh(2, 2, 2))
    restored = Checkpoints(tmp_path, 1).restore(abstract).state
    stepped = jax.jit(lambda s: s._replace(step=s.step + 1), donate_argnums=0)(restored)
    assert int(stepped.step) == 2


def test_keeps_the_last_ones(tmp_path):
    saved(tmp_path, [1, 2, 10, 20, 100], keep=2)
    assert Checkpoints(tmp_path, 2).steps() == [100, 20]
    assert sorted(path.name for path in tmp_path.iterdir()) == ['100', '20']


def test_without_checkpoints_there_is_nothing_to_restore(tmp_path):
    made = Checkpoints(tmp_path / 'new' / 'folder', 1)
    assert made.restore(placed(make_state())) is None
    assert made.metadata() is None
    assert made.steps() == []


def test_metadata_is_read_without_orbax(tmp_path, monkeypatch):
    saved(tmp_path, [5])
    monkeypatch.setattr(checkpoints, '_orbax', None)
    assert Checkpoints(tmp_path, 1).metadata() == METADATA | {'step': 5}


def test_importing_costs_no_orbax():
    code = 'import sys, bert_jax.training.checkpoints; print("orbax.checkpoint" in sys.modules)'
    assert subprocess.check_output([sys.executable, '-c', code], text=True).strip() == 'False'


def test_one_step_saved_again_is_replaced(tmp_path):
    made = Checkpoints(tmp_path, 3)
    made.save(1, make_state(1), {'try': 1})
    made.save(1, make_state(2), {'try': 2})
    restored = made.restore(placed(make_state()))
    made.close()
    assert (int(restored.state.step), restored.metadata) == (2, {'try': 2})
    assert made.steps() == [1]


def test_leftovers_of_a_killed_run_are_removed_and_named(tmp_path, capsys):
    saved(tmp_path, [1])
    shutil.copytree(tmp_path / '1', tmp_path / '2.unfinished')
    assert Checkpoints(tmp_path, 1).steps() == [1]
    assert f'removing {tmp_path}/2.unfinished' in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ['1']


# --- damage


def every_kind_of_file(folder):
    """One file of each kind, by its pattern within a checkpoint."""
    kinds = [
        'arrays/_METADATA',
        'arrays/_CHECKPOINT_METADATA',
        'arrays/_sharding',
        'arrays/manifest.ocdbt',
        'arrays/d/*',
        'arrays/ocdbt.process_0/manifest.ocdbt',
        'arrays/ocdbt.process_0/d/*',
        'arrays/array_metadatas/*',
        'arrays.json',
        'metadata.json',
        checksums.NAME,
    ]
    return [max(folder.glob(kind), key=lambda path: path.stat().st_size) for kind in kinds]


def flip(path, rng):
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def truncate(path, rng):
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def zero(path, rng):
    path.write_bytes(bytes(path.stat().st_size))


def remove(path, rng):
    path.unlink()


@pytest.mark.parametrize('damage', [flip, truncate, zero, remove])
def test_damage_to_any_file_is_named_and_the_one_before_is_used(tmp_path, capsys, damage):
    saved(tmp_path / 'original', [10, 20])
    rng = random.Random(0)
    for file in every_kind_of_file(tmp_path / 'original' / '20'):
        directory = tmp_path / 'copy'
        shutil.copytree(tmp_path / 'original', directory)
        name = file.relative_to(tmp_path / 'original')
        damage(directory / name, rng)
        restored = Checkpoints(directory, 2).restore(placed(make_state()))
        assert restored.step == 10
        assert_bitwise(restored.state, make_state(10))
        told = capsys.readouterr().err
        assert told.count('\n') == 1
        assert f'{directory}/20 is damaged' in told
        # A damaged manifest may accuse the file it is about.
        assert file.name in told or file.name == checksums.NAME
        shutil.rmtree(directory)


def test_every_single_bit_of_the_manifest_and_the_metadata_counts(tmp_path):
    saved(tmp_path, [1])
    for name in (checksums.NAME, 'metadata.json'):
        path = tmp_path / '1' / name
        data = path.read_bytes()
        for position in range(0, len(data) * 8, 31):
            changed = bytearray(data)
            changed[position // 8] ^= 1 << position % 8
            path.write_bytes(changed)
            assert checksums.find_damage(path.parent, ['metadata.json']) or name != 'metadata.json'
            assert checksums.find_damage(path.parent), position
        path.write_bytes(data)
    assert checksums.find_damage(tmp_path / '1') is None


def test_an_extra_file_is_damage(tmp_path):
    saved(tmp_path, [1])
    (tmp_path / '1' / 'arrays' / 'd' / 'stray').write_text('')
    assert checksums.find_damage(tmp_path / '1') == f'arrays/d/stray is not in {checksums.NAME}'


def test_nothing_good_left_is_an_error_and_no_fresh_start(tmp_path):
    saved(tmp_path, [10, 20])
    for step in (10, 20):
        (tmp_path / str(step) / 'arrays' / '_METADATA').unlink()
    with pytest.raises(UserError, match='all are damaged: 20, 10'):
        Checkpoints(tmp_path, 2).restore(placed(make_state()))


def test_damaged_metadata_falls_back_like_the_arrays(tmp_path, capsys):
    saved(tmp_path, [10, 20])
    (tmp_path / '20' / 'metadata.json').write_text('{}')
    made = Checkpoints(tmp_path, 2)
    assert made.metadata()['step'] == 10
    assert made.restore(placed(make_state())).step == 10
    assert capsys.readouterr().err.count('\n') == 1


def test_a_damaged_checkpoint_neither_counts_nor_stays(tmp_path):
    saved(tmp_path, [10, 20])
    (tmp_path / '20' / 'arrays' / '_METADATA').unlink()
    made = Checkpoints(tmp_path, 2)
    made.restore(placed(make_state()))
    made.save(15, make_state(15), {})
    made.close()
    assert made.steps() == [15, 10]


def test_a_damaged_checkpoint_can_be_saved_again(tmp_path):
    saved(tmp_path, [10, 20])
    (tmp_path / '20' / 'arrays' / '_METADATA').unlink()
    made = Checkpoints(tmp_path, 2)
    made.restore(placed(make_state()))
    made.save(20, make_state(20), METADATA)
    assert made.restore(placed(make_state())).step == 20
    made.close()


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (
            lambda s: make_state(hidden_size=4),
            r'params/embeddings/tokens is float32\[16, 8\] there and float32\[16, 4\] here.*in all',
        ),
        (
            lambda s: s._replace(params={k: v for k, v in s.params.items() if k != 'head'}),
            r'params/head/bias is float16\[8\] there and missing here',
        ),
        (
            lambda s: s._replace(step=jnp.zeros((), jnp.float32)),
            r'step is int32\[\] there and float32\[\] here',
        ),
    ],
)
def test_another_model_is_named_by_its_parameters(tmp_path, change, message):
    saved(tmp_path, [1])
    with pytest.raises(UserError, match=message):
        Checkpoints(tmp_path, 1).restore(placed(change(make_state())))


def test_a_kill_while_an_old_one_is_deleted_leaves_no_half_of_it(tmp_path, monkeypatch):
    saved(tmp_path, [1])
    made = Checkpoints(tmp_path, 1)

    def killed(folder, **options):
        if not options:
            (folder / 'metadata.json').unlink()
            raise ZeroDivisionError

    monkeypatch.setattr(checkpoints.shutil, 'rmtree', killed)
    made.save(2, make_state(2), {})
    with pytest.raises(ZeroDivisionError):
        made.wait()
    monkeypatch.undo()
    assert Checkpoints(tmp_path, 1).steps() == [2]
    assert [path.name for path in tmp_path.iterdir()] == ['2']


# --- reading without training


def test_load_reads_a_checkpoint_a_folder_of_them_and_a_run(tmp_path):
    saved(tmp_path / 'checkpoints', [10, 20])
    params = make_state().params
    for path, step in [
        (tmp_path / 'checkpoints' / '10', 10),
        (tmp_path / 'checkpoints', 20),
        (tmp_path, 20),
    ]:
        loaded = checkpoints.load(path, 'params')
        assert loaded.step == step
        assert loaded.metadata == METADATA | {'step': step}
        assert_bitwise(loaded.state['params'], params)
        assert isinstance(loaded.state['params']['head']['bias'], np.ndarray)
        assert set(loaded.state) == {'params'}
    assert set(checkpoints.load(tmp_path).state) == {'step', 'params', 'opt_state'}
    assert list(checkpoints.load(tmp_path, 'params/head').state['params']) == ['head']


def test_load_touches_nothing(tmp_path):
    saved(tmp_path, [10])
    (tmp_path / '20.unfinished').mkdir()
    checkpoints.load(tmp_path)
    assert (tmp_path / '20.unfinished').exists()


def test_load_names_what_is_wrong(tmp_path):
    with pytest.raises(UserError, match='no checkpoint in'):
        checkpoints.load(tmp_path)
    saved(tmp_path, [10])
    with pytest.raises(UserError, match=r"no arrays below 'param'"):
        checkpoints.load(tmp_path, 'param')
    (tmp_path / '10' / 'arrays.json').write_text('{}')
    with pytest.raises(UserError, match=r'arrays\.json is not as'):
        checkpoints.load(tmp_path / '10')


# --- the disk


@pytest.fixture
def small_disk(tmp_path):
    with disks.small(tmp_path, '6m') as folder:
        yield folder


def test_a_full_disk_is_named_and_costs_no_checkpoint(small_disk, capfd):
    made = Checkpoints(small_disk, 3)
    state = {'params': jnp.arange(600_000, dtype=jnp.float32)}
    made.save(1, state, {})
    made.save(2, state, {})
    with pytest.raises(
        UserError, match=r'checkpoint 3 .*No space left on device \(it needs 2\.4 MB, [\d.]+ MB are'
    ):
        made.save(3, state, {})
    made.wait()  # said once
    assert [path.name for path in sorted(small_disk.iterdir())] == ['1', '2']
    assert made.restore(placed(state)).step == 2
    shutil.rmtree(small_disk / '1')
    made.save(4, state, {})  # and goes on when there is room
    made.close()
    assert made.steps() == [4, 2]
    assert 'Traceback' not in capfd.readouterr().err


@pytest.mark.parametrize(('number', 'size'), [(1, 1), (100, 100), (100, 1000), (300, 3000)])
def test_no_save_takes_more_than_the_room_asked_for(number, size, small_disk):
    """Half-way on a full disk, Orbax leaves tracebacks."""
    state = {f'array_{i}': jnp.zeros(size) for i in range(number)}
    before = shutil.disk_usage(small_disk).used
    made = Checkpoints(small_disk, 1)
    made.save(1, state, {})
    made.close()
    taken = shutil.disk_usage(small_disk).used - before
    asked = checkpoints._ROOM * number * size * 4 + checkpoints._ROOM_BESIDES
    assert number * size * 4 < taken < asked


def test_a_disk_that_fills_while_writing_is_an_error_at_the_next_save(small_disk, monkeypatch):
    monkeypatch.setattr(checkpoints, '_check_room', lambda save: None)
    made = Checkpoints(small_disk, 1)
    made.save(1, {'params': jnp.zeros(3_000_000)}, {})
    with pytest.raises(UserError, match='checkpoint 1 could not be written'):
        made.save(2, {'params': jnp.zeros(3)}, {})
    made.save(3, {'params': jnp.zeros(3)}, {})
    made.close()
    assert made.steps() == [3]


def test_full_when_the_last_files_are_written(tmp_path, monkeypatch):
    def full(folder):
        raise OSError(28, 'No space left on device')

    saved(tmp_path, [1])
    made = Checkpoints(tmp_path, 1)
    monkeypatch.setattr(checksums, 'write', full)
    made.save(2, make_state(2), {})
    with pytest.raises(UserError, match='checkpoint 2 .*No space left'):
        made.close()
    assert [path.name for path in tmp_path.iterdir()] == ['1']


def test_an_error_of_the_program_stays_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(checksums, 'write', lambda folder: 1 / 0)
    made = Checkpoints(tmp_path, 1)
    made.save(2, make_state(2), {})
    with pytest.raises(ZeroDivisionError):
        made.wait()


def test_a_place_that_cannot_be_written_is_an_error_at_once(tmp_path, small_disk):
    (tmp_path / 'file').write_text('')
    with pytest.raises(UserError, match='Not a directory'):
        Checkpoints(tmp_path / 'file' / 'checkpoints', 1)
    subprocess.run(['mount', '-o', 'remount,ro', str(small_disk)], check=True)
    with pytest.raises(UserError, match='not writable'):
        Checkpoints(small_disk, 1)


def test_keeping_none_is_an_error(tmp_path):
    with pytest.raises(UserError, match='at least 1, not 0'):
        Checkpoints(tmp_path, 0)


# --- real processes

SAVE_FOR_EVER = """
import sys
import jax.numpy as jnp
from bert_jax.training.checkpoints import Checkpoints
made = Checkpoints(sys.argv[1], 2)
step = (made.steps() or [0])[0]
while True:
    step += 1
    made.save(step, {'a': jnp.full(200_000, step), 'b': jnp.full((7, 9), step)}, {'step': step})
    made.wait()
    print(step, flush=True)
"""


def test_nothing_finished_is_lost_by_sigkill(tmp_path):
    rng, first = random.Random(1), 0
    for _ in range(5):
        child = subprocess.Popen(
            [sys.executable, '-c', SAVE_FOR_EVER, str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        lines = [child.stdout.readline()]
        time.sleep(rng.uniform(0, 0.3))
        child.kill()
        lines += child.stdout.readlines()
        child.wait()
        finished = int(lines[-1])
        restored = checkpoints.load(tmp_path)
        assert restored.step in (finished, finished + 1)
        assert restored.step > first
        assert restored.metadata == {'step': restored.step}
        assert np.all(restored.state['a'] == restored.step)
        assert np.all(restored.state['b'] == restored.step)
        first = restored.step


TWO_PROCESSES = """
import sys
import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from bert_jax.training import multihost
from bert_jax.training.checkpoints import Checkpoints
directory, port, process = sys.argv[1], sys.argv[2], int(sys.argv[3])
jax.config.update('jax_num_cpu_devices', 2)
with multihost.joined(multihost.Place(f'localhost:{port}', 2, process)):
    mesh = jax.make_mesh((4,), ('fsdp',), (AxisType.Auto,))
    sharding = NamedSharding(mesh, PartitionSpec('fsdp'))
    value = np.arange(32, dtype=np.float32).reshape(8, 4)
    array = jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])
    with jax.set_mesh(mesh):
        assert int(multihost.largest(5 * process)) == 5
    np.testing.assert_array_equal(multihost.fetch({'x': array})['x'], value)
    made = Checkpoints(directory, 1)
    for step in (1, 2):
        made.save(step, {'x': array}, {'step': step})
    made.wait()
    restored = made.restore({'x': jax.ShapeDtypeStruct((8, 4), np.float32, sharding=sharding)})
    for shard in restored.state['x'].addressable_shards:
        np.testing.assert_array_equal(shard.data, value[shard.index])
    assert restored.step == restored.metadata['step'] == 2
    made.close()
"""


def test_two_processes_save_one_checkpoint_together(tmp_path):
    with socket.socket() as free:
        free.bind(('localhost', 0))
        port = str(free.getsockname()[1])
    children = [
        subprocess.Popen(
            [sys.executable, '-c', TWO_PROCESSES, str(tmp_path), port, str(process)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(2)
    ]
    errors = [child.communicate(timeout=90)[1] for child in children]
    assert [child.returncode for child in children] == [0, 0], '\n'.join(errors)
    assert [path.name for path in tmp_path.iterdir()] == ['2']
    value = np.arange(32, dtype=np.float32).reshape(8, 4)
    np.testing.assert_array_equal(checkpoints.load(tmp_path).state['x'], value)

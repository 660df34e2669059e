"""Damaged checkpoints are reported and skipped; checkpoints load without training."""

import json
import random
import shutil

import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.loaded import checkpoint_arrays, checkpoint_files, checksums
from bert_jax.training.checkpoints import Checkpoints
from tests.training.checkpoint_states import (
    METADATA,
    abstract,
    assert_bitwise_equal,
    make_state,
    save_all,
)

ALL_KINDS_OF_FILES = (
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
)


def flip_a_bit(path, rng):
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def truncate(path, rng):
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def zero(path, rng):
    path.write_bytes(bytes(path.stat().st_size))


def remove(path, rng):
    path.unlink()


@pytest.fixture(scope='module')
def two_checkpoints(tmp_path_factory):
    folder = tmp_path_factory.mktemp('checkpoints')
    save_all(folder, [10, 20])
    return folder


@pytest.fixture
def directory(two_checkpoints, tmp_path):
    """A copy with checkpoints 10 and 20, which a test may change."""
    return shutil.copytree(two_checkpoints, tmp_path / 'copy')


@pytest.mark.parametrize('damage', [flip_a_bit, truncate, zero, remove])
def test_damage_to_any_file_is_reported_and_the_previous_checkpoint_is_used(
    two_checkpoints, tmp_path, capsys, damage
):
    rng = random.Random(0)
    for pattern in ALL_KINDS_OF_FILES:
        directory = shutil.copytree(two_checkpoints, tmp_path / 'copy')
        file = max((directory / '20').glob(pattern), key=lambda path: path.stat().st_size)
        damage(file, rng)
        restored = Checkpoints.open(directory, 2).restore(abstract(make_state()))
        assert restored.step == 10
        assert_bitwise_equal(restored.state, make_state(10))
        stderr = capsys.readouterr().err
        assert stderr.count('\n') == 1
        assert f'skipping damaged checkpoint {directory}/20: ' in stderr
        # With a damaged manifest another file may appear to be damaged.
        assert file.name in stderr or file.name == checksums.NAME
        shutil.rmtree(directory)


def test_if_all_checkpoints_are_damaged_the_run_does_not_start_from_scratch(directory):
    for step in (10, 20):
        (directory / str(step) / 'arrays' / '_METADATA').unlink()
    with pytest.raises(UserError, match='all checkpoints in .* are damaged: 20, 10'):
        Checkpoints.open(directory, 2).restore(abstract(make_state()))


def test_damaged_metadata_is_skipped_like_damaged_arrays(directory, capsys):
    (directory / '20' / 'metadata.json').write_text('{}')
    made = Checkpoints.open(directory, 2)
    assert made.metadata()['step'] == 10
    assert made.restore(abstract(make_state())).step == 10
    assert capsys.readouterr().err.count('\n') == 1


def test_a_damaged_checkpoint_is_removed_and_not_counted(directory):
    (directory / '20' / 'arrays' / '_METADATA').unlink()
    made = Checkpoints.open(directory, 2)
    made.restore(abstract(make_state()))
    made.save(15, make_state(15), {})
    made.close()
    assert made.steps() == [15, 10]


def test_a_damaged_checkpoint_can_be_saved_again(directory):
    (directory / '20' / 'arrays' / '_METADATA').unlink()
    made = Checkpoints.open(directory, 2)
    made.restore(abstract(make_state()))
    made.save(20, make_state(20), METADATA)
    assert made.restore(abstract(make_state())).step == 20
    made.close()


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (
            lambda s: make_state(hidden_size=4),
            r'params/embeddings/tokens is float32\[16, 8\] there and float32\[16, 4\] here.*total',
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
def test_a_different_model_is_an_error_that_names_the_arrays(two_checkpoints, change, message):
    with pytest.raises(UserError, match=message):
        Checkpoints.open(two_checkpoints, 9).restore(abstract(change(make_state())))


def test_load_accepts_a_checkpoint_a_folder_of_checkpoints_or_a_run(tmp_path, two_checkpoints):
    directory = shutil.copytree(two_checkpoints, tmp_path / 'checkpoints')
    params = make_state().params
    for path, step in [(directory / '10', 10), (directory, 20), (tmp_path, 20)]:
        loaded = checkpoint_arrays.load(path, 'params')
        assert loaded.step == step
        assert loaded.metadata == METADATA | {'step': step}
        assert_bitwise_equal(loaded.state['params'], params)
        assert isinstance(loaded.state['params']['head']['bias'], np.ndarray)
        assert set(loaded.state) == {'params'}
    assert set(checkpoint_arrays.load(tmp_path).state) == {'step', 'params', 'opt_state'}
    assert list(checkpoint_arrays.load(tmp_path, 'params/head').state['params']) == ['head']


def test_load_changes_nothing(directory):
    (directory / '30.unfinished').mkdir()
    checkpoint_arrays.load(directory)
    assert (directory / '30.unfinished').exists()


def test_load_reports_what_is_wrong(tmp_path, directory):
    with pytest.raises(UserError, match='no checkpoint in'):
        checkpoint_arrays.load(tmp_path)
    with pytest.raises(UserError, match=r"no arrays below 'param'"):
        checkpoint_arrays.load(directory, 'param')
    (directory / '10' / 'arrays.json').write_text('{}')
    with pytest.raises(UserError, match=r'10 is damaged: arrays\.json does not match'):
        checkpoint_arrays.load(directory / '10')


def test_the_mean_of_the_last_checkpoints_is_that_of_their_parameters_or_averages(tmp_path):
    writer = Checkpoints.open(tmp_path / 'checkpoints', keep=3)
    for step, value in [(10, 100.0), (20, 2.0), (30, 4.0)]:
        params = {'kernel': jnp.full(3, value), 'bias': jnp.full(2, -value)}
        state = {'params': params, 'average': {'kernel': jnp.full(3, 10 * value)}}
        writer.save(step, state, {'at': step, 'best': {'step': 10}})
    writer.close()
    mean = checkpoint_arrays.load_mean_params(tmp_path, 2)
    assert (mean.step, mean.metadata['at']) == (30, 30)
    np.testing.assert_array_equal(mean.state['kernel'], np.full(3, 30, np.float32))
    np.testing.assert_array_equal(mean.state['bias'], np.full(2, -3, np.float32))
    with pytest.raises(UserError, match='has 3 checkpoints, too few for the mean of 4; train with'):
        checkpoint_arrays.load_mean_params(tmp_path, 4)


def test_arrays_that_differ_from_their_description_are_not_read(directory):
    folder = directory / '20'
    described = json.loads((folder / 'arrays.json').read_text())
    name = 'params/embeddings/tokens'
    (folder / 'arrays.json').write_text(json.dumps(described | {name: 'float32[1600000, 8]'}))
    checksums.write(folder)  # as a stranger would
    message = r'damaged: params/embeddings/tokens is float32\[16, 8\], but arrays.json has'
    with pytest.raises(UserError, match=message):
        checkpoint_arrays.load(folder)


def test_arrays_larger_than_their_files_are_not_read(tmp_path):
    """A store without the values of an array has few bytes; compression stands in for that."""
    save_all(tmp_path, [1])
    folder = tmp_path / '1'
    zeros = {'params/embeddings/tokens': np.zeros((1000, 1000), np.float32)}
    shutil.rmtree(folder / 'arrays')
    with checkpoint_files.orbax().PyTreeCheckpointer() as writer:
        writer.save(folder / 'arrays', zeros)
    description = checkpoint_files.describe(zeros)
    (folder / 'arrays.json').write_text(json.dumps(description))
    checksums.write(folder)  # as a stranger would
    with pytest.raises(UserError, match='its arrays have 4,000,000 bytes, but its files [1-9],'):
        checkpoint_arrays.load(folder)

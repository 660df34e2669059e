"""Runs on two hosts with everything in a bucket: killed, moved to other hosts, and as on a disk."""

import signal

import numpy as np
import pytest

from bert_jax import files, tree_paths
from bert_jax.loaded import checkpoint_arrays
from bert_jax.storage import paths
from tests.multidevice import hosts
from tests.storage.test_runs import ARGUMENTS, check_same, killed_at, places

# Parameters are split over the devices of both hosts.
TWO_HOSTS = (*ARGUMENTS, '--config.mesh.data=1', '--config.mesh.fsdp=-1')


def start(root, folder, *arguments, steps=4, **place):
    """Start training with text, corpus and workdir in a bucket, on two hosts by default."""
    changed = (f'--config.training.steps=({steps},)', *TWO_HOSTS[1:])
    return hosts.start(folder, *changed, *places(root, folder), *arguments, **place)


def finish(processes) -> str:
    """Wait for hosts that succeed and return the stderr of host 0."""
    statuses, stderrs = hosts.finish(processes)
    assert statuses == [0] * len(processes), '\n'.join(stderrs)
    return stderrs[0]


@pytest.fixture(scope='module')
def initial(tmp_path_factory):
    """The folder of a run on a disk, by one host."""
    folder = tmp_path_factory.mktemp('initial')
    finish(hosts.start(folder, *TWO_HOSTS, num_hosts=1, devices=4))
    return folder / 'run'


@pytest.fixture(scope='module')
def on_disk(initial, tmp_path_factory):
    """The run of two hosts on a disk that continues from `initial`."""
    folder = tmp_path_factory.mktemp('on_disk')
    finish(hosts.start(folder, *TWO_HOSTS, f'--config.init_from={initial}', devices=2))
    return folder


def uploads(name):
    """Tell whether a request writes a file of this name."""
    return lambda request: request.startswith(('PUT', 'POST')) and name in request


@pytest.mark.slow
def test_two_hosts_killed_in_turn_end_as_on_disk(root, server, initial, on_disk, tmp_path):
    paths.upload(initial, root / 'initial')
    init_from = f'--config.init_from={root}/initial'
    for victim, request in (
        (1, 'checkpoints/4/arrays/ocdbt.process_1'),
        (0, 'checkpoints/4/arrays/ocdbt.process_0'),
        (0, 'checkpoints/4/manifest.sha256'),
    ):
        processes = start(root, tmp_path, init_from, devices=2)
        with killed_at(server, processes[victim], uploads(request)):
            statuses, stderrs = hosts.finish(processes)
        assert statuses[victim] == -signal.SIGKILL, stderrs
        assert statuses[1 - victim] not in (0, -signal.SIGKILL), stderrs
        assert (root / 'run/checkpoints/2/manifest.sha256').exists()
        assert not (root / 'run/checkpoints/4/manifest.sha256').exists()
    stderr = finish(start(root, tmp_path, init_from, devices=2))
    assert 'removing unfinished checkpoint' in stderr
    assert 'resuming from step 2' in stderr
    check_same(root, on_disk, 4)


@pytest.mark.slow
def test_a_run_in_a_bucket_moves_between_hosts(root, initial, tmp_path):
    """Two hosts read what one has saved, and one what two have saved; `initial` never moved."""
    finish(start(root, tmp_path, steps=2, num_hosts=1, devices=4))
    trace = '--config.logging.profile_steps=(3,3)'
    stderr = finish(start(root, tmp_path, trace, steps=4, devices=2))
    assert 'resuming from step 2' in stderr
    assert list(root.glob('run/profile/plugins/profile/*/*.xplane.pb'))
    ours, theirs = (checkpoint_arrays.load(path).state for path in (root / 'run', initial))
    theirs = tree_paths.flatten(theirs)
    for name, array in tree_paths.flatten(ours).items():
        np.testing.assert_allclose(array, theirs[name], rtol=1e-5, atol=1e-5, err_msg=name)
    stderr = finish(start(root, tmp_path, steps=6, num_hosts=1, devices=8))
    assert 'resuming from step 4' in stderr


@pytest.mark.slow
def test_two_hosts_sweep_in_a_bucket(root, tmp_path):
    finish(start(root, tmp_path, '--config.sweep.seeds=(0,1)', steps=2, devices=1))
    found = files.read_json(root / 'run/results.json')
    for seed in (0, 1):
        assert checkpoint_arrays.load(root / f'run/seed_{seed}').step == 2
    (root / 'run/results.json').unlink()
    finish(start(root, tmp_path, '--config.sweep.seeds=(0,1)', steps=2, devices=1))
    assert files.read_json(root / 'run/results.json') == found

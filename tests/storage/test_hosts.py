"""Runs on two hosts with everything in a bucket: killed, moved to other hosts, and as on a disk."""

import signal

import numpy as np
import pytest

from bert_jax import tree_paths
from bert_jax.training import checkpoints
from tests.multidevice import hosts
from tests.storage.test_runs import ARGUMENTS, check_same, killed_at, places

# Parameters are split over the devices of both hosts.
TWO_HOSTS = (*ARGUMENTS, '--config.mesh.data=1', '--config.mesh.fsdp=-1')


def start(root, folder, steps=4, **place):
    """Start training with text, corpus and workdir in a bucket, on two hosts by default."""
    changed = (f'--config.training.steps=({steps},)', *TWO_HOSTS[1:])
    return hosts.start(folder, *changed, *places(root, folder), **place)


def finish(processes) -> str:
    """Wait for hosts that succeed and return the stderr of host 0."""
    statuses, stderrs = hosts.finish(processes)
    assert statuses == [0] * len(processes), '\n'.join(stderrs)
    return stderrs[0]


@pytest.fixture(scope='module')
def on_disk(tmp_path_factory):
    """The same run of two hosts on a disk."""
    folder = tmp_path_factory.mktemp('on_disk')
    finish(hosts.start(folder, *TWO_HOSTS, devices=2))
    return folder


def uploads(name):
    """Tell whether a request writes a file of this name."""
    return lambda request: request.startswith(('PUT', 'POST')) and name in request


@pytest.mark.slow
def test_two_hosts_killed_in_turn_end_as_on_disk(root, server, on_disk, tmp_path):
    for victim, request in (
        (1, 'checkpoints/4/arrays/ocdbt.process_1'),
        (0, 'checkpoints/4/arrays/ocdbt.process_0'),
        (0, 'checkpoints/4/manifest.sha256'),
    ):
        processes = start(root, tmp_path, devices=2)
        with killed_at(server, processes[victim], uploads(request)):
            statuses, stderrs = hosts.finish(processes)
        assert statuses[victim] == -signal.SIGKILL, stderrs
        assert statuses[1 - victim] not in (0, -signal.SIGKILL), stderrs
        assert (root / 'run/checkpoints/2/manifest.sha256').exists()
        assert not (root / 'run/checkpoints/4/manifest.sha256').exists()
    stderr = finish(start(root, tmp_path, devices=2))
    assert 'removing unfinished checkpoint' in stderr
    assert 'resuming from step 2' in stderr
    check_same(root, on_disk, 4)


@pytest.mark.slow
def test_a_run_in_a_bucket_moves_between_hosts(root, on_disk, tmp_path):
    """Two hosts read what one has saved, and one what two have saved."""
    finish(start(root, tmp_path, steps=2, num_hosts=1, devices=4))
    stderr = finish(start(root, tmp_path, steps=4, devices=2))
    assert 'resuming from step 2' in stderr
    ours, theirs = (checkpoints.load(f'{place}/run').state for place in (root, on_disk))
    theirs = tree_paths.flatten(theirs)
    for name, array in tree_paths.flatten(ours).items():
        np.testing.assert_allclose(array, theirs[name], rtol=1e-5, atol=1e-5, err_msg=name)
    stderr = finish(start(root, tmp_path, steps=6, num_hosts=1, devices=8))
    assert 'resuming from step 4' in stderr

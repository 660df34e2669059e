"""Real processes as hosts: the same training as one process, and no host waits for a dead one."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from unittest import mock

import numpy as np
import pytest

from bert_jax import tree_paths
from bert_jax.training import checkpoints, multihost
from tests.end_to_end import small

ARGUMENTS = (
    '--config.stages.steps=(40,)',
    '--config.stages.sequence_length=(16,)',
    '--config.stages.batch_size=(16,)',
    '--config.stages.accumulation=(1,)',
    '--config.stages.max_predictions=(3,)',
    '--config.checkpoint.every_steps=10',
    '--config.evaluation.every_steps=1000',
    '--config.evaluation.examples=16',
    '--config.evaluation.cloze_examples=0',
    '--config.logging.every_steps=1',
)

# Host 0 dies while host 1 sorts: no other thread of Python has a turn until that is done.
BUSY = """
import os, signal, sys, time
from bert_jax.training import multihost

host = int(sys.argv[2])
with multihost.joined(multihost.Place(f'localhost:{sys.argv[1]}', 2, host)):
    numbers = [7919 * i % 1000003 for i in range(4_000_000)]
    multihost.barrier()
    if host == 0:
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        sorted(numbers)
"""

pytestmark = pytest.mark.slow
LAST_PORTS = 2**16 - 2**12


def start(folder, *more, num_hosts=2, devices=4, by='flags'):
    """The processes of a run, each with so many fake devices; one host is no host. `by`: what tells
    them of each other.
    """
    small.write_text(folder)
    port, processes = free_port(), []
    for host in range(num_hosts):
        flags, environment = told_by(by, port, num_hosts, host) if num_hosts > 1 else ([], {})
        with mock.patch.dict(os.environ, environment):
            xla_flags = f'--xla_force_host_platform_device_count={devices}'
            processes.append(small.start(folder, *ARGUMENTS, *more, *flags, xla_flags=xla_flags))
    return processes


def told_by(what: str, port: int, num_hosts: int, host: int) -> tuple[list[str], dict[str, str]]:
    """(flags, environment) of one process."""
    coordinator = f'--coordinator=localhost:{port}'
    if what == 'mpi':
        size, rank = (f'OMPI_COMM_WORLD_{name}' for name in ('SIZE', 'RANK'))
        return [coordinator], {size: str(num_hosts), rank: str(host)}
    if what == 'slurm':
        return ['--distributed'], {
            'SLURM_JOB_ID': str(port - LAST_PORTS),
            'SLURM_STEP_NODELIST': 'localhost',
            'SLURM_NTASKS': str(num_hosts),
            'SLURM_PROCID': str(host),
            'SLURM_LOCALID': str(host),
        }
    return [coordinator, f'--num_processes={num_hosts}', f'--process_id={host}'], {}


def free_port() -> int:
    """One of those that JAX gives to Slurm's jobs by their number."""
    for port in random.sample(range(LAST_PORTS, 2**16), 100):
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(('localhost', port))
            return port
    raise AssertionError('no port is free')


def end(processes, timeout=240) -> tuple[list[int], list[str]]:
    """Exit statuses and what was written to stderr."""
    told = [process.communicate(timeout)[1] for process in processes]
    return [process.returncode for process in processes], told


def reach(folder, step, processes):
    """Returns once `step` is logged."""
    path = folder / 'run/metrics.jsonl'
    while all(process.returncode is None for process in processes):
        lines = path.read_text().splitlines() if path.exists() else []
        if len(lines) > 1 and json.loads(lines[-2])['step'] >= step:
            return
        time.sleep(0.02)
    raise AssertionError(end(processes))


def losses(folder) -> np.ndarray:
    records = map(json.loads, (folder / 'run/metrics.jsonl').read_text().splitlines())
    steps, values = zip(
        *((r['step'], r['loss']) for r in records if r['kind'] == 'train'), strict=True
    )
    assert steps == tuple(range(1, 41))
    return np.array(values)


def arrays(folder) -> dict[str, np.ndarray]:
    return tree_paths.flatten(checkpoints.load(folder / 'run').state)


@pytest.fixture(scope='module')
def pair(tmp_path_factory):
    """A run of two hosts with four devices each."""
    folder = tmp_path_factory.mktemp('pair')
    statuses, told = end(start(folder))
    assert statuses == [0, 0], told
    return folder


@pytest.fixture(scope='module')
def alone(tmp_path_factory):
    """The same run by one process with eight devices."""
    folder = tmp_path_factory.mktemp('alone')
    statuses, told = end(start(folder, num_hosts=1, devices=8))
    assert statuses == [0], told
    return folder


def test_two_hosts_train_as_one(pair, alone):
    np.testing.assert_allclose(losses(pair), losses(alone), rtol=1e-5)
    ours, theirs = arrays(pair), arrays(alone)
    assert checkpoints.describe(ours) == checkpoints.describe(theirs)
    for name, array in ours.items():
        np.testing.assert_allclose(array, theirs[name], rtol=1e-5, atol=1e-5, err_msg=name)
    files = [sorted(p.name for p in (f / 'run').iterdir()) for f in (pair, alone)]
    assert files[0] == files[1]


def test_a_killed_host_stops_the_other_and_nothing_is_lost(tmp_path, pair):
    for victim, step in ((1, 12), (0, 24)):
        processes = start(tmp_path)
        reach(tmp_path, step, processes)
        processes[victim].send_signal(signal.SIGKILL)
        killed = time.monotonic()
        statuses, told = end(processes, timeout=60)
        assert time.monotonic() - killed < 60
        assert statuses[victim] == -signal.SIGKILL
        assert statuses[1 - victim] not in (0, -signal.SIGKILL)
        lines = [line for line in told[1 - victim].splitlines() if line.startswith('error: ')]
        assert len(lines) == 1, told[1 - victim]
        assert f'host {victim}' in lines[0]
        assert 'died; start all again' in lines[0]
        assert 'Traceback' not in told[1 - victim]
    statuses, told = end(start(tmp_path))
    assert statuses == [0, 0], told
    np.testing.assert_array_equal(losses(tmp_path), losses(pair))
    ours, theirs = arrays(tmp_path), arrays(pair)
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


def test_a_busy_host_says_who_died():
    port = free_port()
    zero, one = (
        subprocess.Popen(
            [sys.executable, '-c', BUSY, str(port), str(host)], stderr=subprocess.PIPE, text=True
        )
        for host in (0, 1)
    )
    told = one.communicate(timeout=60)[1]
    assert zero.wait() == -signal.SIGKILL
    assert one.returncode == multihost.RESTART, told
    assert told.splitlines()[-1].startswith('error: host 0 (localhost) died; start all again')


def test_a_run_stopped_by_signals_goes_on_on_other_devices_hosts_and_meshes(tmp_path, alone):
    places = (
        (10, signal.SIGTERM, {'num_hosts': 1, 'devices': 1}, ()),
        (20, signal.SIGINT, {'devices': 8, 'num_hosts': 1}, ('--config.mesh.fsdp=4',)),
        (28, signal.SIGTERM, {'num_hosts': 2, 'devices': 1}, ()),  # to one of them
    )
    for step, number, place, more in places:
        processes = start(tmp_path, *more, **place)
        reach(tmp_path, step, processes)
        processes[-1].send_signal(number)
        statuses, told = end(processes)
        assert set(statuses) == {multihost.RESTART}, told
        saved = checkpoints.load(tmp_path / 'run')
        assert f'{number.name}: saved and stopped at step {saved.step};' in told[0]
        assert step <= saved.step == saved.state['step'] < 40
    # A mistake that host 0 alone can find ends both, each saying what it was.
    statuses, told = end(
        start(tmp_path, '--config.schedule.learning_rate=0.5', devices=1, by='mpi')
    )
    assert statuses == [2, 2]
    for text in told:
        assert 'schedule.learning_rate was' in text.splitlines()[-1]
    statuses, told = end(start(tmp_path, devices=1, by='slurm'))
    assert statuses == [0, 0], told
    np.testing.assert_allclose(losses(tmp_path), losses(alone), rtol=1e-4)

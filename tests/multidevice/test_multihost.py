"""Real processes as hosts: they train like one process, and none outlives another for long."""

import json
import signal
import socket
import time

import numpy as np
import pytest

from bert_jax import tree_paths
from bert_jax.loaded import checkpoint_arrays, checkpoint_files, checksums
from bert_jax.training import multihost
from tests.end_to_end import commands
from tests.multidevice import hosts, scenarios
from tests.multidevice.hosts import addressing, finish, free_port

ARGUMENTS = (
    '--config.training.steps=(40,)',
    '--config.training.sequence_length=(16,)',
    '--config.training.batch_size=(16,)',
    '--config.training.accumulation=(1,)',
    '--config.training.max_predictions=(3,)',
    '--config.checkpoint.every_steps=10',
    '--config.evaluation.every_steps=1000',
    '--config.evaluation.examples=16',
    '--config.evaluation.cloze_examples=0',
    '--config.logging.every_steps=1',
)

NAME = socket.gethostname()


def start(folder, *more, **place):
    """Start the processes of a run of 40 steps; `place` is for `hosts.start`."""
    return hosts.start(folder, *ARGUMENTS, *more, **place)


def error_lines(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if line.startswith('error: ')]


def reach(folder, step, processes):
    """Wait until `step` is logged."""
    path = folder / 'run/metrics.jsonl'
    while all(process.returncode is None for process in processes):
        lines = path.read_text().splitlines() if path.exists() else []
        if len(lines) > 1 and json.loads(lines[-2])['step'] >= step:
            return
        time.sleep(0.02)
    raise AssertionError(finish(processes))


def losses(folder) -> np.ndarray:
    records = map(json.loads, (folder / 'run/metrics.jsonl').read_text().splitlines())
    steps, values = zip(
        *((r['step'], r['loss']) for r in records if r['kind'] == 'train'), strict=True
    )
    assert steps == tuple(range(1, 41))
    return np.array(values)


def arrays(folder) -> dict[str, np.ndarray]:
    return tree_paths.flatten(checkpoint_arrays.load(folder / 'run').state)


def start_scenario(name, folder, hosts=(0, 1)):
    """Start processes of tests/multidevice/scenarios.py, each with two devices."""
    port = free_port()
    return [
        commands.Command(
            'tests.multidevice.scenarios',
            [name, port, host, folder],
            xla_flags='--xla_force_host_platform_device_count=2',
        )
        for host in hosts
    ]


def test_two_processes_agree_and_save_one_checkpoint_together(tmp_path):
    statuses, stderrs = finish(start_scenario('agree', tmp_path), timeout=90)
    assert statuses == [0, 0], stderrs
    for folder in (tmp_path / 'disk', tmp_path / 'bucket/run'):  # the latter was gs://bucket/run
        assert checksums.find_damage(folder / '2') is None
        assert [path.parent.name for path in folder.glob('*/manifest.sha256')] == ['2']
        stored = checkpoint_arrays.load(folder).state
        for name, value in scenarios.values().items():
            np.testing.assert_array_equal(stored[name], value, err_msg=name)


@pytest.mark.parametrize(
    ('scenario', 'status', 'messages'),
    [
        (
            'user_error_on_host_0',
            2,
            ['the disk is full', f'host 0 ({NAME}) stopped: the disk is full'],
        ),
        (
            'exception_on_host_1',
            1,
            [f'host 1 ({NAME}) stopped: ZeroDivisionError: a bug', 'ZeroDivisionError: a bug'],
        ),
        pytest.param(
            'upload_fails_on_host_1',
            2,
            [
                f'host 1 ({NAME}) stopped: checkpoint 1 could not be',
                'checkpoint 1 could not be written to gs',
            ],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_an_error_on_one_host_ends_both_with_its_message(tmp_path, scenario, status, messages):
    statuses, stderrs = finish(start_scenario(scenario, tmp_path), timeout=60)
    assert statuses == [status] * 2, stderrs
    for text, message in zip(stderrs, messages, strict=True):
        (line,) = error_lines(text)
        assert line.startswith(f'error: {message}')


def test_hosts_with_different_values_are_an_error(tmp_path):
    statuses, stderrs = finish(start_scenario('different_values', tmp_path), timeout=60)
    assert statuses == [2, 2], stderrs
    for text in stderrs:
        assert 'the config of host 1 differs from that of host 0' in error_lines(text)[0]


def test_hosts_that_read_different_labeled_data_are_an_error(tmp_path):
    for host in range(2):
        rows = [
            f'the text {number} of {host * (number == 7)}\t{number % 2}' for number in range(20)
        ]
        (tmp_path / str(host)).mkdir()
        (tmp_path / str(host) / 'train.tsv').write_text('\n'.join(['text\tlabel', *rows]))
    statuses, stderrs = finish(start_scenario('different_labeled_data', tmp_path), timeout=60)
    assert statuses == [2, 2], stderrs
    for text in stderrs:
        assert 'the labeled data of host 1 differs from that of host 0' in error_lines(text)[0]


def test_a_killed_host_0_ends_a_busy_host_1(tmp_path):
    statuses, stderrs = finish(start_scenario('host_0_is_killed', tmp_path), timeout=60)
    assert statuses[0] == -signal.SIGKILL
    assert statuses[1] not in (0, -signal.SIGKILL), stderrs


def test_a_host_that_hangs_ends_the_other_within_the_heartbeat_timeout(tmp_path):
    zero, one = start_scenario('host_1_hangs', tmp_path)
    try:
        statuses, stderrs = finish([zero], timeout=60)
        assert statuses[0] not in (0, -signal.SIGKILL), stderrs
        assert 'stopped sending heartbeats' in stderrs[0]
        assert f'host 1 ({NAME}) has not answered for' in stderrs[0]
    finally:
        one.send_signal(signal.SIGKILL)
    assert 1.5 * multihost.HEARTBEAT_TIMEOUT < 120  # two minutes, which the documentation promises


@pytest.mark.parametrize('host', [0, 1])
def test_a_host_that_never_comes_is_one_clear_error(tmp_path, host):
    statuses, (stderr,) = finish(start_scenario('missing', tmp_path, hosts=[host]), timeout=60)
    assert statuses == [multihost.RESTART], stderr
    assert stderr.strip().startswith('error: not all processes of the run joined at localhost:')
    assert len(stderr.strip().splitlines()) == 1


def test_fine_tuning_evaluates_between_checkpoints_and_stops_early(tmp_path):
    """Two hosts, three evaluations without a checkpoint, and the best checkpoint is returned."""
    keys = {
        'workdir': tmp_path / 'run',
        'data.tokenizer': 'train:wordpiece:400',
        'model.architecture': 'bert',
        'model.hidden_size': 16,
        'model.num_layers': 1,
        'model.num_heads': 2,
        'model.intermediate_size': 16,
        'model.max_position_embeddings': 32,
        'training.epochs': 0.0,
        'training.steps': 40,
        'training.batch_size': 8,
        'training.sequence_length': 32,
        'schedule.learning_rate': 1e-5,  # so small that the accuracy does not change
        'evaluation.best': 'accuracy',
        'evaluation.every_steps': 2,
        'evaluation.patience': 3,
        'checkpoint.every_steps': 5,
    }
    arguments = [f'--config.{key}={value}' for key, value in keys.items()]
    port = free_port()
    processes = [
        commands.Command(
            'bert_jax.main',
            ['--config=configs/finetune.py:sample_sentiment', *arguments]
            + addressing('flags', port, 2, host)[0],
            xla_flags='--xla_force_host_platform_device_count=1',
        )
        for host in (0, 1)
    ]
    statuses, stderrs = finish(processes)
    assert statuses == [0, 0], stderrs
    lines = (tmp_path / 'run/metrics.jsonl').read_text().splitlines()
    records = [json.loads(line) for line in lines]
    evaluated = [record['step'] for record in records if record['kind'] == 'held_out']
    results = json.loads((tmp_path / 'run/results.json').read_text())
    assert results['steps'] == evaluated[-1] < 40
    assert evaluated[-1] - results['best_step'] == 3 * keys['evaluation.every_steps']
    assert checkpoint_arrays.load(tmp_path / 'run').step == results['best_step']


@pytest.fixture(scope='module')
def pair(tmp_path_factory):
    """A run of two hosts with four devices each."""
    folder = tmp_path_factory.mktemp('pair')
    statuses, stderrs = finish(start(folder))
    assert statuses == [0, 0], stderrs
    return folder


@pytest.fixture(scope='module')
def alone(tmp_path_factory):
    """The same run by one process with eight devices."""
    folder = tmp_path_factory.mktemp('alone')
    statuses, stderrs = finish(start(folder, num_hosts=1, devices=8))
    assert statuses == [0], stderrs
    return folder


@pytest.mark.slow
def test_two_hosts_train_as_one(pair, alone):
    np.testing.assert_allclose(losses(pair), losses(alone), rtol=1e-5)
    ours, theirs = arrays(pair), arrays(alone)
    assert checkpoint_files.describe(ours) == checkpoint_files.describe(theirs)
    for name, array in ours.items():
        np.testing.assert_allclose(array, theirs[name], rtol=1e-5, atol=1e-5, err_msg=name)
    files = [sorted(p.name for p in (f / 'run').iterdir()) for f in (pair, alone)]
    assert files[0] == files[1]


@pytest.mark.slow
def test_a_killed_host_ends_the_other_and_nothing_is_lost(tmp_path, pair):
    for victim, step in ((1, 12), (0, 24)):
        processes = start(tmp_path)
        reach(tmp_path, step, processes)
        processes[victim].send_signal(signal.SIGKILL)
        statuses, stderrs = finish(processes, timeout=120)
        assert statuses[victim] == -signal.SIGKILL
        assert statuses[1 - victim] not in (0, -signal.SIGKILL), stderrs
    statuses, stderrs = finish(start(tmp_path))
    assert statuses == [0, 0], stderrs
    np.testing.assert_array_equal(losses(tmp_path), losses(pair))
    ours, theirs = arrays(tmp_path), arrays(pair)
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


@pytest.mark.slow
def test_a_run_stopped_by_signals_resumes_on_other_devices_hosts_and_meshes(tmp_path, alone):
    places = (
        (10, signal.SIGTERM, {'num_hosts': 1, 'devices': 1}, ()),
        (20, signal.SIGINT, {'devices': 8, 'num_hosts': 1}, ('--config.mesh.fsdp=4',)),
        (28, signal.SIGTERM, {'num_hosts': 2, 'devices': 1}, ()),  # to one of them
    )
    for step, number, place, more in places:
        processes = start(tmp_path, *more, **place)
        reach(tmp_path, step, processes)
        processes[-1].send_signal(number)
        statuses, stderrs = finish(processes)
        assert set(statuses) == {multihost.RESTART}, stderrs
        saved = checkpoint_arrays.load(tmp_path / 'run')
        assert f'{number.name}: saved and stopped at step {saved.step};' in stderrs[0]
        assert step <= saved.step == saved.state['step'] < 40
    # An error that only host 0 can find ends both with its message.
    statuses, stderrs = finish(start(tmp_path, '--config.optimizer.beta1=0.5', devices=1, by='mpi'))
    assert statuses == [2, 2]
    for text in stderrs:
        assert 'optimizer.beta1 was' in text.splitlines()[-1]
    statuses, stderrs = finish(start(tmp_path, devices=1, by='slurm'))
    assert statuses == [0, 0], stderrs
    np.testing.assert_allclose(losses(tmp_path), losses(alone), rtol=1e-4)


@pytest.mark.slow
def test_processes_end_a_run_by_time_together_also_after_an_interruption(tmp_path):
    timed = ('--config.training.minutes=0.2', '--config.evaluation.every_steps=50')
    processes = start(tmp_path, *timed)
    reach(tmp_path, 5, processes)
    processes[1].send_signal(signal.SIGTERM)
    statuses, stderrs = finish(processes)
    assert statuses == [75, 75], stderrs
    statuses, stderrs = finish(start(tmp_path, *timed))
    assert statuses == [0, 0], stderrs
    results = json.loads((tmp_path / 'run/results.json').read_text())
    records = map(json.loads, (tmp_path / 'run/metrics.jsonl').read_text().splitlines())
    records = [record for record in records if record['kind'] == 'train']
    seconds = [16 * 16 / record['tokens_per_second'] for record in records]
    # The last steps, which a busy machine may make long, are estimated before they are taken.
    assert 0.97 * 12 < results['train_seconds'] < 1.03 * 12 + sum(seconds[-3:])
    rates = [record['learning_rate'] for record in records]
    assert rates[-1] < 0.05 * max(rates)


@pytest.mark.slow
def test_a_host_that_is_stopped_for_a_while_changes_nothing(tmp_path, pair):
    processes = start(tmp_path)
    for victim, step in ((1, 8), (0, 24)):
        reach(tmp_path, step, processes)
        processes[victim].send_signal(signal.SIGSTOP)
        time.sleep(8)
        processes[victim].send_signal(signal.SIGCONT)
    statuses, stderrs = finish(processes)
    assert statuses == [0, 0], stderrs
    for stderr in stderrs:
        assert 'the process was stopped for' in stderr
    np.testing.assert_array_equal(losses(tmp_path), losses(pair))
    ours, theirs = arrays(tmp_path), arrays(pair)
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)

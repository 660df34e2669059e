"""Locks on real servers and on a disk: one holder at a time, also after one has died."""

import contextlib
import json
import subprocess
import threading
import time

import pytest

from bert_jax.errors import UserError
from bert_jax.storage import leases, paths


@pytest.fixture(params=['bucket', 'disk'])
def path(request, root, tmp_path):
    return (root if request.param == 'bucket' else tmp_path) / 'lock'


SHORT = leases.Timing(renew=0.05, stale=0.4, poll=0.02)


def leave(path, **owner):
    """Write the lock of a process that did not release it."""
    record = leases._this_process() | {'time': 0, 'token': 'x'} | owner
    paths.folder(path.with_name('lock.000007')).create(json.dumps(record).encode())


@contextlib.contextmanager
def held(path, timing=SHORT):
    lease = leases.Lease(path, timing)
    lease.acquire()
    yield lease
    lease.release()


def test_one_of_many_holds_a_lock(path):
    holders, most = [], []

    def work():
        for _ in range(3):
            with held(path):
                holders.append(1)
                most.append(len(holders))
                time.sleep(0.01)
                holders.pop()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 9
    assert len(list(path.parent.glob('lock.*'))) == 1


def test_a_holder_that_renews_its_lock_keeps_it(path):
    with held(path) as lease:
        second = threading.Thread(target=leases.Lease(path, SHORT).acquire, daemon=True)
        second.start()
        second.join(1.2)
        assert second.is_alive()
        lease.check()
    second.join(10)
    assert not second.is_alive()


def test_a_dead_process_of_this_machine_is_followed_at_once(path):
    process = subprocess.Popen(['sleep', '100'])
    leave(path, pid=process.pid, started=leases._started(process.pid))
    process.kill()
    process.wait()
    start = time.monotonic()
    with held(path) as lease:
        assert lease._number == 8
    assert time.monotonic() - start < 5


def test_a_process_of_another_machine_is_followed_after_a_while(path):
    leave(path, host='elsewhere')
    start = time.monotonic()
    with held(path):
        assert time.monotonic() - start > 0.4


def test_a_holder_that_was_followed_learns_of_it(path):
    lease = leases.Lease(path, SHORT._replace(renew=100.0))  # as a suspended process
    lease.acquire()
    with held(path), pytest.raises(UserError, match='taken over by process') as found:
        leases.check(path.with_name('checkpoints') / '10')
    assert '\n' not in str(found.value)
    lease.release()
    assert json.loads(path.with_name('lock.000002').read_bytes())['released']

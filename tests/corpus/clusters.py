"""A Dask cluster of processes for tests."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]


class Cluster:
    """A scheduler and its workers, each a process of its own.

    Attributes:
        address: Of the scheduler.
        workers: The processes of the workers.
    """

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        with socket.socket() as found:
            found.bind(('127.0.0.1', 0))
            port = found.getsockname()[1]
        self.address = f'tcp://127.0.0.1:{port}'
        self.workers: list[subprocess.Popen] = []
        where = ['--host=127.0.0.1', f'--port={port}', '--no-dashboard']
        self.processes = [self._start('scheduler', *where)]

    def add_worker(self):
        process = self._start(
            'worker', self.address, '--nthreads=1', '--no-nanny', '--no-dashboard'
        )
        self.workers.append(process)

    def _start(self, kind, *arguments):
        command = [sys.executable, '-m', 'dask', kind, *arguments]
        with open(self.folder / f'{kind}.log', 'a') as log:
            path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get('PYTHONPATH'))))
            return subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder,
                env=os.environ | {'PYTHONPATH': path},
            )  # fmt: skip

    def stop(self):
        for process in (*self.workers, *self.processes):
            process.kill()
            process.wait()


@contextlib.contextmanager
def started(folder: pathlib.Path, workers: int = 2):
    """Start a cluster; the test is skipped if Dask is not installed."""
    pytest.importorskip('distributed', reason='distributed is not installed (extra dask)')
    folder.mkdir(exist_ok=True)
    cluster = Cluster(folder)
    try:
        for _ in range(workers):
            cluster.add_worker()
        yield cluster
    finally:
        cluster.stop()


def wait_for(condition, seconds=90):
    """Poll until condition() is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, 'this takes too long'
        time.sleep(0.01)


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, those of them included."""
    found = [
        int(child)
        for task in pathlib.Path(f'/proc/{pid}/task').iterdir()
        for child in (task / 'children').read_text().split()
    ]
    return found + [each for child in found for each in descendants(child)]


def kill(process: subprocess.Popen):
    process.send_signal(signal.SIGKILL)
    process.wait()

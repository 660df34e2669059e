"""The clock of the training stands still while the process is stopped."""

import os
import signal
import subprocess
import sys
import time

import pytest

from bert_jax.training.interruption import RunningClock


class Times:
    """A clock and the CPU time of a process."""

    def __init__(self):
        self.now = self.cpu = 100.0

    def pass_time(self, seconds, busy):
        self.now += seconds
        self.cpu += busy


def test_time_without_a_tick_counts_only_if_the_process_was_busy(capsys):
    times = Times()
    clock = RunningClock(lambda: times.now, lambda: times.cpu)
    times.pass_time(1.5, busy=0.0)  # waits for a device
    assert clock() == pytest.approx(1.5)
    times.pass_time(60.0, busy=0.1)  # is stopped
    assert clock() == pytest.approx(1.5)
    assert 'the process was stopped for 60 s, which do not count' in capsys.readouterr().err
    times.pass_time(60.0, busy=55.0)  # holds the lock of Python's interpreter
    assert clock() == pytest.approx(61.5)
    times.pass_time(2.0, busy=0.0)
    assert clock() == pytest.approx(63.5)
    assert not capsys.readouterr().err


def test_a_stopped_process_does_not_age():
    code = """
import time
from bert_jax.training.interruption import RunningClock
with RunningClock() as clock:
    print('started', flush=True)
    input()
    print(clock())
"""
    process = subprocess.Popen(
        [sys.executable, '-c', code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == 'started\n'
    start = time.monotonic()
    time.sleep(1)
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(7)
    os.kill(process.pid, signal.SIGCONT)
    time.sleep(1)
    output, _ = process.communicate('\n', timeout=60)
    assert float(output) < time.monotonic() - start - 5

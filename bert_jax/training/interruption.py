"""Signals: one that ends a run, which saves and exits to be rerun; one that stops its clock."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from bert_jax.errors import warn

SIGNALS = (signal.SIGTERM, signal.SIGINT)
RESTART = 75  # exit status (EX_TEMPFAIL): nothing is lost, rerun the same command to resume
_PATIENCE = 15.0  # seconds until a signal ends a process whose main thread does not end it
_TICK = 1.0  # seconds
_PAUSE = 5.0  # seconds without a tick
_BUSY_SHARE = 0.2  # of a pause; a process that computes as much was not stopped


class Interrupted(SystemExit):
    """A signal asked the run to stop and everything is saved. Exits with status RESTART."""

    def __init__(self) -> None:
        super().__init__(RESTART)


class StopSignal:
    """Records SIGTERM and SIGINT within a `with` block instead of ending the process.

    A second signal of the same number ends the process at once. Leaving the block restores the
    previous handlers. In another thread than the main one, which Python gives no signals, a block
    records none.

    Attributes:
        number: number of the signal that this process received; 0 if it received none.
    """

    def __init__(self) -> None:
        self.number = 0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> 'StopSignal':
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            # None: the handler was not installed from Python and cannot be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        signal.signal(number, signal.SIG_DFL)


def exit_on_signals() -> None:
    """Let SIGTERM and SIGINT end this process with status RESTART, outside of a `StopSignal`.

    The command of training calls this first. The process ends without cleaning up, because what a
    run has saved is complete at any moment, and an exception from a handler is lost in callbacks
    and in some imports. While C++ code compiles for minutes, no handler runs; then a thread ends
    the process.
    """
    received, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in SIGNALS:
        signal.signal(number, _exit)
    threading.Thread(target=_watch, args=(received,), daemon=True, name='signals').start()


def tell_before_exit(tell: Callable[[str], None]) -> None:
    """Call a function with a message before a signal ends this process; see `exit_on_signals`."""
    _listeners.append(tell)


def _exit(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)  # a second signal ends the process at once
    text = f'{signal.Signals(number).name}: stopped; rerun the same command to resume'
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        print(f'\n{text}', file=sys.stderr, flush=True)
    for tell in _listeners:
        tell(text)
    os._exit(RESTART)


def _watch(received: int) -> None:
    while True:
        number = os.read(received, 1)[0]
        if number in SIGNALS and signal.getsignal(number) is _exit:
            time.sleep(_PATIENCE)
            if signal.getsignal(number) is _exit:
                os._exit(RESTART)


_listeners: list[Callable[[str], None]] = []


class RunningClock:
    """Seconds that the process was running; a context manager.

    SIGSTOP, a suspended job and a frozen container stop a process, and the clocks of the system go
    on. A thread asks for the time every second: if nobody could for several seconds, in which the
    process used no CPU time, it was stopped.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
    ):
        """Start at 0.

        Args:
            monotonic: a clock in seconds that never jumps.
            cpu: the CPU time of the process in seconds.
        """
        self._monotonic, self._cpu = monotonic, cpu
        self._last, self._last_cpu = monotonic(), cpu()
        self._start, self._lock, self._ended = self._last, threading.Lock(), threading.Event()

    def __call__(self) -> float:
        """Return the seconds since the start without those in which the process was stopped."""
        with self._lock:
            now, cpu = self._monotonic(), self._cpu()
            gap, busy = now - self._last, cpu - self._last_cpu
            is_pause = gap > _PAUSE and busy < _BUSY_SHARE * gap
            self._start += gap if is_pause else 0.0
            self._last, self._last_cpu = now, cpu
            seconds = now - self._start
        if is_pause:
            warn(f'the process was stopped for {gap:,.0f} s, which do not count as training')
        return seconds

    def __enter__(self) -> 'RunningClock':
        threading.Thread(target=self._tick, daemon=True, name='clock').start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()

    def _tick(self) -> None:
        while not self._ended.wait(_TICK):
            self()

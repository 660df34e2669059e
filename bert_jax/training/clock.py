"""The time of a training process, which stands still while the process is stopped."""

import threading
import time
from collections.abc import Callable

from bert_jax.errors import warn

_TICK = 1.0  # seconds
_PAUSE = 5.0  # seconds without a tick
_BUSY_SHARE = 0.2  # of a pause; a process that computes as much was not stopped


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

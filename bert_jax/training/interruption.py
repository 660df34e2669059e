"""Stopping a run by a signal: the loop saves, then exits with a status that means "rerun"."""

import signal
from types import FrameType
from typing import Any

from bert_jax.training import multihost

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupted(SystemExit):
    """A signal asked the run to stop and everything is saved. Exits with status RESTART."""

    def __init__(self) -> None:
        super().__init__(multihost.RESTART)


class StopSignal:
    """Records SIGTERM and SIGINT within a `with` block instead of ending the process.

    A second signal of the same number ends the process at once. Leaving the block restores the
    previous handlers.

    Attributes:
        number: number of the signal that this process received; 0 if it received none.
    """

    def __init__(self) -> None:
        self.number = 0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> 'StopSignal':
        self._previous = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            # None: the handler was not installed from Python and cannot be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        signal.signal(number, signal.SIG_DFL)

"""Progress bars that do not flicker on a terminal and do not flood a log file."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import tqdm

from bert_jax.errors import printable

# Called with the number of units that are done.
Advance: TypeAlias = Callable[[int], object]
# (number of units, name of the unit) → shows how many are left.
Bars: TypeAlias = Callable[[int, str], AbstractContextManager[Advance]]

SECONDS_BETWEEN_LINES = 15.0  # when stderr is a file
EVALUATION_SECONDS = 3.0  # shorter evaluations have no bar of their own
_DELAY = 1e-5  # seconds; above 0, tqdm does not show a bar as soon as it is made


def say(text: str) -> None:
    """Print a line to stdout, escaping control characters and those that it cannot encode."""
    encoding = getattr(sys.stdout, 'encoding', None) or 'utf-8'  # stdout is None if it is closed
    print(printable(text).encode(encoding, 'backslashreplace').decode(encoding), flush=True)


def bar(delay: float = _DELAY, interval: float | None = None, **settings: Any) -> tqdm.tqdm:
    """Create a tqdm bar on stderr: redrawn once a second on a terminal, lines of text in a file.

    Args:
        delay: Work that takes fewer seconds is not shown; by default all work is.
        interval: Seconds between lines in a file; None: SECONDS_BETWEEN_LINES.
        settings: Further arguments of tqdm.
    """
    settings['delay'] = delay
    interval = SECONDS_BETWEEN_LINES if interval is None else interval
    if _is_notebook():
        return _Bar(mininterval=1.0, file=sys.stderr, ncols=100, **settings)
    if sys.stderr.isatty():
        return _Bar(mininterval=1.0, dynamic_ncols=True, **settings)
    return _Bar(mininterval=interval, file=_Lines(), ncols=100, **settings)


@contextlib.contextmanager
def evaluation_bar(
    total: int,
    unit: str,
    is_shown: bool,
    delay: float | None = None,
    interval: float | None = None,
) -> Iterator[Advance]:
    """Show a bar with the time that an evaluation has left, which disappears at its end.

    Args:
        total: Number of units to evaluate.
        unit: Name of the unit.
        is_shown: Whether this process shows it.
        delay: Shorter evaluations are not shown; in seconds; None: EVALUATION_SECONDS.
        interval: See `bar`.
    """
    evaluating = bar(
        EVALUATION_SECONDS if delay is None else delay,
        interval,
        desc='evaluating',
        total=total,
        unit=unit,
        leave=False,
        position=0,  # in place of the bar of the training, which does not move meanwhile
        disable=not is_shown,
    )
    with evaluating:
        yield evaluating.update


def _is_notebook() -> bool:
    """Whether stderr is shown below a cell of a notebook, which redraws a line as a terminal."""
    return type(sys.stderr).__module__.startswith('ipykernel.')


class _Bar(tqdm.tqdm):  # type: ignore[misc]  # tqdm ships no types
    """A bar that is not shown before there is progress, such as '0 windows [00:00]'."""

    delay: float

    def close(self) -> None:
        """Show the final state, if there was progress."""
        if not self.disable and self.n > self.initial and self.delay == _DELAY:
            self.delay = 0
        super().close()


class _Lines:
    """A file that writes each state of a bar to stderr as a line, without carriage returns."""

    def write(self, text: str) -> None:
        state = text.strip()
        if state:
            sys.stderr.write(f'{state}\n')

    def flush(self) -> None:
        sys.stderr.flush()

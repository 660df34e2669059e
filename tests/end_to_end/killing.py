"""Kills a command at moments that are drawn, until it has been killed often enough."""

import pathlib
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterable

from tests.end_to_end import commands

_LONGEST = 25.0  # seconds; a first run may have waited for other processes


def run(module: str, arguments: Iterable[object]) -> float:
    """Run a command to its end; return its seconds."""
    start = time.monotonic()
    done = commands.run(module, *arguments)
    assert done.returncode == 0, done.stderr
    return time.monotonic() - start


def kill(
    module: str,
    arguments: Iterable[object],
    output: pathlib.Path,
    seconds: float,
    kills: int,
    *,
    check: Callable[[], object] = lambda: None,
    keeps: bool = False,
    first: float = 0.0,
) -> dict[str, int]:
    """Start a command and kill it at any moment of its `seconds`, until it was killed often enough.

    If it was faster, its output is removed, and so is an output that was complete when the kill
    came.

    Args:
        module: of the command.
        arguments: of the command.
        output: what it writes.
        seconds: the time that it takes.
        kills: how often it is killed.
        check: called after each kill.
        keeps: whether the output stays, because the command replaces it.
        first: share of the time in which it is not killed.

    Returns:
        Number of kills, and how many of them came after the output was complete.
    """
    rng, seconds = random.Random(0), min(seconds, _LONGEST)
    found = {'kills': 0, 'complete': 0}
    while found['kills'] < kills:
        process = commands.Command(module, arguments)
        time.sleep(rng.uniform(first * seconds, seconds))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        _, stderr = process.communicate(timeout=300)
        is_killed = process.returncode == -signal.SIGKILL
        assert is_killed or process.returncode == 0, stderr
        found['kills'] += is_killed
        check()
        if not is_killed:
            seconds *= 0.8
        if not keeps and output.exists() and (not is_killed or is_complete(output)):
            found['complete'] += is_killed
            shutil.rmtree(output) if output.is_dir() else output.unlink()
    return found


def is_complete(output: pathlib.Path) -> bool:
    """Whether an output is there that the command refuses to write again."""
    return output.is_file() or (output / 'load.py').exists()


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    """The files of a folder by name, or the file itself."""
    if folder.is_file():
        return {folder.name: folder.read_bytes()}
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob('*'))
        if path.is_file()
    }

"""Locks that expire, for storage without locks: buckets, and some network disks.

A lock is a series of files PATH.000001, PATH.000002, … A process creates a file only if it does not
exist, so at most one process succeeds. The owner of the highest number holds the lock and rewrites
its file every few seconds. A process that has watched this file for a minute without a change
creates the next number. Clocks of different hosts are not compared. The file of the last owner
stays, so that numbers never repeat.
"""

import contextlib
import json
import os
import pathlib
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from bert_jax.errors import UserError, report
from bert_jax.storage import paths
from bert_jax.storage.held_locks import held
from bert_jax.storage.path import Path
from bert_jax.types import JsonObject, JsonRecord

_NUMBER = re.compile('[0-9]{6,18}')
_REPORT_SECONDS = 60.0  # between messages while waiting


class Timing(NamedTuple):
    """Seconds between the actions of processes that share a lock.

    Attributes:
        renew: between renewals by the holder.
        stale: after which a holder that has not renewed its lock is followed.
        poll: between looks at the lock while waiting.
    """

    renew: float = 10.0
    stale: float = 60.0
    poll: float = 1.0


class Lease:
    """A lock that this process holds, or waits for; see `acquire`."""

    def __init__(self, path: Path, timing: Timing = Timing()):  # noqa: B008  (it is immutable)
        """Create a lease of the lock `path`; nothing is written."""
        self.path, self._timing = path, timing
        self._number = 0
        self._renewed = 0.0  # when the last renewal was sent, in time.monotonic()
        self._lost_to = ''
        self._done = threading.Event()
        self._owner = _this_process()
        self._lock = threading.Lock()  # between renewal and release

    def acquire(self, progress: Callable[[], str] = lambda: '') -> None:
        """Wait until this process holds the lock.

        Args:
            progress: Describes what the holder has done so far, for the messages while waiting.

        Raises:
            OSError: The storage cannot be read or written.
        """
        start = next_report = time.monotonic()
        last_content, unchanged_since = b'', start
        while True:
            number, content = self._newest()
            if content != last_content:
                last_content, unchanged_since = content, time.monotonic()
            owner = _parse(content)
            is_free = not number or owner.get('released') or _is_dead(owner)
            is_stale = time.monotonic() - unchanged_since > self._timing.stale
            if (is_free or is_stale) and self._take(number + 1):
                return
            if time.monotonic() >= next_report and not is_free:
                next_report = time.monotonic() + _REPORT_SECONDS
                _report(self.path, owner, progress(), time.monotonic() - start)
            time.sleep(self._timing.poll)

    def release(self) -> None:
        """Let others have the lock."""
        self._done.set()
        held.discard(self)
        with self._lock, contextlib.suppress(OSError):
            if not self._lost_to:
                self._write(released=True)

    def check(self) -> None:
        """Raise UserError if another process has taken over the lock."""
        if not self._lost_to and time.monotonic() - self._renewed > self._timing.stale:
            self._renew()
        if self._lost_to:
            raise UserError(
                f'{self.path} was taken over by {self._lost_to}, because this process had not '
                f'renewed it for {self._timing.stale:.0f} s; this process has changed nothing since'
            )

    def _take(self, number: int) -> bool:
        """Create the file of a number; return whether this process now holds the lock."""
        now = time.monotonic()
        try:
            paths.folder(self._file(number)).create(self._content())
        except FileExistsError:
            return False
        if self._newest()[0] != number:  # a later owner had removed the file of this number
            self._file(number).unlink(missing_ok=True)
            return False
        self._number, self._renewed = number, now
        for older in range(max(1, number - 3), number):
            self._file(older).unlink(missing_ok=True)
        held.add(self)
        threading.Thread(target=self._renew_until_released, daemon=True, name='lease').start()
        return True

    def _renew_until_released(self) -> None:
        while not self._done.wait(self._timing.renew):
            with contextlib.suppress(OSError):  # `check` raises if this lasts
                self._renew()
            if self._lost_to:
                return

    def _renew(self) -> None:
        with self._lock:
            if self._done.is_set():
                return
            now = time.monotonic()
            number, content = self._newest()
            if number > self._number:
                self._lost_to = _describe(_parse(content))
                return
            self._write()
            self._renewed = now

    def _newest(self) -> tuple[int, bytes]:
        """The highest number and the contents of its file; (0, b'') if there is no file."""
        numbers = [
            int(path.name.rpartition('.')[2])
            for path in self.path.parent.glob(f'{self.path.name}.*')
            if _NUMBER.fullmatch(path.name.rpartition('.')[2])
        ]
        if not numbers:
            return 0, b''
        try:
            return max(numbers), self._file(max(numbers)).read_bytes()
        except FileNotFoundError:  # replaced by a higher number in the meantime
            return self._newest()

    def _file(self, number: int) -> Path:
        return self.path.with_name(f'{self.path.name}.{number:06d}')

    def _content(self, **fields: Any) -> bytes:
        record = self._owner | {'time': time.time(), 'token': uuid.uuid4().hex} | fields
        return json.dumps(record).encode()

    def _write(self, **fields: Any) -> None:
        self._file(self._number).write_bytes(self._content(**fields))


def _parse(content: bytes) -> JsonRecord:
    try:
        owner: JsonRecord = json.loads(content)
        return owner
    except ValueError:  # on a disk: another process is writing the file
        return {}


def _this_process() -> JsonRecord:
    pid = os.getpid()
    return {'host': _host(), 'pid': pid, 'started': _started(pid)}


def _host() -> str:
    """Identifies this machine since its last boot, and the namespace of its process ids."""
    with contextlib.suppress(OSError):
        boot = pathlib.Path('/proc/sys/kernel/random/boot_id').read_text().strip()
        return f'{socket.gethostname()} {boot} {os.readlink("/proc/self/ns/pid")}'
    return socket.gethostname()


def _started(pid: int) -> str:
    """The start time of a process, to tell it from later ones with its id; '' if it ended."""
    with contextlib.suppress(OSError):
        state, *fields = pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
        return '' if state in 'XZ' else fields[18]
    return ''


def _is_dead(owner: JsonObject) -> bool:
    """Whether an owner was a process of this machine that has ended."""
    if owner.get('host') != _host():
        return False
    try:
        os.kill(owner['pid'], 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return bool(_started(owner['pid']) != owner['started'])


def _describe(owner: JsonRecord) -> str:
    host = str(owner.get('host', 'an unknown host')).partition(' ')[0]
    return f'process {owner.get("pid", "?")} on {host}'


def _report(path: Path, owner: JsonRecord, progress: str, seconds: float) -> None:
    report(
        f'waiting for the lock {path} of {_describe(owner)}'
        + (f'; {progress}' if progress else '')
        + f', waited {seconds:.0f} s'
    )

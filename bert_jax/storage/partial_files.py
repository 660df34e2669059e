"""Files of a result that are written part by part; the next process resumes after the last part.

Until RESULT is complete, its files are in the folder RESULT.partial, with progress.json: what the
result depends on, how many bytes of each file are safe, and what its writer needs to resume.
"""

import contextlib
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import BinaryIO

from bert_jax.errors import UserError, report
from bert_jax.storage import names, paths
from bert_jax.storage.disk_folder import sync
from bert_jax.storage.locks import Lock
from bert_jax.storage.path import Path
from bert_jax.types import JsonObject

RECORD, _LOCK, _SUFFIX = 'progress.json', '.bert_jax_lock', '.partial'


class PartialFiles:
    """The files of an unfinished result, which `resumed` opens.

    Attributes:
        target: the result.
        folder: the folder of the files.
        origin: what the saved parts depend on; {} if nothing was saved.
        progress: what was saved with them.
    """

    def __init__(self, target: Path, folder: pathlib.Path) -> None:
        """Read what was saved last, and drop what was written after it.

        Raises:
            UserError: a file or the record is damaged.
        """
        self.target, self.folder = target, folder
        self.origin: JsonObject = {}
        self.progress: JsonObject = {}
        self._sizes: dict[str, int] = {}
        self._open: dict[str, BinaryIO] = {}
        if (folder / RECORD).exists() and not self._is_published():
            self._read()

    def _read(self) -> None:
        try:
            record = json.loads((self.folder / RECORD).read_text(encoding='utf-8'))
            self.origin, self.progress = dict(record['origin']), dict(record['progress'])
            for name, size in record['sizes'].items():
                self._sizes[names.check(name, self.folder / RECORD)] = int(size)
                if (self.folder / name).stat().st_size < size:
                    raise ValueError(name)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f'{self.folder} is damaged; remove it to start again') from None
        for name, size in self._sizes.items():
            os.truncate(self.folder / name, size)

    def _is_published(self) -> bool:
        """Whether a kill has left the record of a result that was complete."""
        return self.target.exists() and {path.name for path in self.folder.iterdir()} <= {
            RECORD,
            _LOCK,
        }

    def clear(self) -> None:
        """Start again with an empty folder."""
        self.close()
        for path in self.folder.iterdir():
            if path.name != _LOCK:
                path.unlink()
        self.origin, self.progress, self._sizes = {}, {}, {}

    def append(self, name: str, content: bytes) -> None:
        """Add bytes to the end of a file."""
        if name not in self._open:
            self._open[name] = open(self.folder / name, 'ab')  # noqa: SIM115  (`close`)
        self._open[name].write(content)

    def save(self, origin: Callable[[], JsonObject], progress: JsonObject) -> None:
        """Make safe what was appended so far.

        Args:
            origin: returns what the result depends on, JSON values by name; called once.
            progress: what the next process needs to resume, JSON values by name.
        """
        self.origin = self.origin or origin()
        for name, file in self._open.items():
            file.flush()
            os.fsync(file.fileno())
            self._sizes[name] = file.tell()
        self.progress = progress
        record = {'origin': self.origin, 'progress': progress, 'sizes': self._sizes}
        paths.write(self.folder / RECORD, json.dumps(record).encode())

    def close(self) -> None:
        """Write what is buffered."""
        for file in self._open.values():
            file.close()
        self._open = {}

    def publish(self, name: str) -> None:
        """Give a complete file of the folder the name of the result."""
        self.close()
        sync(self.folder / name)
        paths.publish(self.folder / name, self.target)


@contextlib.contextmanager
def resumed(target: Path, can_wait: bool = False) -> Iterator[PartialFiles]:
    """Open the files of an unfinished result; they are removed after the block.

    If the block fails they stay, provided that something was saved, and the user is told so.

    Args:
        target: the result, a file or a folder. In a bucket, nothing is kept after this process.
        can_wait: wait for another process that writes the same result.

    Raises:
        UserError: the folder is not ours or damaged, or another process writes the result.
    """
    local = paths.local(target)
    folder = local.with_name(local.name + _SUFFIX)
    with _locked(folder, target, can_wait):
        files = PartialFiles(target, folder)
        try:
            yield files
        except BaseException as error:
            with contextlib.suppress(OSError):  # the disk may be full
                files.close()
            if not files.origin:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            kept = f'{folder} is kept: rerun the same command to resume'
            if isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt(kept) from None
            report(kept)
            raise
        files.close()
        shutil.rmtree(folder)


@contextlib.contextmanager
def _locked(folder: pathlib.Path, target: Path, can_wait: bool) -> Iterator[None]:
    """Hold the lock in the folder, which is created; whoever holds it may remove the folder."""
    lock = Lock(folder / _LOCK)
    with contextlib.ExitStack() as stack:
        while True:
            folder.mkdir(parents=True, exist_ok=True)
            _check_ours(folder)
            try:
                if can_wait:
                    stack.enter_context(lock.waited_for(lambda: f'it writes {target}'))
                elif lock.take():
                    stack.callback(lock.release)
                else:
                    raise UserError(f'another process writes {target}; wait until it has ended')
                break
            except FileNotFoundError:  # another process has removed the folder
                continue
        yield


def _check_ours(folder: pathlib.Path) -> None:
    """Raise UserError for a folder of somebody else, which would be cleared."""
    is_own = not folder.is_symlink() and folder.stat().st_uid == os.geteuid()
    found = {path.name for path in folder.iterdir()} if is_own else {''}
    if found and _LOCK not in found:
        raise UserError(
            f'{folder} exists, but is not of an unfinished result; move it elsewhere: the result '
            'is written there first'
        )

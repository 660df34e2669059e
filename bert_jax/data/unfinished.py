"""The folder of a corpus that is being prepared, from which an interrupted run resumes."""

import json
import os
import pathlib
import shutil
import sys
import time
from types import TracebackType
from typing import Any

from bert_jax.data import source_files
from bert_jax.errors import UserError
from bert_jax.files import sync, write_json

RECORD = 'progress.json'
SAVE_SECONDS = 30.0  # work that an interruption loses at most, besides the time to read the text


class Unfinished:
    """`OUTPUT`.partial, which becomes `OUTPUT` when all is done; use it as a context manager.

    After a failure the folder stays if it has saved progress, and is removed otherwise. Only the
    process that holds the lock of `OUTPUT` may use it.

    Attributes:
        folder: The folder; empty at first, or as an interrupted run has left it.
        progress: What that run saved, the argument of `save`; {} if it saved nothing.
    """

    def __init__(
        self, output: pathlib.Path, settings: dict[str, Any], stamps: list[source_files.Stamps]
    ):
        """Read the progress of an interrupted run.

        Args:
            output: Folder of the finished corpus.
            settings: What determines the corpus and the order of the work, as JSON values.
            stamps: See `source_files.stamps`.

        Raises:
            UserError: The folder has progress that was made with other settings or files.
        """
        self.folder = output.with_name(output.name + '.partial')
        self.progress: dict[str, Any] = {}
        self._output, self._settings = output, json.loads(json.dumps(settings))
        self._stamps = stamps
        self._saved = time.monotonic()
        record = self.folder / RECORD
        if record.exists():
            found = json.loads(record.read_text(encoding='utf-8'))
            self._check(found['settings'])
            self.progress = found['progress']

    def _check(self, saved: dict[str, Any]) -> None:
        changes = [
            f'{key} was {saved.get(key)!r} and is {value!r}'
            for key, value in self._settings.items()
            if value != saved.get(key)
        ]
        changes = changes or source_files.compare(source_files.read(self.folder), self._stamps)
        if changes:
            raise UserError(
                f'{self.folder} holds an interrupted preparation, but {"; ".join(changes[:3])}: '
                'undo this to resume it, or remove the folder to begin again'
            )

    def is_due(self) -> bool:
        """Whether progress should be saved now."""
        return time.monotonic() - self._saved > SAVE_SECONDS

    def save(self, progress: dict[str, Any]) -> None:
        """Save the progress of files that are already on disk."""
        record = {'settings': self._settings, 'progress': progress}
        write_json(self.folder / RECORD, record, indent=None)
        self._saved = time.monotonic()

    def __enter__(self) -> 'Unfinished':
        if self.progress:
            return self
        try:
            if self.folder.exists():
                shutil.rmtree(self.folder)
            self.folder.mkdir(parents=True)
            source_files.write(self.folder, self._stamps)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            for path in [*self.folder.rglob('*'), self.folder]:
                sync(path)
            os.rename(self.folder, self._output)
            sync(self._output.parent)
            for path in self._output.glob('progress.*'):
                path.unlink()
        elif (self.folder / RECORD).exists():
            print(f'{self.folder} is kept: the same command resumes it', file=sys.stderr)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

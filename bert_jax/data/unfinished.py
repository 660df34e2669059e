"""The folder of a corpus that is being prepared, from which an interrupted run resumes."""

import contextlib
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
from bert_jax.storage import paths

RECORD = 'progress.json'
SAVE_SECONDS = 30.0  # work that an interruption loses at most, besides the time to read the text
UPLOAD_SECONDS = 300.0  # the same in a bucket, to which unfinished shards are uploaded whole
MARKER = 'manifest.json'


class Unfinished:
    """`OUTPUT`.partial, which becomes `OUTPUT` when all is done; use it as a context manager.

    After a failure the folder stays if it has saved progress, and is removed otherwise. Only the
    process that holds the lock of `OUTPUT` may use it.

    Attributes:
        folder: The folder; empty at first, or as an interrupted run has left it.
        shared: What other machines call it.
        parts: Folder for what several machines pass on to each other; removed at the end.
        progress: What that run saved, the argument of `save`; {} if it saved nothing.
    """

    _save_seconds = SAVE_SECONDS

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
        self.folder = self._find_folder(output)
        self.shared = output if paths.is_in_bucket(output) else self.folder
        self.parts = output.with_name(output.name + '.parts')
        self.progress: dict[str, Any] = {}
        self._output, self._settings = output, json.loads(json.dumps(settings))
        self._stamps = stamps
        self._saved = time.monotonic()
        record = self.folder / RECORD
        if record.exists():
            found = json.loads(record.read_text(encoding='utf-8'))
            self._check(found['settings'])
            self.progress = found['progress']

    @staticmethod
    def _find_folder(output: pathlib.Path) -> pathlib.Path:
        return output.with_name(output.name + '.partial')

    def _check(self, saved: dict[str, Any]) -> None:
        changes = [
            f'{key} was {saved.get(key)!r} and is {value!r}'
            for key, value in self._settings.items()
            if value != saved.get(key)
        ]
        changes = changes or source_files.compare(source_files.read(self.folder), self._stamps)
        if changes:
            raise UserError(
                f'{paths.name_of(self.folder)} holds an interrupted preparation, but '
                f'{"; ".join(changes[:3])}: undo this to resume it, or remove the folder to begin '
                'again'
            )

    def is_due(self) -> bool:
        """Whether progress should be saved now."""
        return time.monotonic() - self._saved > self._save_seconds

    def save(self, progress: dict[str, Any]) -> None:
        """Save the progress of files that are already on disk."""
        record = {'settings': self._settings, 'progress': progress}
        write_json(self.folder / RECORD, record, indent=None)
        self._saved = time.monotonic()

    def __enter__(self) -> 'Unfinished':
        if self.progress:
            return self
        try:
            paths.remove(self.parts)
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
            paths.remove(self.parts)
        elif (self.folder / RECORD).exists():
            print(f'{self.folder} is kept: the same command resumes it', file=sys.stderr)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)


class UnfinishedInBucket(Unfinished):
    """The same for a corpus in a bucket, which is complete once it has its manifest.

    The files are written on this machine, and uploaded whenever progress is saved. Finished shards
    are then removed here.
    """

    _save_seconds = UPLOAD_SECONDS

    def __init__(
        self, output: pathlib.Path, settings: dict[str, Any], stamps: list[source_files.Stamps]
    ):
        paths.drop(output)
        paths.fetch(output, [RECORD, source_files.NAME, 'tokenizer.json'])
        super().__init__(output, settings, stamps)
        for split, shard in self.progress.get('writer', {}).get('open', {}).items():
            paths.fetch(output / split, [f'{shard["name"]}.*'])

    @staticmethod
    def _find_folder(output: pathlib.Path) -> pathlib.Path:
        return paths.local(output)

    def save(self, progress: dict[str, Any]) -> None:
        super().save(progress)
        paths.push(self._output)
        for name in progress.get('writer', {}).get('files', ()):
            (self.folder / name).unlink(missing_ok=True)

    def __enter__(self) -> 'Unfinished':
        if not self.progress:
            paths.remove(self._output)
        super().__enter__()
        paths.push(self._output)  # shows what the folder is
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            (self.folder / RECORD).unlink()
            paths.publish(self.folder, self._output, MARKER)
            (self._output / RECORD).unlink(missing_ok=True)
            paths.remove(self.parts)
        elif (self.folder / RECORD).exists():
            print(f'{self._output} is kept: the same command resumes it', file=sys.stderr)
        else:
            with contextlib.suppress(OSError):  # what ended this run may be the bucket itself
                paths.remove(self._output)


def open_unfinished(
    output: pathlib.Path, settings: dict[str, Any], stamps: list[source_files.Stamps]
) -> Unfinished:
    """Open the unfinished folder of a corpus; the arguments are those of `Unfinished`."""
    kind = UnfinishedInBucket if paths.is_in_bucket(output) else Unfinished
    return kind(output, settings, stamps)


def is_begun(output: pathlib.Path) -> bool:
    """Whether the folder of a corpus is what an interrupted run has left."""
    return paths.is_in_bucket(output) and (output / source_files.NAME).exists()

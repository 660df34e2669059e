"""The folder of an unfinished corpus, from which an interrupted preparation resumes."""

import contextlib
import json
import os
import pathlib
import shutil
import sys
import time
from typing import Any

from bert_jax.corpus import source_files
from bert_jax.errors import UserError, report
from bert_jax.files import write_json
from bert_jax.storage import names, paths
from bert_jax.storage.paths import sync

RECORD = 'progress.json'
SAVE_SECONDS = 30.0  # between saves of progress: the most work that an interruption loses
UPLOAD_SECONDS = 300.0  # the same for a bucket, where each save uploads whole unfinished shards
MARKER = 'manifest.json'
# A file that tells our folder from one that a user named alike, from the first moment on.
OWNER = 'progress.txt'
_OWNER_TEXT = (
    'An unfinished corpus of bert_jax. Rerun the same command to finish it, or remove the folder.\n'
)
PARTS = 'parts'


class Unfinished:
    """`OUTPUT`.partial, renamed to `OUTPUT` when the corpus is finished; a context manager.

    After a failure the folder stays if it has saved progress, and is removed otherwise. Only the
    process that holds the lock of `OUTPUT` may use it.

    Attributes:
        folder: The folder; empty at first, or as an interrupted run left it.
        shared: Path of the folder for other machines.
        parts: Folder in it for files that machines exchange; removed at the end.
        progress: What the interrupted run last passed to `save`; {} if nothing.
    """

    _save_seconds = SAVE_SECONDS

    def __init__(
        self, output: pathlib.Path, settings: dict[str, Any], stamps: list[source_files.Stamps]
    ):
        """Read the progress of an interrupted run.

        Args:
            output: Folder of the finished corpus.
            settings: What determines the corpus and the order of the work, as JSON values.
            stamps: `source_files.stamps` of each source.

        Raises:
            UserError: The folder is not of an unfinished corpus, or the saved progress is of other
                settings or files.
        """
        self.folder = self._find_folder(output)
        self.shared = output if paths.is_in_bucket(output) else self.folder
        self.parts = self.shared / PARTS
        self._check_owner()
        self.progress: dict[str, Any] = {}
        self._output, self._settings = output, json.loads(json.dumps(settings))
        self._stamps = stamps
        self._saved = time.monotonic()
        record = self.folder / RECORD
        if record.exists():
            saved = json.loads(record.read_text(encoding='utf-8'))
            self._check(saved['settings'])
            self.progress = saved['progress']
            _check_names(self.progress.get('writer', {}), record)

    @staticmethod
    def _find_folder(output: pathlib.Path) -> pathlib.Path:
        return output.with_name(output.name + '.partial')

    def _check_owner(self) -> None:
        """Raise UserError if the folder has files of somebody else."""
        is_link = self.folder.is_symlink()
        if not is_link and (not self.folder.exists() or is_owned(self.folder)):
            return
        # A kill may leave a folder without the text of its first file.
        if is_link or not self.folder.is_dir() or _names(self.folder) not in ([], [OWNER]):
            raise UserError(
                f'{self.folder} exists, but is not an unfinished corpus; move it elsewhere: the '
                'corpus is written there first'
            )

    def _check(self, saved_settings: dict[str, Any]) -> None:
        """Raise UserError if the settings or source files differ from the interrupted run's."""
        changes = [
            f'{key} was {saved_settings.get(key)!r} and is {value!r}'
            for key, value in self._settings.items()
            if value != saved_settings.get(key)
        ]
        changes = changes or source_files.compare(source_files.read(self.folder), self._stamps)
        if changes:
            raise UserError(
                f'{paths.name_of(self.folder)} holds an interrupted preparation, but '
                f'{"; ".join(changes[:3])}: undo this to resume, or remove the folder to start over'
            )

    def is_due(self) -> bool:
        """Whether progress should be saved now."""
        return time.monotonic() - self._saved > self._save_seconds

    def save(self, progress: dict[str, Any]) -> None:
        """Save the progress, which must describe files that are already on disk."""
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
            (self.folder / OWNER).write_text(_OWNER_TEXT, encoding='utf-8')
            source_files.write(self.folder, self._stamps)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, error_type: object, error: object, traceback: object) -> None:
        if error is None:
            self._publish()
            paths.remove(self._output / PARTS)
        elif (self.folder / RECORD).exists():
            kept = f'{self.shared} is kept: rerun the same command to resume'
            if error_type is KeyboardInterrupt:
                raise KeyboardInterrupt(kept) from None
            report(kept)
        else:
            self._discard()

    def _publish(self) -> None:
        """Turn the folder into the finished corpus."""
        for path in [*self.folder.rglob('*'), self.folder]:
            if not path.is_relative_to(self.parts):
                sync(path)
        os.rename(self.folder, self._output)
        sync(self._output.parent)
        for path in self._output.glob('progress.*'):
            path.unlink()

    def _discard(self) -> None:
        """Remove the folder after a failure without saved progress."""
        shutil.rmtree(self.folder, ignore_errors=True)


class UnfinishedInBucket(Unfinished):
    """An unfinished corpus in a bucket; the manifest, uploaded last, marks it as complete.

    Files are written on this machine and uploaded whenever progress is saved. Finished shards are
    then removed from this machine.
    """

    _save_seconds = UPLOAD_SECONDS

    def __init__(
        self, output: pathlib.Path, settings: dict[str, Any], stamps: list[source_files.Stamps]
    ):
        paths.drop(output)
        paths.fetch(output, [RECORD, OWNER, source_files.NAME, 'tokenizer.json'], without=[PARTS])
        super().__init__(output, settings, stamps)
        for split, shard in self.progress.get('writer', {}).get('open', {}).items():
            paths.fetch(output / split, [f'{shard["name"]}.*'])

    @staticmethod
    def _find_folder(output: pathlib.Path) -> pathlib.Path:
        return paths.local(output)

    def _check_owner(self) -> None:
        """Do nothing: the folder is a copy in the scratch folder; see `is_begun`."""

    def save(self, progress: dict[str, Any]) -> None:
        super().save(progress)
        paths.push(self._output)
        for name in progress.get('writer', {}).get('files', ()):
            (self.folder / name).unlink(missing_ok=True)

    def __enter__(self) -> 'Unfinished':
        if not self.progress:
            paths.remove(self._output)
        super().__enter__()
        paths.push(self._output)  # marks the folder as an unfinished corpus, see `is_begun`
        return self

    def _publish(self) -> None:
        for name in (RECORD, OWNER):
            (self.folder / name).unlink(missing_ok=True)
        paths.publish(self.folder, self._output, MARKER)
        for name in (RECORD, OWNER):
            (self._output / name).unlink(missing_ok=True)

    def _discard(self) -> None:
        with contextlib.suppress(OSError):  # the bucket itself may have caused the failure
            paths.remove(self._output)


def open_unfinished(
    output: pathlib.Path, settings: dict[str, Any], stamps: list[source_files.Stamps]
) -> Unfinished:
    """Open the folder of an unfinished corpus; for the arguments see `Unfinished`."""
    storage_class = UnfinishedInBucket if paths.is_in_bucket(output) else Unfinished
    return storage_class(output, settings, stamps)


def is_begun(output: pathlib.Path) -> bool:
    """Whether this folder in a bucket was left by an interrupted preparation."""
    return paths.is_in_bucket(output) and is_owned(output)


def is_owned(folder: pathlib.Path) -> bool:
    """Whether a folder is of an unfinished corpus."""
    try:
        return (folder / OWNER).read_bytes() == _OWNER_TEXT.encode()
    except FileNotFoundError:
        return False


def _names(folder: pathlib.Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def _check_names(writer: dict[str, Any], source: object) -> None:
    """Raise UserError if saved progress names files that are not below its folder."""
    shards = [shard for split in writer.get('shards', {}).values() for shard in split]
    for shard in [*shards, *writer.get('open', {}).values()]:
        names.check(shard['name'], source)
    for name in writer.get('files', {}):
        names.check(name, source)

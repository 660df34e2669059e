"""The folder of an unfinished corpus, from which an interrupted preparation resumes."""

import json
import pathlib
import sys
import time

from bert_jax.corpus import source_files
from bert_jax.errors import UserError, report
from bert_jax.files import write_json
from bert_jax.storage import drafts, names, paths
from bert_jax.storage.drafts import Draft
from bert_jax.storage.path import Path
from bert_jax.types import JsonObject

RECORD = 'progress.json'
MARKER = 'manifest.json'
# A file that tells our folder from one that a user named alike, from the first moment on.
OWNER = 'progress.txt'
_OWNER_TEXT = (
    'An unfinished corpus of bert_jax. Rerun the same command to finish it, or remove the folder.\n'
)
PARTS = 'parts'


class Unfinished:
    """The draft of a corpus, which becomes `OUTPUT` when it is finished; a context manager.

    After a failure the draft stays if it has saved progress, and is removed otherwise. Only the
    process that holds the lock of `OUTPUT` may use it.

    Attributes:
        folder: The folder on this machine.
        shared: The folder for other machines.
        parts: Folder in it for files that machines exchange; removed at the end.
        progress: What the interrupted run last passed to `save`; {} if nothing.
    """

    def __init__(
        self,
        draft: Draft,
        settings: JsonObject,
        stamps: list[source_files.Stamps],
        progress: JsonObject,
    ):
        """Hold the parts; `open_unfinished` reads them."""
        self._draft, self._settings, self._stamps = draft, settings, stamps
        self.folder, self.shared, self.progress = draft.folder, draft.shared, progress
        self.parts = draft.shared / PARTS
        self._saved = time.monotonic()

    def is_due(self) -> bool:
        """Whether progress should be saved now."""
        return time.monotonic() - self._saved > self._draft.save_seconds

    def save(self, progress: JsonObject) -> None:
        """Save the progress, which must describe files that are already on disk."""
        record = {'settings': self._settings, 'progress': progress}
        write_json(self.folder / RECORD, record, indent=None)
        self._draft.save(finished=progress.get('writer', {}).get('files', ()))
        self._saved = time.monotonic()

    def __enter__(self) -> 'Unfinished':
        try:
            if not self.progress:
                self._draft.clear()
                (self.folder / OWNER).write_text(_OWNER_TEXT, encoding='utf-8')
                source_files.write(self.folder, self._stamps)
            self._draft.save()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, error_type: object, error: object, traceback: object) -> None:
        if error is None:
            self._draft.publish(MARKER, own=(RECORD, OWNER), without=PARTS)
            paths.remove(self._draft.target / PARTS)
        elif (self.folder / RECORD).exists():
            kept = f'{self.shared} is kept: rerun the same command to resume'
            if error_type is KeyboardInterrupt:
                raise KeyboardInterrupt(kept) from None
            report(kept)
        else:
            self._draft.discard()


def open_unfinished(
    output: Path, settings: JsonObject, stamps: list[source_files.Stamps]
) -> Unfinished:
    """Open the draft of a corpus and read the progress of an interrupted run.

    Args:
        output: Folder of the finished corpus.
        settings: What determines the corpus and the order of the work, as JSON values.
        stamps: `source_files.stamps` of each source.

    Raises:
        UserError: The folder is not of an unfinished corpus, or the saved progress is of other
            settings or files.
    """
    draft, settings = drafts.of(output), json.loads(json.dumps(settings))
    draft.fetch([RECORD, OWNER, source_files.NAME, 'tokenizer.json'], without=[PARTS])
    _check_owner(draft.folder)
    progress: JsonObject = {}
    record = draft.folder / RECORD
    if record.exists():
        saved = json.loads(record.read_text(encoding='utf-8'))
        _check_same(draft.folder, saved['settings'], settings, stamps)
        progress = saved['progress']
        _check_names(progress.get('writer', {}), record)
    for split, shard in progress.get('writer', {}).get('open', {}).items():
        paths.fetch(output / split, [f'{shard["name"]}.*'])
    return Unfinished(draft, settings, stamps, progress)


def _check_owner(folder: pathlib.Path) -> None:
    """Raise UserError if the folder has files of somebody else."""
    is_link = folder.is_symlink()
    if not is_link and (not folder.exists() or is_owned(folder)):
        return
    # A kill may leave a folder without the text of its first file.
    if is_link or not folder.is_dir() or _names(folder) not in ([], [OWNER]):
        raise UserError(
            f'{folder} exists, but is not an unfinished corpus; move it elsewhere: the corpus is '
            'written there first'
        )


def _check_same(
    folder: pathlib.Path,
    saved: JsonObject,
    settings: JsonObject,
    stamps: list[source_files.Stamps],
) -> None:
    """Raise UserError if the settings or source files differ from the interrupted run's."""
    changes = [
        f'{key} was {saved.get(key)!r} and is {value!r}'
        for key, value in settings.items()
        if value != saved.get(key)
    ]
    changes = changes or source_files.compare(source_files.read(folder), stamps)
    if changes:
        raise UserError(
            f'{paths.name_of(folder)} holds an interrupted preparation, but '
            f'{"; ".join(changes[:3])}: undo this to resume, or remove the folder to start over'
        )


def is_owned(folder: Path) -> bool:
    """Whether a folder is of an unfinished corpus."""
    try:
        return (folder / OWNER).read_bytes() == _OWNER_TEXT.encode()
    except FileNotFoundError:
        return False


def _names(folder: pathlib.Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def _check_names(writer: JsonObject, source: object) -> None:
    """Raise UserError if saved progress names files that are not below its folder."""
    shards = [shard for split in writer.get('shards', {}).values() for shard in split]
    for shard in [*shards, *writer.get('open', {}).values()]:
        names.check(shard['name'], source)
    for name in writer.get('files', {}):
        names.check(name, source)

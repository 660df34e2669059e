"""Runs stages of work on many machines: a function of each item writes its results to files.

The last file of an item is its record, in JSON. Finished items are therefore not lost if a worker,
an engine or the main process fails, and processing an item twice does no harm.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import hashlib
import io
import json
import os
import pathlib
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from bert_jax import errors, progress
from bert_jax.corpus import manifest
from bert_jax.corpus.engines import PreparationEngine
from bert_jax.corpus.workers import Amounts
from bert_jax.storage import block_cache, paths
from bert_jax.storage.path import Path
from bert_jax.text.sources import Piece, Source, parse_source
from bert_jax.types import JsonObject

_POLL_SECONDS = 2.0  # between updates of the progress bar
_READERS = 16  # records that are read at the same time


class Work(NamedTuple):
    """What every worker needs to know.

    Attributes:
        folder: Folder of records and other temporary files; the same path on all machines.
        output: Folder of the unfinished corpus; the same path on all machines.
        specs: Specs of the sources.
        max_bad_share: See `sources.Source`.
        held_out_fraction: Expected share of held-out documents.
        amounts: How much is done at once.
        versions: See `manifest.versions`; all machines must have the same versions.
    """

    folder: str
    output: str
    specs: tuple[str, ...]
    max_bad_share: float
    held_out_fraction: float
    amounts: Amounts
    versions: dict[str, str]

    def open_source(self, index: int) -> Source:
        """Return the source with this index, to read its units."""
        source = parse_source(self.specs[index])
        source.max_bad_share = self.max_bad_share
        return source


class Unit(NamedTuple):
    """A unit of the text of a source; see `Source.units`.

    Attributes:
        number: Index among the units of all sources.
        source: Index of its source.
        pieces: Files of the unit, or ranges of files.
    """

    number: int
    source: int
    pieces: tuple[Piece, ...]

    @property
    def name(self) -> str:
        return f'{self.number:07d}'

    @property
    def size(self) -> int:
        """Approximate number of bytes; 0 if unknown."""
        ends = [piece.size if piece.stop is None else piece.stop for piece in self.pieces]
        return sum((end or 0) - piece.start for piece, end in zip(self.pieces, ends, strict=True))


class Item(Protocol):
    """An item of a stage: its name, unique in the stage, and its size in bytes."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...


_Item = TypeVar('_Item', bound=Item)


@dataclasses.dataclass(frozen=True)
class PreparationStage(Generic[_Item]):
    """A function of each item.

    Attributes:
        name: Name of the folder of its records.
        text: Describes it in the progress bar.
        function: Called with `Work`, an item and the path of its record, which exists if the item
            was processed before. Returns the record, as JSON values. Can be pickled.
    """

    name: str
    text: str
    function: Callable[[Work, _Item, Path], JsonObject]

    def folder(self, work: Work) -> Path:
        """The folder of the records, and of other files that the function writes."""
        return paths.path(work.folder) / self.name


def run(
    engine: PreparationEngine, work: Work, stage: PreparationStage[_Item], items: Sequence[_Item]
) -> list[JsonObject]:
    """Perform a stage on the workers and return the records, in order of the items.

    Raises:
        UserError: The function raised an OSError or UserError, or the engine failed.
    """
    folder = stage.folder(work)
    folder.mkdir(parents=True, exist_ok=True)
    with _shown_progress(folder, {item.name: item.size for item in items}, stage.text):
        engine.run(functools.partial(perform, work, stage), items)
    with concurrent.futures.ThreadPoolExecutor(_READERS) as pool:
        records = list(pool.map(read_record, (folder / f'{item.name}.json' for item in items)))
    for item, record in zip(items, records, strict=True):
        if record is None:
            raise errors.UserError(
                f'{folder}/{item.name}.json is missing though the engine has ended: all machines '
                'must see the same files'
            )
        if 'error' in record:
            raise errors.UserError(record['error'])
    return [record for record in records if record is not None]


def perform(work: Work, stage: PreparationStage[_Item], item: _Item) -> None:
    """Perform a stage on an item and write its record; runs on a worker."""
    os.environ.setdefault('TOKENIZERS_PARALLELISM', 'false')
    path = stage.folder(work) / f'{item.name}.json'
    if not paths.parent_exists(path):
        raise errors.UserError(
            f'{socket.gethostname()} does not see {path.parent}: all machines must see the folder '
            'of --output; choose a folder in a bucket or on a shared disk'
        )
    try:
        _check_versions(work)
        record = stage.function(work, item, path)
    except (OSError, errors.UserError) as error:
        # `run` raises this error in the main process; raised here, it would make the engine retry.
        record = {'error': str(error)}
    paths.write(path, json.dumps(record).encode())


def _check_versions(work: Work) -> None:
    """Raise UserError if this machine has other versions, which may tokenize differently."""
    for name, version in manifest.versions().items():
        if version != work.versions[name]:
            raise errors.UserError(
                f'{socket.gethostname()} has {name} {version}, but the machine that runs the '
                f'command has {work.versions[name]}: install the same version on all machines'
            )


def read_record(path: Path) -> JsonObject | None:
    """Return a record; None if it does not exist or cannot be parsed."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        record: JsonObject | None = json.loads(path.read_bytes())
        return record
    return None


def write_array(path: Path, array: np.ndarray) -> str:
    """Write an array as .npy, atomically, and return the SHA-256 of the file."""
    content = io.BytesIO()
    np.save(content, array)
    paths.write(path, content.getvalue())
    return hashlib.sha256(content.getbuffer()).hexdigest()


def read_array(content: bytes) -> np.ndarray:
    """Read the content of an .npy file, also in several threads at once."""
    with block_cache.npy_header_lock:
        return np.asarray(np.load(io.BytesIO(content)))


@contextlib.contextmanager
def scratch_folder(work: Work) -> Iterator[pathlib.Path]:
    """Create an empty folder for files that `paths.publish` moves to the output.

    It is in `work.folder` or its local copy: on a disk a rename suffices, and the folder of a
    killed worker is removed at the end.
    """
    parent = paths.local(work.folder)
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix='.scratch-') as folder:
        yield pathlib.Path(folder)


@contextlib.contextmanager
def _shown_progress(folder: Path, sizes: Mapping[str, int], text: str) -> Iterator[None]:
    """Show a progress bar of the records in a folder while the block runs."""
    is_over = threading.Event()
    bar = progress.bar(desc=text, total=sum(sizes.values()), unit='B', unit_scale=True)

    def watch() -> None:
        while not is_over.wait(_POLL_SECONDS):
            with contextlib.suppress(OSError):
                show()

    def show() -> None:
        # `perform` writes the record NAME.json when the item is done.
        finished = [path.stem for path in folder.iterdir() if path.suffix == '.json']
        bar.set_postfix_str(f'{len(finished):,} of {len(sizes):,}', refresh=False)
        bar.update(sum(sizes.get(name, 0) for name in finished) - bar.n)

    with bar:
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
            show()
        finally:
            is_over.set()
            watcher.join()

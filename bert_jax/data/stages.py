"""Stages of work on many machines: a function on each item, whose results are files.

The result of an item is a record, a JSON file that is written last. So nothing that is finished is
lost with a worker, an engine or the main process, and an item that is done twice does no harm.
"""

import concurrent.futures
import contextlib
import functools
import hashlib
import io
import json
import os
import pathlib
import socket
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from bert_jax import errors, progress
from bert_jax.data import manifest
from bert_jax.data.engines import Engine
from bert_jax.data.sources import Piece
from bert_jax.storage import paths

_POLL_SECONDS = 2.0  # between looks at the records, for the progress bar
_READERS = 16  # records that are read at the same time


class Work(NamedTuple):
    """What every worker needs to know.

    Attributes:
        folder: For records and whatever else is removed at the end, as all machines name it.
        output: The folder of the unfinished corpus, as all machines name it.
        specs: Specs of the sources.
        max_bad_share: See `sources.Source`.
        held_out_fraction: Expected share of held-out documents.
        versions: See `manifest.versions`; those of all machines must be the same.
    """

    folder: str
    output: str
    specs: tuple[str, ...]
    max_bad_share: float
    held_out_fraction: float
    versions: dict[str, str]


class Unit(NamedTuple):
    """A unit of the text of a source; see `Source.units`.

    Attributes:
        number: Index among the units of all sources.
        source: Index of its source.
        pieces: What it consists of.
    """

    number: int
    source: int
    pieces: tuple[Piece, ...]

    @property
    def name(self) -> str:
        return f'{self.number:07d}'

    @property
    def size(self) -> int:
        """About how many bytes it has; 0 if that is unknown."""
        return sum(_size(piece) for piece in self.pieces)


class Item(Protocol):
    """Something to work on: its name among the items of a stage, and its size in bytes."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...


_Item = TypeVar('_Item', bound=Item)
Function = Callable[[Work, _Item, pathlib.Path], dict[str, Any]]


def run(
    engine: Engine, work: Work, function: Function[_Item], items: Sequence[_Item], text: str
) -> list[dict[str, Any]]:
    """Call a function on each item on the workers and return its records, in order.

    Args:
        engine: The engine.
        work: First argument of the function.
        function: Its other arguments are an item and the path of its record, which exists if the
            item was done before. It returns the record, as JSON values.
        items: The items.
        text: Describes the stage in the progress bar.

    Raises:
        UserError: The function raised an OSError or UserError, or the engine failed.
    """
    folder = paths.path(work.folder) / function.__name__
    folder.mkdir(parents=True, exist_ok=True)
    with _shown_progress(folder, {item.name: item.size for item in items}, text):
        engine.run(functools.partial(perform, work, function), items)
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


def perform(work: Work, function: Function[_Item], item: _Item) -> None:
    """Call the function on an item and write its record; runs on a worker."""
    os.environ.setdefault('TOKENIZERS_PARALLELISM', 'false')
    path = paths.path(work.folder) / function.__name__ / f'{item.name}.json'
    if not paths.is_in_bucket(path) and not path.parent.is_dir():
        raise errors.UserError(
            f'{socket.gethostname()} does not see {path.parent}: all machines must see the folder '
            'of --output; name one in a bucket or on a shared disk'
        )
    try:
        _check_versions(work)
        record = function(work, item, path)
    except (OSError, errors.UserError) as error:
        # Not a failure of the worker: another one would meet it too.
        record = {'error': str(error)}
    write_bytes(path, json.dumps(record).encode())


def _check_versions(work: Work) -> None:
    """Raise UserError if this machine might encode a text in another way."""
    for name, version in manifest.versions().items():
        if version != work.versions[name]:
            raise errors.UserError(
                f'{socket.gethostname()} has {name} {version}, but the machine of the command has '
                f'{work.versions[name]}: install the same version on all machines'
            )


def read_record(path: pathlib.Path) -> dict[str, Any] | None:
    """Return a record; None if there is none, or if it cannot be parsed."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        return json.loads(path.read_bytes())
    return None


def write_bytes(path: pathlib.Path, content: bytes) -> None:
    """Write a file at once: others see all of it or nothing."""
    if paths.is_in_bucket(path):
        path.write_bytes(content)
        return
    partial = path.with_name(f'{path.name}.{uuid.uuid4().hex}.partial')
    with open(partial, 'wb') as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def write_array(path: pathlib.Path, array: np.ndarray) -> str:
    """Write an array as .npy, at once, and return the SHA-256 of the file."""
    content = io.BytesIO()
    np.save(content, array)
    write_bytes(path, content.getvalue())
    return hashlib.sha256(content.getbuffer()).hexdigest()


@contextlib.contextmanager
def scratch_folder(work: Work) -> Iterator[pathlib.Path]:
    """Give an empty folder for files that `paths.publish` can give their names in the output.

    On a disk it is next to the output, where the folder of a killed worker is removed at the end.
    """
    place = None if paths.is_in_bucket(work.folder) else work.folder
    with tempfile.TemporaryDirectory(dir=place, prefix='.scratch-') as folder:
        yield pathlib.Path(folder)


@contextlib.contextmanager
def _shown_progress(folder: pathlib.Path, sizes: Mapping[str, int], text: str) -> Iterator[None]:
    """Show a progress bar of the records in a folder."""
    is_over = threading.Event()
    bar = progress.bar(desc=text, total=sum(sizes.values()), unit='B', unit_scale=True)

    def watch() -> None:
        while not is_over.wait(_POLL_SECONDS):
            with contextlib.suppress(OSError):
                show()

    def show() -> None:
        done = [path.stem for path in folder.iterdir() if path.suffix == '.json']
        bar.set_postfix_str(f'{len(done):,} of {len(sizes):,}', refresh=False)
        bar.update(sum(sizes.get(name, 0) for name in done) - bar.n)

    with bar:
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
            show()
        finally:
            is_over.set()
            watcher.join()


def _size(piece: Piece) -> int:
    end = piece.stop if piece.stop is not None else piece.size
    return (end or 0) - piece.start

"""Files and folders by name, on disks and in buckets.

Files that are written step by step or mapped into memory are in a *local copy*: on a disk, the file
or folder itself; for a bucket, a copy in the scratch folder of this process. `fetch` downloads it
and `push` uploads changes. `publish` completes it: on a disk by a rename, in a bucket by uploading
a marker, a file of the folder, last.
"""

import concurrent.futures
import os
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bert_jax.errors import UserError, unknown
from bert_jax.storage import temporary
from bert_jax.storage.disk_folder import DiskFolder
from bert_jax.storage.path import BucketError, Path, Status, is_on_hub

if TYPE_CHECKING:
    from bert_jax.storage.bucket_folder import BucketFolder
    from bert_jax.storage.folder import Folder

_REQUESTS = 8  # at a time


class CacheSettings(NamedTuple):
    """The folder that caches blocks of arrays in buckets, and the total size of its files."""

    folder: str = '~/.cache/bert_jax/blocks'
    max_bytes: int = 50 * 10**9


DEFAULT_CACHE = CacheSettings()


def path(name: str | os.PathLike[str]) -> Path:
    """Return the path of a file or folder, on a disk or in a bucket; '~' is expanded.

    Raises:
        UserError: The name is a URL of an unsupported kind, names no bucket, or is one of the
            Hugging Face Hub, which `bring` downloads.
    """
    found = _find(name)
    return found.path if isinstance(found, DiskFolder) else found


def bring(name: str | os.PathLike[str], with_weights: bool = True) -> Path:
    """Return the path of what is read: of a name of the Hugging Face Hub, its copy in the cache.

    Args:
        name: The file or folder.
        with_weights: Whether the weights of a model of the Hub are needed.

    Raises:
        UserError: As for `path`, or a name of the Hub cannot be downloaded.
    """
    if not is_on_hub(name):
        return path(name)
    from bert_jax.storage import hub

    return hub.fetch(os.fspath(name), with_weights)


def lasting_name(name: str) -> str:
    """Return a name as it is given, or the folder of a copy of the Hub, which stays the same."""
    return str(bring(name)) if is_on_hub(name) else name


def on_disk(name: str | os.PathLike[str]) -> pathlib.Path:
    """Return the path of a file or folder; raise UserError if it is in a bucket."""
    if is_in_bucket(name):
        raise UserError(
            f'{os.fspath(name)} is in a bucket, which is not supported here: name a path on a disk'
        )
    return local(name)


def local(name: str | os.PathLike[str]) -> pathlib.Path:
    """Return the local copy of a file or folder, which may not exist yet.

    Raises:
        UserError: The name in the bucket cannot be the name of a file below the scratch folder.
    """
    return _find(name).local()


def name_of(copy: Path) -> str:
    """Return the name of the file or folder that has this local copy."""
    if temporary.is_scratch(copy):
        return copy.relative_to(temporary.scratch()).as_posix().replace('/', '://', 1)
    return str(copy)


def fetch(
    name: str | os.PathLike[str], patterns: Sequence[str] = ('*',), without: Sequence[str] = ()
) -> pathlib.Path:
    """Bring the local copy of a file or folder up to date and return its path.

    Args:
        name: The file or folder; it need not exist.
        patterns: Patterns of the names of files to download from a folder in a bucket.
        without: Patterns of the names of folders in it whose files are not downloaded.

    Raises:
        UserError: A name in the bucket is not of a file below the folder, or also of a folder.
    """
    source = _find(name)
    source.fetch(patterns, without)
    return source.local()


def push(name: str | os.PathLike[str], without: Sequence[str] = ()) -> None:
    """Upload the files of a local copy that have changed since the last upload or download.

    They are uploaded in the order in which they were written, so that after an interruption the
    bucket has a state that this machine had before.

    Args:
        name: The folder in the bucket; does nothing for a folder on a disk.
        without: Patterns of the names of folders in it that are left out.
    """
    _find(name).push(without)


def upload(folder: pathlib.Path, target: Path) -> None:
    """Upload all files of a folder on this machine to one in a bucket, several at a time."""
    from bert_jax.storage.bucket_folder import BucketFolder

    BucketFolder(target).upload_files(folder)


def sizes(folder: Path, names: Iterable[str]) -> dict[str, int]:
    """Return name → bytes for the named files of a folder that exist."""
    return _find(folder).sizes(names)


def statuses(names: Iterable[str]) -> dict[str, Status]:
    """Return name → size and time for the named files that exist."""

    def status(name: str) -> Status | None:
        try:
            return Status.of(path(name) if is_in_bucket(name) else pathlib.Path(name))
        except BucketError:
            raise
        except OSError:
            return None

    names = list(names)
    if any(map(is_in_bucket, names)):
        with concurrent.futures.ThreadPoolExecutor(_REQUESTS) as pool:
            results = list(pool.map(status, names))
    else:
        results = list(map(status, names))
    return {name: result for name, result in zip(names, results, strict=True) if result}


def total_bytes(folder: Path) -> int:
    """Return the size of all files below a folder."""
    return _find(folder).total_bytes()


def is_in_bucket(name: str | os.PathLike[str]) -> bool:
    """Whether a file or folder is in a bucket."""
    return not _find(name).is_on_disk


def renames(name: str | os.PathLike[str]) -> bool:
    """Whether a folder gets its name by a rename, so that two processes cannot mix their files."""
    return _find(name).is_on_disk


def is_stream(name: str | os.PathLike[str]) -> bool:
    """Whether a file is written as it is, without a temporary name: a device or a pipe.

    /dev/stdout may lead to a file that the shell has opened; renaming would replace the device.
    """
    found = path(name)
    if is_in_bucket(found) or found.is_dir():
        return False
    is_of_process = str(found).startswith(('/dev/std', '/dev/fd/'))
    return is_of_process or (found.exists() and not found.is_file())


def publish(partial: pathlib.Path, name: str | os.PathLike[str], marker: str = '') -> None:
    """Give a finished file or folder its name.

    Args:
        partial: The file or folder, on this machine; it is gone afterwards.
        name: Its name, on the same disk or in a bucket; a folder must not exist.
        marker: Name of the file that marks the folder as complete in a bucket; without this file,
            the file that was written last.

    Raises:
        UserError: Another process completed the folder, or has taken over a lock above it.
        OSError: It cannot be written.
    """
    _find(name).publish(partial, marker)


def replace(partial: pathlib.Path, name: str | os.PathLike[str], marker: str) -> None:
    """Give a finished folder its name, in place of a folder that has it; see `publish`.

    On a disk, a kill leaves one of the two folders at the name.
    """
    _find(name).replace(partial, marker)


def finished(folder: Path, marker: str) -> Sequence[Path]:
    """Return the complete folders in a folder: in a bucket, those with their marker."""
    return _find(folder).finished(marker)


def parent_exists(name: str | os.PathLike[str]) -> bool:
    """Whether the folder of a file exists, so that the file can be created; true in a bucket."""
    return _find(name).has_parent()


def write(target: Path, content: bytes) -> None:
    """Write a file atomically: other processes see all of it or nothing."""
    _find(target).write(content)


def check_writable(folder: Path) -> None:
    """Raise OSError if a folder on a disk cannot be created or written; a bucket is not asked."""
    _find(folder).check_writable()


def leftovers(folder: Path, marker: str) -> Sequence[Path]:
    """Return the unfinished folders that killed processes have left in a folder.

    Their names are numbers, followed on a disk by '.unfinished'; in a bucket, they have no marker.
    Other files and folders there are not ours.
    """
    return _find(folder).leftovers(marker)


def retract(folder: Path, marker: str) -> None:
    """Remove a complete folder; a kill leaves it complete or as one of its `leftovers`."""
    _find(folder).retract(marker)


def remove(folder: Path) -> None:
    """Remove an unfinished folder, if it exists."""
    _find(folder).remove()


def drop(name: str | os.PathLike[str]) -> None:
    """Remove the local copy of a file or folder in a bucket."""
    _find(name).drop()


def read_up_to(name: str | os.PathLike[str], limit: int) -> bytes | None:
    """Read a file; None if it has more bytes than `limit`, OSError if it is not a file."""
    return _find(name).read_up_to(limit)


def open_binary(name: str | os.PathLike[str]) -> Any:
    """Open a file to read its bytes; files in buckets are read in ranges."""
    return _find(name).open_bytes()


def open_arrow(name: str) -> Any:
    """Open a file for pyarrow; files on disks are read without Python code."""
    return _find(name).open_arrow()


def open_arrays(files: Mapping[Any, str], cache: CacheSettings) -> list[Any]:
    """Open one-dimensional .npy files: as memory maps on a disk, as BlockArrays in a bucket.

    Args:
        files: File → a text that identifies its contents among those at this path. A corpus may
            claim the digest of another: with the path, it only ever reads its own blocks.
        cache: The cache of blocks.
    """
    if not any(map(is_in_bucket, files)):
        return [np.load(path, mmap_mode='r') for path in files]
    from bert_jax.storage import block_cache

    return block_cache.open_arrays(files, *cache)


def glob(pattern: str) -> list[str] | None:
    """Return the files in a bucket that match a pattern, sorted; None for a path on a disk."""
    return _find(pattern).matching()


def folder(name: str | os.PathLike[str]) -> 'Folder':
    """Return what disks and buckets do in different ways, for a file or folder."""
    return _find(name)


def _find(name: str | os.PathLike[str]) -> 'DiskFolder | BucketFolder':
    scheme, separator, rest = os.fspath(name).partition('://')
    if not separator or not re.fullmatch('[A-Za-z][A-Za-z0-9+.-]*', scheme):
        return DiskFolder(pathlib.Path(name).expanduser())
    if is_on_hub(name):
        raise UserError(
            f'{os.fspath(name)!r} is on the Hugging Face Hub, from which models and files of data '
            'sets are read (docs/hub.md); name a path on a disk or in a bucket here, and upload '
            'a model with export --push'
        )
    from bert_jax.storage.bucket import PACKAGES
    from bert_jax.storage.bucket_folder import BucketFolder

    if isinstance(name, BucketFolder):
        return name
    if scheme not in PACKAGES:
        raise unknown(f'kind of storage in {os.fspath(name)!r}:', scheme, PACKAGES)
    if not rest.strip('/'):
        raise UserError(f'{os.fspath(name)!r} names no bucket')
    return BucketFolder(os.fspath(name))

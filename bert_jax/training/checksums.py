"""The digests of the files of a folder: that they are complete, and still as they were written."""

import hashlib
import os
import pathlib
import re
from typing import BinaryIO

from bert_jax.training import page_cache

NAME = 'manifest.sha256'


def write(folder: pathlib.Path):
    """Writes the digests of all other files, when each of them is safely on the disk; none of them
    stays in the page cache.
    """
    lines = []
    for name in sorted(_files(folder)):
        sync(folder / name)
        with page_cache.ReadOnce(folder / name) as file:
            lines.append(f'{_digest(file)}  {name}\n')
    (folder / NAME).write_text(''.join(lines), encoding='utf-8')
    sync(folder / NAME)


def find_damage(folder: pathlib.Path, files: list[str] | None = None) -> str | None:
    """What is wrong with a folder, naming the file; None if all (or `files`) are as written."""
    try:
        digests, present = _read(folder), _files(folder)
        for name in files or sorted(digests.keys() | present):
            if name not in present:
                return f'{name} is missing'
            if name not in digests:
                return f'{name} is not in {NAME}'
            with open(folder / name, 'rb') as file:  # soon read again, to be restored
                if _digest(file) != digests[name]:
                    return f'{name} is not as {NAME} says'
    except OSError as error:
        return f'{error.filename} cannot be read: {error.strerror}'
    except ValueError:
        return f'{NAME} is not as it was written'
    return None


def sync(path: pathlib.Path):
    """Returns when a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(folder: pathlib.Path) -> dict[str, str]:
    """File name → digest. Raises ValueError if a line is not of that form."""
    text = (folder / NAME).read_text(encoding='utf-8', errors='replace')
    lines = [re.fullmatch('([0-9a-f]{64})  (.+)\n', line) for line in text.splitlines(True)]
    if not all(lines):
        raise ValueError
    return {line[2]: line[1] for line in lines}


def _files(folder: pathlib.Path) -> set[str]:
    """Paths of all files but the manifest, relative to the folder."""
    files = (f.relative_to(folder).as_posix() for f in folder.rglob('*') if not f.is_dir())
    return set(files) - {NAME}


def _digest(file: BinaryIO) -> str:
    return hashlib.file_digest(file, 'sha256').hexdigest()

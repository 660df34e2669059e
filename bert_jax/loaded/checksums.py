"""SHA-256 digests of the files in a folder, which show that it is complete and unchanged."""

import pathlib
import re
from collections.abc import Mapping
from types import MappingProxyType

from bert_jax.errors import UserError
from bert_jax.files import read_text, sha256
from bert_jax.storage.disk_folder import sync

NAME = 'manifest.sha256'
ADDED = 'added'  # folder that may be added later, with its own manifest


def write(folder: pathlib.Path, elsewhere: Mapping[str, str] = MappingProxyType({})) -> None:
    """Write the manifest of a folder once all its other files are safely on disk.

    Args:
        folder: the folder.
        elsewhere: digests, by name, of files that belong to the folder but are stored elsewhere.
    """
    for path in [*(folder / name for name in _files(folder)), folder, *folder.rglob('*/')]:
        sync(path)
    manifest = {**digests(folder), **elsewhere}
    lines = (f'{manifest[name]}  {name}\n' for name in sorted(manifest))
    (folder / NAME).write_text(''.join(lines), encoding='utf-8')
    sync(folder / NAME)


def digests(folder: pathlib.Path) -> dict[str, str]:
    """Compute the SHA-256 of every file that belongs in the manifest, by name."""
    return {name: sha256(folder / name) for name in _files(folder)}


def find_damage(folder: pathlib.Path, files: list[str] | None = None) -> str | None:
    """Compare a folder with its manifest.

    Args:
        folder: folder with a manifest.
        files: names of the files to check; by default all of them.

    Returns:
        What is wrong, with the name of the file, or None if all files are as they were written.
    """
    try:
        expected, present = _read(folder), _files(folder)
        for name in files or sorted(expected.keys() | present):
            if name not in present:
                return f'{name} is missing'
            if name not in expected:
                return f'{name} is not in {NAME}'
            if sha256(folder / name) != expected[name]:
                return f'{name} does not match its digest in {NAME}'
        if (folder / ADDED).is_dir() and (damage := find_damage(folder / ADDED)):
            return f'{ADDED}/{damage}'
    except OSError as error:
        return f'{error.filename} cannot be read: {error.strerror}'
    except UserError as error:
        return str(error)
    except ValueError:
        return f'{NAME} is malformed'
    return None


def _read(folder: pathlib.Path) -> dict[str, str]:
    """Read file name → digest; raise ValueError for a malformed line."""
    manifest = {}
    *lines, rest = read_text(folder / NAME, errors='replace').split('\n')
    if rest:
        raise ValueError(rest)
    for line in lines:
        fields = re.fullmatch('([0-9a-f]{64})  (.+)', line)
        if not fields:
            raise ValueError(line)
        manifest[fields[2]] = fields[1]
    return manifest


def _files(folder: pathlib.Path) -> set[str]:
    """Paths of all files except the manifest and files added later, relative to the folder."""
    files = (path.relative_to(folder) for path in folder.rglob('*') if path.is_file())
    return {path.as_posix() for path in files if not path.parts[0].startswith(ADDED)} - {NAME}

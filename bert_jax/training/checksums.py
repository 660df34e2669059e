"""SHA-256 digests of the files in a folder, which show that it is complete and unchanged."""

import pathlib
import re

from bert_jax.files import sha256, sync

NAME = 'manifest.sha256'
ADDED = 'added'  # folder that may be added later, with a manifest of its own


def write(folder: pathlib.Path) -> None:
    """Write the manifest of all other files, after each of them is safely on disk."""
    lines = []
    for name in sorted(_files(folder)):
        sync(folder / name)
        lines.append(f'{sha256(folder / name)}  {name}\n')
    for path in [folder, *folder.rglob('*/')]:
        sync(path)
    (folder / NAME).write_text(''.join(lines), encoding='utf-8')
    sync(folder / NAME)


def find_damage(folder: pathlib.Path, files: list[str] | None = None) -> str | None:
    """Compare a folder with its manifest.

    Args:
      folder: folder with a manifest.
      files: names of the files to check; by default all of them.

    Returns:
      What is wrong, with the name of the file, or None if everything is as it was written.
    """
    try:
        digests, present = _read(folder), _files(folder)
        for name in files or sorted(digests.keys() | present):
            if name not in present:
                return f'{name} is missing'
            if name not in digests:
                return f'{name} is not in {NAME}'
            if sha256(folder / name) != digests[name]:
                return f'{name} does not match its digest in {NAME}'
        if (folder / ADDED).is_dir() and (damage := find_damage(folder / ADDED)):
            return f'{ADDED}/{damage}'
    except OSError as error:
        return f'{error.filename} cannot be read: {error.strerror}'
    except ValueError:
        return f'{NAME} is malformed'
    return None


def _read(folder: pathlib.Path) -> dict[str, str]:
    """Read file name → digest; raise ValueError for a malformed line."""
    digests = {}
    text = (folder / NAME).read_text(encoding='utf-8', errors='replace')
    for line in text.splitlines(keepends=True):
        fields = re.fullmatch('([0-9a-f]{64})  (.+)\n', line)
        if not fields:
            raise ValueError(line)
        digests[fields[2]] = fields[1]
    return digests


def _files(folder: pathlib.Path) -> set[str]:
    """Paths of all files except the manifest and what was added later, relative to the folder."""
    files = (path.relative_to(folder) for path in folder.rglob('*') if path.is_file())
    return {path.as_posix() for path in files if not path.parts[0].startswith(ADDED)} - {NAME}

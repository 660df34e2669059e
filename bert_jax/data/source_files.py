"""Sizes and modification times of the files of sources, to notice changes."""

import json
import pathlib
import sys
from collections.abc import Sequence
from typing import TypeAlias

from bert_jax.data.corpus import read_manifest
from bert_jax.data.sources import Source, open_source
from bert_jax.errors import UserError
from bert_jax.files import write_json
from bert_jax.storage import paths

NAME = 'source_files.json'  # in the folder of a corpus; not hashed, because times differ by machine

Stamps: TypeAlias = dict[str, list[int]]  # path → bytes, modification time in ns


def stamps(sources: Sequence[Source]) -> list[Stamps]:
    """Return the sizes and times of the files of each source; {} for one without files."""
    return [_stamps(source) for source in sources]


def _stamps(source: Source) -> Stamps:
    found = paths.statuses(source.identities.values())
    return {path: [status.st_size, status.st_mtime_ns] for path, status in found.items()}


def compare(before: Sequence[Stamps], now: Sequence[Stamps]) -> list[str]:
    """Return what happened to each file that is not as before, such as 'a.txt has changed'."""
    found = []
    for old, new in zip(before, now, strict=True):
        found += [f'{path} is gone' for path in old if path not in new]
        found += [f'{path} is new' for path in new if path not in old]
        found += [f'{path} has changed' for path in old if path in new and old[path] != new[path]]
    return found


def write(folder: pathlib.Path, found: Sequence[Stamps]) -> None:
    """Record the files of the sources in the folder of their corpus."""
    write_json(folder / NAME, found, indent=None)


def read(folder: pathlib.Path) -> list[Stamps]:
    """Return what `write` recorded."""
    return json.loads((folder / NAME).read_text(encoding='utf-8'))


def changes(folder: pathlib.Path) -> list[str]:
    """Return what happened to the files of the sources since this corpus was prepared.

    Sources without files on this machine are left out.
    """
    if not (folder / NAME).exists():
        return []
    specs = read_manifest(folder)['made_from']['sources']
    before, now = read(folder), []
    for spec, old in zip(specs, before, strict=True):
        try:
            now.append(_stamps(open_source(spec)) if old else {})
        except UserError:
            now.append(old)
    return compare(before, now)


def report_changes(folder: pathlib.Path) -> None:
    """Print a line if files of the sources have changed since the corpus was prepared."""
    if found := changes(folder):
        more = f' and {len(found) - 3:,} more' if len(found) > 3 else ''
        print(
            f'warning: {folder} was prepared before these changes: {"; ".join(found[:3])}{more}. '
            'It is used as it is; prepare another corpus to include them',
            file=sys.stderr,
        )

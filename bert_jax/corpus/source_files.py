"""Detects changes of source files by their sizes and modification times."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from bert_jax import limits, schema
from bert_jax.corpus.corpus import read_manifest
from bert_jax.errors import UserError, warn
from bert_jax.files import read_json, write_json
from bert_jax.storage import paths, trust
from bert_jax.storage.path import Path

if TYPE_CHECKING:
    from bert_jax.text.sources import Source

NAME = 'source_files.json'  # in the folder of a corpus; not hashed, because times differ by machine

Stamps: TypeAlias = Mapping[str, tuple[int, ...]]  # path → bytes, modification time in ns


def stamps(source: 'Source') -> Stamps:
    """Return the size and time of each file of a source; {} for a source without a location.

    The files of such a source are a part of this package, and have the time of its installation.
    """
    if not source.where:
        return {}
    statuses = paths.statuses(source.identities.values())
    return {path: (status.st_size, status.st_mtime_ns) for path, status in statuses.items()}


def compare(before: Sequence[Stamps], now: Sequence[Stamps]) -> list[str]:
    """Return a description of each difference, such as 'a.txt has changed'."""
    lines = []
    for old, new in zip(before, now, strict=True):
        lines += [f'{path} is gone' for path in old if path not in new]
        lines += [f'{path} is new' for path in new if path not in old]
        lines += [f'{path} has changed' for path in old if path in new and old[path] != new[path]]
    return lines


def write(folder: Path, source_stamps: Sequence[Stamps]) -> None:
    """Record the stamps of the sources in the folder of the corpus."""
    write_json(folder / NAME, source_stamps, indent=None)


def read(folder: Path) -> list[Stamps]:
    """Return the stamps that `write` recorded. Raises UserError if they are damaged."""
    path = folder / NAME
    value = read_json(path, list, limit=limits.LARGE_FILE)
    return list(schema.convert(tuple[dict[str, tuple[int, ...]], ...], value, path))


def changes(folder: Path) -> list[str]:
    """Return how the source files changed since this corpus was prepared; see `compare`.

    Sources without files on this machine, or in buckets that the user did not name, are left out.
    """
    path = folder / NAME
    before = read(folder) if path.exists() else []
    if not any(before):
        return []
    from bert_jax.text.sources import open_source  # preparing a corpus and these changes need it

    specs = read_manifest(folder)['made_from']['sources']
    if len(specs) != len(before):
        raise UserError(f'{path} has {len(before)} sources, but the corpus {len(specs)}: remove it')
    now = []
    for spec, old in zip(specs, before, strict=True):
        location = spec.partition(':')[2].partition(';')[0]
        try:
            can_look = old and trust.is_trusted(location, path)
            now.append(stamps(open_source(spec)) if can_look else old)
        except UserError:
            now.append(old)
    return compare(before, now)


def report_changes(folder: Path) -> None:
    """Print a warning if source files have changed since the corpus was prepared."""
    if differences := changes(folder):
        more = f' and {len(differences) - 3:,} more' if len(differences) > 3 else ''
        warn(
            f'{folder} was prepared before these changes: {"; ".join(differences[:3])}'
            f'{more}. The corpus is used unchanged; prepare another corpus to include the changes'
        )

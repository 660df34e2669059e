"""What to say of a glob that matches no file: what is wrong, and what to write instead."""

import collections
import glob
import os

from bert_jax.errors import nearest
from bert_jax.storage import paths, wrong_paths
from bert_jax.text import text_files


def explain(pattern: str) -> str:
    """Return what is wrong with a glob that matches no file, and what to do."""
    hint = '; in a glob, [ ] is a set of characters: write [[] for a bracket' * ('[' in pattern)
    path = paths.path(pattern)
    if path.is_dir():
        return f'{pattern!r} is a folder: write {pattern.rstrip("/")}/* for its files'
    if glob.has_magic(pattern):
        return f'no file matches {pattern!r}{_remedy(pattern, str(path))}{hint}'
    if path.exists():
        return f'{pattern!r} is not a file; files are read more than once'
    return f'{pattern!r} does not exist{wrong_paths.suggest(path)}'


def _remedy(pattern: str, path: str) -> str:
    """Return what a glob could have meant: a folder or an ending that exists."""
    (folder, name), (place, _) = os.path.split(pattern), os.path.split(path)
    if glob.has_magic(folder):
        return ''
    if not paths.path(place).is_dir():
        return f'; there is no folder {folder!r}{wrong_paths.suggest(place)}'
    where = folder or 'this folder'
    if text_files.matching_files(os.path.join(place, '*', name)):
        return f'; folders in {where} have such files: write {os.path.join(folder, "**", name)}'
    files = text_files.matching_files(os.path.join(place, '*'))
    if not files:
        return f'; {where} has no files'
    endings = collections.Counter(os.path.splitext(file)[1] for file in files)
    ending = nearest(os.path.splitext(name)[1], endings) or endings.most_common(1)[0][0]
    counts = ', '.join(f'{number:,} *{name}' for name, number in endings.most_common(3))
    return f'; {where} has {counts}: write {os.path.join(folder, f"*{ending}")}'

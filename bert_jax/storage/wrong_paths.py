"""What to say of a path that does not exist, or that holds something else than expected."""

import collections
import contextlib
import glob
import itertools
import os
import pathlib
from collections.abc import Callable, Sequence

from bert_jax.errors import nearest
from bert_jax.storage import hub, paths

_MOST_NAMES = 10_000  # in folders below, compared with a mistyped name
# Files that a folder of a kind has → the kind. The first match counts.
_KINDS = {
    ('manifest.json', 'DATASHEET.md'): 'a corpus of bert_jax.prepare',
    ('progress.txt',): 'an unfinished corpus of bert_jax.prepare',
    ('checkpoints',): 'a run',
    ('signature.json', 'load.py'): 'an export of bert_jax.export --format',
    ('metrics.json', 'predictions.jsonl'): 'scores of bert_jax.evaluate',
    ('results.json', 'README.md'): 'results of bert_jax.analyze, or of a run without checkpoints',
    ('config.json', 'model.safetensors'): 'a Hugging Face folder with a model',
    ('tokenizer.json',): 'a tokenizer',
    ('vocab.txt',): 'a tokenizer',
}


def suggest(name: str | os.PathLike[str], is_folder: bool = False) -> str:
    """Return '; did you mean PATH?' for a path that does not exist; '' if none is like it.

    Args:
        name: the path. Its last part is also looked for one folder below: `mine` is like
            `runs/mine`.
        is_folder: whether the path must be that of a folder.
    """
    if paths.is_in_bucket(name):
        return ''
    found = _find_similar(pathlib.Path(name).expanduser(), is_folder)
    return f'; did you mean {str(found)!r}?' if found else ''


def model_name(name: str | os.PathLike[str]) -> str:
    """Return hf://ORG/NAME for a name ORG/NAME that is no folder and like none, else the name."""
    own = hub.model_name(name)
    return os.fspath(name) if own != os.fspath(name) and suggest(name, is_folder=True) else own


def explain_glob(pattern: str, matching: Callable[[str], Sequence[str]]) -> str:
    """Return what is wrong with a glob that matches no file, and what to write instead.

    Args:
        pattern: The glob.
        matching: Returns the files that a glob matches.
    """
    hint = '; in a glob, [ ] is a set of characters: write [[] for a bracket' * ('[' in pattern)
    path = paths.path(pattern)
    if path.is_dir():
        return f'{pattern!r} is a folder: write {pattern.rstrip("/")}/* for its files'
    if glob.has_magic(pattern):
        return f'no file matches {pattern!r}{_remedy(pattern, str(path), matching)}{hint}'
    if path.exists():
        return f'{pattern!r} is not a file; files are read more than once'
    return f'{pattern!r} does not exist{suggest(path)}'


def _remedy(pattern: str, path: str, matching: Callable[[str], Sequence[str]]) -> str:
    """Return what a glob could have meant: a folder or an ending that exists."""
    (folder, name), (place, _) = os.path.split(pattern), os.path.split(path)
    if glob.has_magic(folder):
        return ''
    if not paths.path(place).is_dir():
        return f'; there is no folder {folder!r}{suggest(place)}'
    where = folder or 'this folder'
    if matching(os.path.join(place, '*', name)):
        return f'; folders in {where} have such files: write {os.path.join(folder, "**", name)}'
    files = matching(os.path.join(place, '*'))
    if not files:
        return f'; {where} has no files'
    endings = collections.Counter(os.path.splitext(file)[1] for file in files)
    ending = nearest(os.path.splitext(name)[1], endings) or endings.most_common(1)[0][0]
    counts = ', '.join(f'{number:,} *{name}' for name, number in endings.most_common(3))
    return f'; {where} has {counts}: write {os.path.join(folder, f"*{ending}")}'


def _find_similar(path: pathlib.Path, is_folder: bool) -> pathlib.Path | None:
    """Return the existing path that is most like a path, or None."""
    if path.exists():
        return path
    folder = _find_similar(path.parent, is_folder=True)
    for pattern in ('[!.]*', '[!.]*/[!.]*'):
        found: dict[str, pathlib.Path] = {}
        with contextlib.suppress(OSError):  # a folder that may not be read
            children = folder.glob(pattern) if folder else ()
            for child in itertools.islice(children, _MOST_NAMES):
                if not is_folder or child.is_dir():
                    found.setdefault(child.name, child)
        if close := nearest(path.name, found):
            return found[close]
    return None


def describe(name: str | os.PathLike[str]) -> str:
    """Return what kind of folder a path is, such as 'a tokenizer'; '' if that is not known."""
    folder = paths.path(name)
    for files, kind in _KINDS.items():
        if all((folder / file).exists() for file in files):
            return kind
    return ''

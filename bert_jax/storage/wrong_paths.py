"""What to say of a path that does not exist, or that holds something else than expected."""

import contextlib
import itertools
import os
import pathlib

from bert_jax.errors import nearest
from bert_jax.storage import paths

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

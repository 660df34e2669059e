"""Writes a page as one HTML file, which needs no other file and no network."""

import base64
import html
import json
import os
import pathlib
import urllib.parse

from bert_jax import errors, files
from bert_jax.page.contents import Contents
from bert_jax.storage import outputs

ASSETS = pathlib.Path(__file__).parent / 'assets'
# Concatenated in this order: a file may use names of the files before it.
SCRIPTS = (
    'tensors.js',
    'numerics.js',
    'normalization.js',
    'wordpiece.js',
    'byte_bpe.js',
    'tokenizer.js',
    'encoder.js',
    'heads.js',
    'model.js',
    'words.js',
    'analysis.js',
    'crf.js',
    'predictions.js',
    'spans.js',
    'unmasking.js',
    'elements.js',
    'charts.js',
    'views/masked.js',
    'views/unmasking.js',
    'views/replaced.js',
    'views/attention.js',
    'views/occurrences.js',
    'views/predictions.js',
    'main.js',
)


def write(contents: Contents, output: str | os.PathLike[str], overwrite: bool = False) -> int:
    """Write the page; an interrupted call leaves no file of this name.

    Args:
        contents: as collected by contents.py.
        output: HTML file in an existing folder.
        overwrite: replace an existing file.

    Returns:
        Size of the file in bytes.

    Raises:
        UserError: the file exists, or cannot be written.
    """
    path = pathlib.Path(output)
    outputs.check_file(path, overwrite)
    with errors.writing(f'--output={path}'):
        files.write_text(path, render(contents))
    return path.stat().st_size


def render(contents: Contents) -> str:
    """The page as text."""
    page = (ASSETS / 'page.html').read_text(encoding='utf-8')
    parts = {
        'title': html.escape(str(contents.description['name'])),
        'style': (ASSETS / 'style.css').read_text(encoding='utf-8'),
        'description': _embedded_json(contents.description),
        'weights': base64.b64encode(contents.data).decode('ascii'),
        'code': code(),
    }
    for name, text in parts.items():
        page = page.replace(f'<!-- {name} -->', text)
    return page


def code() -> str:
    """All scripts of the page."""
    return '\n'.join((ASSETS / name).read_text(encoding='utf-8') for name in SCRIPTS)


def _embedded_json(value: object) -> str:
    """JSON that is safe inside of an HTML script element."""
    text = json.dumps(value, ensure_ascii=False, separators=(',', ':'))
    return text.replace('<', '\\u003c')


def link_from_card(page: pathlib.Path, folder: pathlib.Path) -> bool:
    """Link a page inside the folder of a run from the run's card; return whether it was added."""
    card, target = folder / 'README.md', page.resolve()
    if not (folder / 'checkpoints').is_dir() or not card.is_file():
        return False
    if not target.is_relative_to(folder.resolve()):
        return False
    link = urllib.parse.quote(str(target.relative_to(folder.resolve())))
    line = f'[A page that computes with this model]({link})\n'
    text = files.read_text(card)
    if line in text:
        return False
    card.write_text(f'{text.rstrip()}\n\n{line}', encoding='utf-8')
    return True

"""Plain text whose class is said by the name of its file or folder."""

import pathlib
from collections.abc import Iterator

from bert_jax.data import text_files
from bert_jax.data.labeled import tabular
from bert_jax.data.labeled.tabular import BadRow, Row, Unit
from bert_jax.errors import unknown

# Where a class stands in 'aclImdb/train/pos/12_9.txt' or 'polarity/rt-polarity.pos'.
LABEL_FROM = {
    'suffix': lambda path: path.suffix.removeprefix('.'),
    'stem': lambda path: path.stem,
    'folder': lambda path: path.parent.name,
}


def texts_by_line(path: str, data) -> Iterator[Unit]:
    """A text a line."""
    label = _label(path, data.label_from)
    for number, line in enumerate(text_files.read_lines(path, data.encoding), start=1):
        if line.strip():
            yield _unit(path, number, line, label)


def text_of_file(path: str, data) -> Iterator[Unit]:
    """A text a file."""
    found = _unit(path, 1, text_files.read_text(path, data.encoding), _label(path, data.label_from))
    yield found._replace(name='/'.join(pathlib.Path(path).parts[-2:]))


def _label(path: str, label_from: str) -> str:
    if label_from not in LABEL_FROM:
        raise unknown('data.label_from', label_from, LABEL_FROM)
    path = pathlib.Path(path)
    return LABEL_FROM[label_from](path.with_suffix('') if path.suffix == '.gz' else path)


def _unit(path: str, number: int, text: str, label: str) -> Unit:
    found = tabular.unit(path, number, text)
    if isinstance(found.content, BadRow):
        return found
    return found._replace(content=Row({'text': text.strip(), 'label': label}))

"""Reads plain text: one text per line or file, with its class in the line or the file name."""

import itertools
import pathlib
import re
from collections.abc import Iterator

from ml_collections import ConfigDict

from bert_jax.labels.records import InvalidRecord, Record, Row, make_record
from bert_jax.text import text_files

# `data.label_from` → the class in a path such as 'aclImdb/train/pos/12_9.txt' or 'rt-polarity.pos'.
LABEL_FROM = {
    'suffix': lambda path: path.suffix.removeprefix('.'),
    'stem': lambda path: path.stem,
    'folder': lambda path: path.parent.name,
}


def numbered_lines(path: str, data: ConfigDict) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file, numbered from 1; \\r ends lines if the file has no \\n."""
    lines = text_files.read_lines(path, data.encoding, option='data.encoding')
    first = next(lines, '')
    second = next(lines, None)
    rest = first.split('\r') if second is None else itertools.chain([first, second], lines)
    return enumerate(rest, start=1)


def is_blank(line: str) -> bool:
    """Whether a line has only spaces and tabs; other white space is content."""
    return not line.strip(' \t\r')


def read_text_lines(path: str, data: ConfigDict) -> Iterator[Record]:
    """Yield each line of a file as a text; all have the class of the file."""
    label = _label(path, data.label_from)
    for number, line in numbered_lines(path, data):
        if line.strip():
            yield make_record(path, number, Row({'text': line.strip(), 'label': label}), text=line)


def read_whole_text(path: str, data: ConfigDict) -> Iterator[Record]:
    """Yield a single text, the whole file."""
    text = text_files.read_text(path, data.encoding, option='data.encoding')
    label = _label(path, data.label_from)
    record = make_record(path, 1, Row({'text': text.strip(), 'label': label}), text=text)
    yield record._replace(default_id='/'.join(pathlib.Path(path).parts[-2:]))


def read_labeled_lines(path: str, data: ConfigDict) -> Iterator[Record]:
    """Yield lines 'CLASS TEXT', as in TREC (ENTY:animal What …) or fastText (__label__x …).
    Columns: label, its parts before and after the colon as coarse and fine, and text.
    """
    for number, line in numbered_lines(path, data):
        if is_blank(line):
            continue
        label, text = [*re.split('[ \t]+', line.strip(' \t'), maxsplit=1), ''][:2]
        label = label.removeprefix('__label__')
        coarse, _, fine = label.partition(':')
        values = {'label': label, 'coarse': coarse, 'fine': fine, 'text': text.strip()}
        content: Row | InvalidRecord = Row(values)
        if text.startswith('__label__'):
            content = InvalidRecord('the line has several labels')
        yield make_record(path, number, content, text=line)


def _label(path: str, label_from: str) -> str:
    return str(LABEL_FROM[label_from](pathlib.Path(text_files.uncompressed_name(path))))

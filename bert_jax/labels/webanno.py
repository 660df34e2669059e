"""Reads WebAnno TSV 3, which WebAnno and INCEpTION write: words and labeled spans of each sentence.

Offsets count UTF-16 code units of the document. Source: the appendix "WebAnno TSV 3.3 file format"
of INCEpTION's user guide.
"""

import itertools
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.labels import word_spans
from bert_jax.labels.records import InvalidRecord, Record, Remark, Row, make_record
from bert_jax.labels.text_lines import is_blank, numbered_lines
from bert_jax.text import text_files

_FORMAT = '#FORMAT=WebAnno TSV 3'
_SPAN_LAYER, _TEXT = '#T_SP=', '#Text='
_OTHER_LAYERS = ('#T_RL=', '#T_CH=')  # relations and chains, which are not read
_LINE = re.compile(r'(\d+-\d+)(\.\d+)?\t(\d+)-(\d+)\t([^\t]*)(?:\t(.*))?')
_NUMBERED = re.compile(r'(.*)\[(\d+)\]', re.DOTALL)  # a part of a span of several words
_ESCAPES = {'t': '\t', 'n': '\n', 'r': '\r', 'b': '\b', 'f': '\f'}
_NONE, _UNSET = '_', '*'


class _Word(NamedTuple):
    """A word, and its range in the document in UTF-16."""

    text: str
    start: int
    end: int


class _Part(NamedTuple):
    """A value in a line: the range of the line in UTF-16, the label, and the number of the span.

    The label is '' if the feature has no value; the number if the span has one word.
    """

    start: int
    end: int
    label: str
    span: str


def is_webanno(path: str, encoding: str) -> bool:
    """Whether a file begins as WebAnno writes it."""
    try:
        return next(text_files.read_lines(path, encoding, limit=100), '').startswith(_FORMAT)
    except UserError:  # the file is reported when it is read
        return False


def read_webanno(path: str, data: ConfigDict) -> Iterator[Record]:
    """Yield each sentence as a row.

    The columns are text, tokens (objects with text, start and end), document (the name of the
    file), and a list of [start, end, label] for each feature of a layer of spans, by its name, or
    LAYER.NAME if another layer has the same. The column spans is the only feature with values.

    Raises:
        UserError: the file is not WebAnno TSV 3, or `data.columns.spans` is 'spans' and several
            features have values.
    """
    columns = _columns(path, data)
    records = list(_sentences(path, data, columns))
    rows = [one.content.values for one in records if isinstance(one.content, Row)]
    used = [name for name in columns if any(label for row in rows for *_, label in row[name])]
    chosen = data.columns.spans if data.columns.spans != 'spans' else (used or ['spans'])[0]
    if len(used) > 1 and data.columns.spans == 'spans':
        raise UserError(
            f'{path} has values of the features {", ".join(used)}: set data.columns.spans to one'
        )
    for record in records:
        row = record.content
        if isinstance(row, Row):
            unset = sum(not label for *_, label in row.values.get(chosen, []))
            yield from [record._replace(content=Remark('spans_without_a_value'))] * unset
            for name in columns:
                row.values[name] = [span for span in row.values[name] if span[2]]
            row.values.setdefault('spans', row.values.get(chosen, []))
        yield record


def _columns(path: str, data: ConfigDict) -> dict[str, int]:
    """The features of the layers of spans in the head of the file, and their columns."""
    head = [line for _, line in itertools.takewhile(_is_head, numbered_lines(path, data))]
    if not head or not head[0].startswith(_FORMAT):
        raise UserError(f'{path} is not WebAnno TSV 3: its first line is not {_FORMAT}.…')
    found: list[tuple[int, str, str]] = []
    index = 0
    for line in head[1:]:
        if not line.startswith((_SPAN_LAYER, *_OTHER_LAYERS)):
            continue
        layer, *features = line.partition('=')[2].split('|')
        features = [feature for feature in features if feature] or [layer.rpartition('.')[2]]
        if line.startswith(_SPAN_LAYER):
            layer = layer.rpartition('.')[2]
            found += [(index + n, layer, feature) for n, feature in enumerate(features)]
        index += len(features)
    names = [feature for _, _, feature in found]
    return {
        feature if names.count(feature) == 1 else f'{layer}.{feature}': index
        for index, layer, feature in found
    }


def _is_head(numbered: tuple[int, str]) -> bool:
    return not numbered[1].startswith(_TEXT)


def _sentences(path: str, data: ConfigDict, columns: dict[str, int]) -> Iterator[Record]:
    lines: list[tuple[int, str]] = []
    text: list[str] = []
    body = itertools.dropwhile(_is_head, numbered_lines(path, data))
    for number, line in itertools.chain(body, [(0, '')]):
        if line.startswith(_TEXT):
            text.append(_unescape(line.removeprefix(_TEXT)))
        elif not is_blank(line) and not line.startswith('#'):
            lines.append((number, line))
        elif lines and is_blank(line):
            yield _record(path, '\n'.join(text), lines, columns)
            lines, text = [], []


def _record(path: str, text: str, lines: list[tuple[int, str]], columns: dict[str, int]) -> Record:
    content: Row | InvalidRecord
    try:
        content = _row(text, [line for _, line in lines], columns)
        content.values['document'] = os.path.basename(path)
    except InvalidRecord as error:
        content = error
    return make_record(path, lines[0][0], content, text=text)


def _row(text: str, lines: list[str], columns: dict[str, int]) -> Row:
    """The row of a sentence; the label of a span is '' if its feature has no value."""
    words: list[_Word] = []
    parts: dict[str, list[_Part]] = {name: [] for name in columns}
    for line in lines:
        match = _LINE.fullmatch(line)
        if not match:
            raise InvalidRecord(f'not a line of WebAnno, SENTENCE-WORD<tab>START-END: {line[:40]}')
        start, end = int(match[3]), int(match[4])
        if not match[2]:  # not a part of a word
            words.append(_Word(_unescape(match[5]), start, end))
        cells = (match[6] or '').split('\t')
        for name, index in columns.items():
            parts[name] += _parse_cell(cells[index] if index < len(cells) else _NONE, start, end)
    if not words or words[0].text not in text:
        raise InvalidRecord('the text of the sentence lacks its first word', misplaced=True)
    before = text[: text.index(words[0].text)].encode('utf-16-le')
    first = words[0].start - len(before) // 2  # of the sentence

    def place(start: int, end: int) -> list[int]:
        return [word_spans.from_utf16(text, offset - first) for offset in (start, end)]

    tokens = []
    for word, start, end in words:
        begin, stop = place(start, end)
        if text[begin:stop] != word:
            raise InvalidRecord(f'the text at {begin} is not the word {word!r:.40}', misplaced=True)
        tokens.append({'text': word, 'start': begin, 'end': stop})
    spans = {
        name: [[*place(one.start, one.end), one.label] for one in _join(found)]
        for name, found in parts.items()
    }
    return Row({'text': text, 'tokens': tokens, **spans})


def _parse_cell(cell: str, start: int, end: int) -> Iterator[_Part]:
    """The values of a cell, between bars."""
    if cell in ('', _NONE):
        return
    for value in re.split(r'(?<!\\)\|', cell):
        numbered = _NUMBERED.fullmatch(value)
        label, span = (numbered[1], numbered[2]) if numbered else (value, '')
        yield _Part(start, end, '' if label == _UNSET else _unescape(label), span)


def _join(parts: list[_Part]) -> list[_Part]:
    """Make one span of the parts with one number and label."""
    spans: list[_Part] = []
    place: dict[tuple[str, str], int] = {}
    for part in parts:
        key = (part.span, part.label)
        if part.span and key in place:
            spans[place[key]] = spans[place[key]]._replace(end=part.end)
        else:
            place[key] = len(spans)
            spans.append(part)
    return spans


def _unescape(text: str) -> str:
    return re.sub(r'\\(.)', lambda match: _ESCAPES.get(match[1], match[1]), text)

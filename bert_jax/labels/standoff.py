"""Reads brat's standoff format: a text file x.txt and its annotated spans in x.ann."""

import bisect
import os
import re
from collections.abc import Iterator

from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.labels.records import (
    InvalidRecord,
    Record,
    Row,
    SkippedRecord,
    check_text,
    make_record,
)
from bert_jax.labels.text_lines import numbered_lines
from bert_jax.text import text_files

_SPAN = re.compile(r'T\S*\t(\S+) (\d+) (\d+)\t(.*)')
_DISCONTINUOUS = re.compile(r'T\S*\t\S+ \d+ \d+(;\d+ \d+)+\t')


def read_brat(path: str, data: ConfigDict) -> Iterator[Record]:
    """Yield the lines of x.txt, or with `data.documents` the whole text, with the spans of x.ann.
    Columns: text, spans and document (the name of the file). Unusable spans have records of their
    own: discontinuous spans, spans that cross lines, and spans whose text is not as annotated.
    Relations, events and attributes are counted as skipped.

    Raises:
        UserError: the file name does not end in .ann, or the text file is missing.
    """
    stem, suffix = os.path.splitext(path)
    if suffix != '.ann':
        raise UserError(f'{path} is not a file of annotations; set data.train to the .ann files')
    text = text_files.read_text(f'{stem}.txt', data.encoding, option='data.encoding')
    starts = [0]
    if not data.documents:
        starts += [match.end() for match in re.finditer('\n' if '\n' in text else '\r', text)]
    spans_of_part: list[list[list[int | str]]] = [[] for _ in starts]
    ends = [*starts[1:], len(text)]
    for number, line in numbered_lines(path, data):
        if not line.strip():
            continue
        try:
            start, end, label = _parse_span(line, text)
            part = bisect.bisect_right(starts, start) - 1
            if end > ends[part]:
                raise InvalidRecord('the span crosses lines; set data.documents=True', True)
        except InvalidRecord as error:
            yield make_record(path, number, error)
        else:
            spans_of_part[part].append([start - starts[part], end - starts[part], label])
    for number, (start, end, spans) in enumerate(zip(starts, ends, spans_of_part, strict=True), 1):
        part_text = text[start:end].rstrip('\r\n')
        if part_text.strip():
            row = {'text': part_text, 'spans': spans, 'document': os.path.basename(stem)}
            yield make_record(f'{stem}.txt', number, Row(row), text=part_text)


def _parse_span(line: str, text: str) -> tuple[int, int, str]:
    """The start, end and label of a line of annotations."""
    if not line.startswith('T'):
        raise SkippedRecord('annotations_other_than_spans')
    if _DISCONTINUOUS.match(line):
        raise InvalidRecord('the span is discontinuous', misplaced=True)
    match = _SPAN.fullmatch(line)
    if not match:
        raise InvalidRecord('not a span, ID<tab>LABEL START END<tab>TEXT')
    check_text(match[4])
    start, end = int(match[2]), int(match[3])
    span_text = text[start:end]
    if not span_text or span_text.split() != match[4].split():
        raise InvalidRecord(
            f'the text at {start} is {span_text[:40]!r}, not {match[4][:40]!r}', misplaced=True
        )
    return start, end, match[1]

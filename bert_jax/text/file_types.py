"""Tells text from other files by their first bytes, and says what the others are."""

import codecs
import csv
import os
import re
from collections.abc import Iterator, Sequence

from bert_jax.errors import UserError

_SURROGATE = re.compile('[\ud800-\udfff]')
_CONTROL = re.compile('[\0-\x06\x0e-\x19\x1c-\x1f]')  # characters that text does not have
_MAX_CONTROLS, _MAX_UNDECODABLE = 0.02, 0.3  # share of the first characters of a text

_AS_CSV = 'save it as CSV (UTF-8)'
_AS_TEXT = 'save it as plain text (UTF-8)'
_UNPACK = 'unpack it'
_ZIP = 'a zip archive'
# Pattern of the first bytes of files that are not text, though parts of them may look like text
# → what they are, and what to do.
_SIGNATURES: dict[bytes, tuple[str, str]] = {
    rb'PAR1\x15': ('a Parquet file', 'read it as Parquet'),
    rb'ARROW1': ('an Arrow file', 'read it as Parquet'),
    rb'%PDF-': ('a PDF file', _AS_TEXT),
    rb'PK\x03\x04.*xl/': ('an Excel workbook', _AS_CSV),
    rb'PK\x03\x04.*word/': ('a Word document', _AS_TEXT),
    rb'PK\x03\x04.*ppt/': ('a PowerPoint presentation', _AS_TEXT),
    rb'PK\x03\x04.*opendocument\.spreadsheet': ('an OpenDocument spreadsheet', _AS_CSV),
    rb'PK\x03\x04.*opendocument': ('an OpenDocument file', _AS_TEXT),
    rb'PK\x03\x04.*application/epub': ('an EPUB book', _AS_TEXT),
    rb'PK\x03\x04': (_ZIP, _UNPACK),
    rb'\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1': (
        'a file of Microsoft Office (.xls, .doc)',
        'save it as CSV or plain text (UTF-8)',
    ),
    rb'\{\\rtf': ('a Rich Text file', _AS_TEXT),
    rb'SQLite format 3\0': ('an SQLite database', 'export its table as CSV'),
    rb'7z\xbc\xaf\x27\x1c': ('a 7z archive', _UNPACK),
    rb'Rar!\x1a\x07': ('a RAR archive', _UNPACK),
    rb'.{257}ustar': ('a tar archive', _UNPACK),
}
# Suffixes of files that are never text → what they should be.
_NOT_TEXT = {
    '.xlsx': 'an Excel workbook',
    '.xls': 'an Excel workbook',
    '.ods': 'a spreadsheet',
    '.docx': 'a Word document',
    '.odt': 'a text document',
    '.pdf': 'a PDF file',
    '.epub': 'an EPUB book',
    '.parquet': 'a Parquet file',
    '.zip': _ZIP,
}
# Suffixes of text files whose syntax is not prose.
_MARKUP_SUFFIXES = (
    *('.csv', '.tsv', '.tab', '.json', '.jsonl', '.jsonlines', '.ndjson'),
    *('.html', '.htm', '.xhtml', '.xml', '.sgml'),
)
_PAGE = re.compile(r'<(\?xml|!doctype|html|mediawiki)\b', re.IGNORECASE)
_TAG = re.compile(r'</?[a-zA-Z][^<>]*>')
_JSON = re.compile(r'[{[]$|\{\s*"|\[\s*[{[]')
_LEAST_ROWS = 4  # fewer lines with the same number of separators may be prose
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: 'utf-32',
    codecs.BOM_UTF32_BE: 'utf-32',
    codecs.BOM_UTF16_LE: 'utf-16',
    codecs.BOM_UTF16_BE: 'utf-16',
}


def check(head: bytes, path: str, encoding: str, option: str = '') -> None:
    """Raise UserError if a file does not begin like text in an encoding, or has a misleading name.

    Args:
        head: The first bytes of the file, decompressed.
        path: Its name.
        encoding: The encoding.
        option: The user's setting of the encoding, for messages; '' if there is none.
    """
    named = _NOT_TEXT.get(os.path.splitext(path)[1].lower(), '')
    for signature, (file_type, advice) in _SIGNATURES.items():
        if re.match(signature, head, re.DOTALL):
            file_type = named if named and file_type == _ZIP else file_type
            raise UserError(f'{path} is {file_type}, not text: {advice} or leave it out')
    name = encoding.removesuffix('-sig')
    actual = _unicode_encoding(head)
    if actual and not codecs.lookup(name).name.startswith(actual):
        raise UserError(
            f'{path} is {actual} text, not {name} text: {_how_to_set(option, actual)}convert it to '
            'utf-8'
        )
    text = codecs.getincrementaldecoder(encoding)('surrogateescape').decode(head)
    controls, undecodable = len(_CONTROL.findall(text)), len(_SURROGATE.findall(text))
    if undecodable > _MAX_UNDECODABLE * len(text) or controls > _MAX_CONTROLS * len(text):
        raise UserError(
            f'{path} is not {name} text: of its first {len(text):,} characters, '
            f'{undecodable / len(text):.0%} cannot be decoded and {controls / len(text):.0%} are '
            f'control characters; {_how_to_set(option)}leave it out'
        )
    if named and text.strip():
        raise UserError(
            f'{path} is named like {named}, but is text that begins with {text.strip()[:40]!r}: '
            'rename it, such as to .csv or .txt'
        )


def has_markup(name: str, lines: Sequence[str]) -> bool:
    """Whether a text file is a table, JSON or a page with tags, and not prose.

    Args:
        name: The name of the file, without the suffix of a compression format.
        lines: Its first lines, decompressed.
    """
    if os.path.splitext(name)[1].lower() in _MARKUP_SUFFIXES:
        return True
    filled = [line.strip(' \t\ufeff') for line in lines if line.strip()]
    if not filled:
        return False
    if _PAGE.match(filled[0]) or _JSON.match(filled[0]):
        return True
    untagged = [line for line in filled if not _TAG.match(line)]
    return 2 * len(untagged) < len(filled) or any(
        _is_table(untagged, separator) for separator in '\t,;|'
    )


def _is_table(lines: Sequence[str], separator: str) -> bool:
    """Whether lines are rows of a table; in prose, a space follows a comma or semicolon."""
    rows = list(_rows(lines, separator))
    width = len(rows[0]) if rows else 0
    return (
        len(rows) >= _LEAST_ROWS
        and width > 1
        and all(len(row) == width and not any(map(_starts_with_space, row)) for row in rows)
    )


def _rows(lines: Sequence[str], separator: str) -> Iterator[list[str]]:
    try:
        yield from csv.reader([f'{line}\n' for line in lines], delimiter=separator, strict=True)
    except csv.Error:  # a stray quote, or a field that ends after these lines
        return


def _starts_with_space(field: str) -> bool:
    return field.startswith(' ')


def _how_to_set(option: str, encoding: str = '') -> str:
    if not option:
        return ''
    return f'set {option}={encoding} or ' if encoding else f'set {option} or '


def _unicode_encoding(head: bytes) -> str:
    """The encoding of text in UTF-16 or UTF-32; '' for other text.

    Without a byte order mark, text is UTF-16 if every second byte is mostly zero.
    """
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if head.startswith(mark):
            return encoding
    even, odd = head[::2], head[1::2]
    for zeros, others, encoding in ((odd, even, 'utf-16-le'), (even, odd, 'utf-16-be')):
        if zeros.count(0) > 0.7 * len(zeros) and others.count(0) < 0.05 * len(others):
            return encoding
    return ''

"""Sources that read text files: plain text and JSON lines."""

import abc
import contextlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

from bert_jax import errors
from bert_jax.files import parse_json
from bert_jax.storage.names import is_number
from bert_jax.text import file_types, text_files
from bert_jax.text.sources.base import Document, Option, Piece
from bert_jax.text.sources.file_source import FileSource
from bert_jax.types import JsonObject, JsonRecord

MAX_DOCUMENT_CHARACTERS = 2**22  # bounds memory: longer documents of a text source are split
_OPTION = ';encoding'  # of the spec
# Lines with which WikiExtractor encloses each article.
_ARTICLE = re.compile(r'<doc id="[^"]*".*>|</doc>')
MAX_LINE_CHARACTERS = 2**26  # of a line of JSON, which cannot be split
_CHECKED_LINES, _CHECKED_CHARACTERS = 30, 2**16  # at the beginning of a file, for markup


class EncodedFileSource(FileSource):
    """Base class of sources that read text files, plain or compressed."""

    options = {
        **FileSource.options,
        'encoding': Option('utf-8', 'encoding of the files, a Python codec name'),
    }

    def __init__(self, spec: str, where: str, settings: Mapping[str, str]):
        super().__init__(spec, where, settings)
        self.encoding = settings['encoding']
        self._file: TextIO | None = None  # the current file
        text_files.check_encoding(self.encoding, f'encoding of source {spec!r}')

    def parts(self, path: str) -> Iterator[str]:
        return text_files.read_lines(path, self.encoding, MAX_DOCUMENT_CHARACTERS, _OPTION)

    def can_divide(self, path: str) -> bool:
        return text_files.can_cut(path, self.encoding) and super().can_divide(path)

    def lines(self, piece: Piece, limit: int) -> Iterator[str]:
        """Stream the lines of a file or range; lines longer than `limit` characters are split."""
        cut = None
        if not piece.is_whole:
            cut = text_files.Cut(piece.start, piece.stop, self.starts_document)
        opened = text_files.open_text(piece.path, self.encoding, cut=cut, option=_OPTION)
        with opened as self._file:
            yield from text_files.lines_of(self._file, limit)

    def position_in_file(self) -> int:
        return text_files.position(self._file) if self._file else 0

    @abc.abstractmethod
    def starts_document(self, line: str) -> bool:
        """Whether this line ends the document before it, whatever that document contains."""


class TextSource(EncodedFileSource):
    """Plain text files.

    A document of more than `longest` characters is split at the next blank line, or at any line
    after twice as many. The lines of WikiExtractor before and after an article are left out and
    end a document.

    `report['cut_documents']` counts the splits, `report['article_tags']` the lines of
    WikiExtractor, and `report['files_with_markup']` the tables and web pages, which are read as
    they are.
    """

    description = 'text files, plain or compressed; ** matches folders recursively'
    options = {
        **EncodedFileSource.options,
        'documents': Option(
            'file',
            'unit of a document: "file"; "line"; "blank_line", the lines between blank lines; or '
            '"title:REGEX", a line that contains a match and all lines until the next such line',
        ),
        'longest': Option(
            '',
            'a document with more characters ends at its next blank line; by default, files that '
            'are longer than the share to hold out are divided',
        ),
    }

    def __init__(self, spec: str, where: str, settings: Mapping[str, str]):
        super().__init__(spec, where, settings)
        documents = settings['documents']
        self._longest = _characters(spec, settings.get('longest', ''))
        self.unit, _, pattern = documents.partition(':')
        if self.unit not in ('file', 'line', 'blank_line', 'title') or (
            (self.unit == 'title') != bool(pattern)
        ):
            raise errors.UserError(
                f'source {spec!r}: documents={documents!r} is not file, line, blank_line or '
                'title:REGEX'
            )
        try:
            self.title = re.compile(pattern) if pattern else None
        except re.error as error:
            raise errors.UserError(
                f'source {spec!r}: {pattern!r} is not a valid regular expression: {error}'
            ) from None

    @property
    def may_be_divided(self) -> bool:
        """Whether the spec leaves it open how long a document is."""
        chosen = self.settings.get('longest') or self.settings['held_out_by'] == 'file'
        return self.unit == 'file' and not chosen

    def has_articles(self, path: str) -> bool:
        """Whether a file begins as WikiExtractor writes it: its articles are documents."""
        try:
            first = next(self.parts(path), '')
        except errors.UserError:  # the file is reported when it is read
            return False
        return bool(_ARTICLE.fullmatch(first))

    def can_divide(self, path: str) -> bool:
        return self.unit != 'file' and super().can_divide(path)

    def read_piece(self, piece: Piece, file_hash: int | None) -> Iterator[Document]:
        for number, lines in enumerate(self._line_groups(piece)):
            is_first = self.unit == 'file' and not number
            name = piece.path if is_first else piece.place(number)
            text = self.replace_surrogates('\n'.join(lines), piece.path)
            yield Document(text, name, file_hash)

    def _line_groups(self, piece: Piece) -> Iterator[list[str]]:
        """Yield the lines of each document of a file or range, without leading blank lines."""
        lines: list[str] = []
        size = 0
        for line in self._checked_lines(piece):
            if line.startswith(('<doc ', '</doc>')) and _ARTICLE.fullmatch(line):
                self.count('article_tags', piece.path)
                if lines:
                    yield lines
                lines, size = [], 0
                continue
            is_blank = not line or line.isspace()
            is_full = size > self._longest * (1 if is_blank else 2)
            is_boundary = self.starts_document(line)
            if lines and (is_full or is_boundary):
                if not is_boundary:
                    self.count('cut_documents', piece.path)
                yield lines
                lines, size = [], 0
            if lines or not is_blank:
                lines.append(line)
                size += len(line) + 1
        if lines:
            yield lines

    def _checked_lines(self, piece: Piece) -> Iterator[str]:
        """Stream the lines of a piece; count the file if its first lines have markup."""
        lines = self.lines(piece, MAX_DOCUMENT_CHARACTERS)
        if piece.start:
            return lines
        first = list(_first_lines(lines))
        prose = [line for line in first if not _ARTICLE.fullmatch(line)]
        if file_types.has_markup(text_files.uncompressed_name(piece.path), prose):
            self.count('files_with_markup', piece.path)
        return itertools.chain(first, lines)

    def starts_document(self, line: str) -> bool:
        if self.title:
            return bool(self.title.search(line))
        return self.unit == 'line' or (self.unit == 'blank_line' and not line.strip())


def _first_lines(lines: Iterator[str]) -> Iterator[str]:
    """Take the first lines, enough for `file_types.has_markup`."""
    size = 0
    for line in itertools.islice(lines, _CHECKED_LINES):
        yield line
        size += len(line)
        if size > _CHECKED_CHARACTERS:
            return


def _characters(spec: str, longest: str) -> int:
    """Return the characters after which a document is split, from the option of a spec."""
    if not longest:
        return MAX_DOCUMENT_CHARACTERS
    if not is_number(longest) or not 0 < int(longest) <= MAX_DOCUMENT_CHARACTERS:
        raise errors.UserError(
            f'source {spec!r}: longest={longest!r} is not a number of characters from 1 to '
            f'{MAX_DOCUMENT_CHARACTERS:,}'
        )
    return int(longest)


class JsonLinesSource(EncodedFileSource):
    """Files of JSON lines: one object, and thus one document, per line.

    A file is bad if the share of malformed lines is above `max_bad_share` (a single one among other
    lines is never an error), or if a line has `MAX_LINE_CHARACTERS` or more.
    """

    description = 'JSON lines, one document per line; ** matches folders recursively'
    options = {
        **EncodedFileSource.options,
        'field': Option('text', 'key of the text in each object; a.b is key b of the object in a'),
    }

    def __init__(self, spec: str, where: str, settings: Mapping[str, str]):
        super().__init__(spec, where, settings)
        self._lines = self._malformed = 0  # numbers of lines in the current or last piece

    def starts_document(self, line: str) -> bool:
        return True

    def read_piece(self, piece: Piece, file_hash: int | None) -> Iterator[Document]:
        self._lines = self._malformed = 0
        for line in self.lines(piece, MAX_LINE_CHARACTERS):
            self._lines += 1
            if len(line) == MAX_LINE_CHARACTERS:
                raise errors.UserError(
                    f'{piece.path} has a line of {MAX_LINE_CHARACTERS:,} characters or more: too '
                    'long for JSON lines'
                )
            place = piece.place(self._lines, ':')
            text = self._text(self.replace_surrogates(line, place), place)
            if text is not None:
                yield Document(text, place, file_hash)

    def unread_fields(self) -> list[str]:
        with contextlib.suppress(errors.UserError, ValueError):  # counted when it was read
            record = parse_json(next(self.parts(self.paths[0]), ''))
            if isinstance(record, dict):
                read = {self.settings['field'], self.settings['field'].partition('.')[0]}
                return [name for name in record if name not in read]
        return []

    def state(self) -> JsonRecord:
        return super().state() | {'lines': [self._lines, self._malformed]}

    def add(self, pieces: Sequence[Piece], state: JsonObject) -> bool:
        if not pieces[0].start:
            self._lines = self._malformed = 0
        self._lines += state['lines'][0]
        self._malformed += state['lines'][1]
        return super().add(pieces, state)

    def end_file(self, path: str) -> None:
        malformed, number = self._malformed, self._lines
        if malformed > self.max_bad_share * number and (malformed > 1 or number == 1):
            raise errors.UserError(
                f'{path}: {malformed:,} of {number:,} lines ({malformed / number:.1%}) are not '
                'JSON objects'
            )

    def _text(self, line: str, place: str) -> str | None:
        """The text in a line; None if there is no text, which is counted in `report`."""
        if not line or line.isspace():
            return None
        try:
            record = parse_json(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            self._malformed += 1
            self.count('malformed_lines', place)
            return None
        text = _value(record, self.settings['field'])
        if not isinstance(text, str):
            self.count('missing_field', place)
            return None
        return self.replace_surrogates(text, place, 'lone_surrogates')


def _value(record: JsonRecord, field: str) -> object:
    """The value of a key, or of 'a.b', the key b of the object in a; None if there is none."""
    head, dot, rest = field.partition('.')
    if field in record or not dot:
        return record.get(field)
    inner = record.get(head)
    return _value(inner, rest) if isinstance(inner, dict) else None

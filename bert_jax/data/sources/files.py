"""Sources that read files of text: plain text and JSON lines."""

import abc
import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_jax import errors
from bert_jax.data import held_out, text_files
from bert_jax.data.sources.base import COMMON_OPTIONS, Document, Option, Piece, Source
from bert_jax.storage import paths
from bert_jax.storage.bucket import BucketError

# Bounds memory: a longer document of a text source is split, whatever the size of its file.
MAX_DOCUMENT_CHARACTERS = 2**22
MAX_LINE_CHARACTERS = 2**26  # of a line of JSON, which cannot be split


class FileSource(Source):
    """Base of the sources that read files.

    A subclass implements `read_piece` and `parts`, and may replace `find_files` and `can_divide`.
    Files that cannot be read or used are counted and left out from where they fail, up to a share
    of `max_bad_share` of all files.

    Attributes:
        paths: The files, in order. A file that several paths lead to is read once.
        bad_files: What is wrong with each bad file of the current or last pass.
    """

    location = 'GLOB'
    options = {
        **COMMON_OPTIONS,
        'held_out_by': Option('document', 'what is held out as a whole: "document" or "file"'),
    }

    def __init__(self, spec: str, where: str, settings: Mapping[str, str]):
        super().__init__(spec, where, settings)
        self.paths: list[str] = []
        self._repeated: list[str] = []
        self._failed = ''  # the last divided file that is bad
        if settings['held_out_by'] not in ('document', 'file'):
            raise errors.UserError(
                f'source {spec!r}: held_out_by={settings["held_out_by"]!r} is not document or file'
            )

    def list_files(self) -> None:
        found = self.find_files()
        if not found:
            raise errors.UserError(f'source {self.spec!r}: no file matches {self.where!r}')
        for path in found:
            self.identities.setdefault(text_files.identify(path), path)
        self.paths = list(self.identities.values())
        self._repeated = sorted(set(found).difference(self.paths))

    def find_files(self) -> list[str]:
        """Return the paths of the files, which a recursive glob matches."""
        return text_files.matching_files(self.where)

    def units(self, size: int) -> list[tuple[Piece, ...]]:
        """Return ranges of large files that can be divided, and groups of other files."""
        sizes = {path: status.st_size for path, status in paths.statuses(self.paths).items()}
        found: list[tuple[Piece, ...]] = []
        group: list[Piece] = []
        for path in self.paths:
            bytes_ = sizes.get(path)
            if bytes_ is not None and bytes_ > size and self.can_divide(path):
                found += [tuple(group)] if group else []
                group = []
                starts = range(0, bytes_, size)
                stops = [*starts[1:], None]
                found += [(Piece(path, *ends, bytes_),) for ends in zip(starts, stops, strict=True)]
                continue
            group.append(Piece(path, size=bytes_))
            if sum(piece.size or 0 for piece in group) >= size:
                found.append(tuple(group))
                group = []
        return found + ([tuple(group)] if group else [])

    def can_divide(self, path: str) -> bool:
        """Whether `read_piece` can read ranges of a file: it ignores `stop` otherwise."""
        return self.settings['held_out_by'] == 'document'

    @abc.abstractmethod
    def read_piece(self, piece: Piece, file_hash: int | None) -> Iterator[Document]:
        """Yield the documents of a file, or those that begin in a range of it.

        Args:
            piece: The range; nothing begins after the first byte of a file that is not divisible.
            file_hash: The `file_hash` of the file.

        Raises:
            UserError: The file is bad.
        """

    @abc.abstractmethod
    def parts(self, path: str) -> Iterator[str]:
        """Yield the contents of a file in parts, such as lines, for `file_hash`."""

    def restart(self) -> None:
        super().restart()
        if self._repeated:
            self.count('files_matched_again', self._repeated[0], len(self._repeated))

    def read(self) -> Iterator[Document]:
        return self.read_unit(list(map(Piece, self.paths)))

    def read_unit(self, pieces: Sequence[Piece]) -> Iterator[Document]:
        for piece in pieces:
            if piece.size is not None and not paths.is_in_bucket(piece.path):
                status = paths.statuses([piece.path]).get(piece.path)
                piece.check_size(status and status.st_size)
            self.report['files'] += not piece.start
            with self._bad_file(piece.path):
                yield from self.read_piece(piece, self.file_hash(piece.path))
                if piece.is_whole:
                    self.end_file(piece.path)

    @contextlib.contextmanager
    def _bad_file(self, path: str) -> Iterator[None]:
        """Leave out a file from where an error shows that it is bad."""
        try:
            yield
        except BucketError:  # not the fault of the file
            raise
        except errors.UserError as error:
            self.count('bad_files', path)
            self.bad_files.append(str(error))
            self._check_bad_files()

    def _check_bad_files(self) -> None:
        bad, number = self.bad_files, len(self.paths)
        if number and len(bad) > self.max_bad_share * number:
            raise errors.UserError(
                f'source {self.spec!r}: {len(bad):,} of {number:,} files ({len(bad) / number:.1%}) '
                f'cannot be used ({"; ".join(bad[:3])}): repair or remove them, or set '
                f'max_bad_share above {self.max_bad_share:g}'
            )

    def file_hash(self, path: str) -> int | None:
        """Return the hash of a file that is held out as a whole, otherwise None."""
        if self.settings['held_out_by'] == 'document':
            return None
        return held_out.hash_of_parts(self.parts(path))

    def end_file(self, path: str) -> None:
        """Raise UserError if a file turns out to be bad when all of it has been read."""

    def add(self, pieces: Sequence[Piece], state: Mapping[str, Any]) -> bool:
        """Add the state after the next unit; a divided file ends where it first fails."""
        first, last = pieces[0], pieces[-1]
        is_range = not first.is_whole
        if is_range and first.start and first.path == self._failed:
            return False
        super().add(pieces, state)
        self._check_bad_files()
        if is_range and state['bad_files']:
            self._failed = first.path
        elif is_range and last.stop is None:
            with self._bad_file(last.path):
                self.end_file(last.path)
        return True


class EncodedFileSource(FileSource):
    """Base of the sources that read files of text, plain or compressed."""

    options = {
        **FileSource.options,
        'encoding': Option('utf-8', 'encoding of the files, a Python codec name'),
    }

    def __init__(self, spec: str, where: str, settings: Mapping[str, str]):
        super().__init__(spec, where, settings)
        self.encoding = settings['encoding']
        text_files.check_encoding(self.encoding, f'encoding of source {spec!r}')

    def parts(self, path: str) -> Iterator[str]:
        return text_files.read_lines(path, self.encoding, MAX_DOCUMENT_CHARACTERS)

    def can_divide(self, path: str) -> bool:
        can_cut = text_files.can_cut(path, self.encoding)
        return can_cut and super().can_divide(path)

    def lines(self, piece: Piece, limit: int) -> Iterator[str]:
        """Stream the lines of a file or range, in pieces of at most `limit` characters."""
        if piece.is_whole:
            return text_files.read_lines(piece.path, self.encoding, limit)
        cut = text_files.Cut(piece.start, piece.stop, self.starts_document)
        return text_files.read_lines(piece.path, self.encoding, limit, cut)

    @abc.abstractmethod
    def starts_document(self, line: str) -> bool:
        """Whether the document before this line ends, whatever it contains."""


class TextSource(EncodedFileSource):
    """Plain text files.

    A document of more than `MAX_DOCUMENT_CHARACTERS` is split at the next blank line, or at the
    next line if there is no blank line within as many characters again. `report['cut_documents']`
    counts the splits.
    """

    description = 'text files, plain or compressed; ** matches folders recursively'
    options = {
        **EncodedFileSource.options,
        'documents': Option(
            'file',
            'what a document is: "file"; "line"; "blank_line", the lines between blank lines; or '
            '"title:REGEX", a line that contains a match and all lines until the next such line',
        ),
    }

    def __init__(self, spec: str, where: str, settings: Mapping[str, str]):
        super().__init__(spec, where, settings)
        documents = settings['documents']
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

    def can_divide(self, path: str) -> bool:
        return self.unit != 'file' and super().can_divide(path)

    def read_piece(self, piece: Piece, file_hash: int | None) -> Iterator[Document]:
        for number, lines in enumerate(self._line_groups(piece)):
            is_first = self.unit == 'file' and not number
            name = piece.path if is_first else piece.place(number)
            text = self.replace_undecodable('\n'.join(lines), piece.path)
            yield Document(text, name, file_hash)

    def _line_groups(self, piece: Piece) -> Iterator[list[str]]:
        """Yield the lines of each document of a file or range, without leading blank lines."""
        lines: list[str] = []
        size = 0
        for line in self.lines(piece, MAX_DOCUMENT_CHARACTERS):
            is_blank = not line or line.isspace()
            is_full = size > MAX_DOCUMENT_CHARACTERS * (1 if is_blank else 2)
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

    def starts_document(self, line: str) -> bool:
        if self.title:
            return bool(self.title.search(line))
        return self.unit == 'line' or (self.unit == 'blank_line' and not line.strip())


class JsonLinesSource(EncodedFileSource):
    """Files of JSON lines: one object, and thus one document, per line.

    A file is bad if the share of malformed lines is above `max_bad_share` and there are several,
    or from a line that has more than `MAX_LINE_CHARACTERS`.
    """

    description = 'JSON lines, one document per line; ** matches folders recursively'
    options = {
        **EncodedFileSource.options,
        'field': Option('text', 'key of the text in each object'),
    }

    def __init__(self, spec: str, where: str, settings: Mapping[str, str]):
        super().__init__(spec, where, settings)
        self._lines = self._malformed = 0  # of the current or last file or range

    def starts_document(self, line: str) -> bool:
        return True

    def read_piece(self, piece: Piece, file_hash: int | None) -> Iterator[Document]:
        self._lines, self._malformed = 0, -self.report['malformed_lines']
        for line in self.lines(piece, MAX_LINE_CHARACTERS):
            self._lines += 1
            if len(line) == MAX_LINE_CHARACTERS:
                raise errors.UserError(
                    f'{piece.path} has a line of {MAX_LINE_CHARACTERS:,} characters or more, which '
                    'is too long for a line of JSON lines'
                )
            place = piece.place(self._lines, ':')
            text = self._text(self.replace_undecodable(line, place), place)
            if text is not None:
                yield Document(text, place, file_hash)
        self._malformed += self.report['malformed_lines']

    def state(self) -> dict[str, Any]:
        return super().state() | {'lines': [self._lines, self._malformed]}

    def add(self, pieces: Sequence[Piece], state: Mapping[str, Any]) -> bool:
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
        """The text in a line; None, and a count in `report`, if it has none."""
        if not line or line.isspace():
            return None
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            self.count('malformed_lines', place)
            return None
        text = record.get(self.settings['field'])
        if not isinstance(text, str):
            self.count('missing_field', place)
            return None
        text, number = text_files.replace_surrogates(text)
        if number:
            self.count('lone_surrogates', place, number)
        return text

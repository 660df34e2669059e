"""Sources that read files of text: plain text and JSON lines."""

import abc
import json
import re
from collections.abc import Iterator, Mapping

from bert_jax import errors
from bert_jax.data import held_out, text_files
from bert_jax.data.sources.base import COMMON_OPTIONS, Document, Option, Source
from bert_jax.storage.bucket import BucketError

# Bounds memory: a longer document of a text source is split, whatever the size of its file.
MAX_DOCUMENT_CHARACTERS = 2**22
MAX_LINE_CHARACTERS = 2**26  # of a line of JSON, which cannot be split


class FileSource(Source):
    """Base of the sources that read files.

    A subclass implements `read_file` and `parts`, and may replace `find_files`. Files that cannot
    be read or used are counted and left out from where they fail, up to a share of `max_bad_share`
    of all files.

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
        found = self.find_files()
        if not found:
            raise errors.UserError(f'source {spec!r}: no file matches {where!r}')
        for path in found:
            self.identities.setdefault(text_files.identify(path), path)
        self.paths = list(self.identities.values())
        self._repeated = sorted(set(found).difference(self.paths))
        if settings['held_out_by'] not in ('document', 'file'):
            raise errors.UserError(
                f'source {spec!r}: held_out_by={settings["held_out_by"]!r} is not document or file'
            )

    def find_files(self) -> list[str]:
        """Return the paths of the files, which a recursive glob matches."""
        return text_files.matching_files(self.where)

    @abc.abstractmethod
    def read_file(self, path: str, file_hash: int | None) -> Iterator[Document]:
        """Yield the documents of a file, given its `file_hash`; raise UserError if it is bad."""

    @abc.abstractmethod
    def parts(self, path: str) -> Iterator[str]:
        """Yield the contents of a file in parts, such as lines, for `file_hash`."""

    def read(self) -> Iterator[Document]:
        if self._repeated:
            self.count('files_matched_again', self._repeated[0], len(self._repeated))
        for path in self.paths:
            self.report['files'] += 1
            try:
                yield from self.read_file(path, self.file_hash(path))
            except BucketError:  # not the fault of the file
                raise
            except errors.UserError as error:
                self.count('bad_files', path)
                self.bad_files.append(str(error))
                self._check_bad_files()

    def _check_bad_files(self) -> None:
        bad, number = self.bad_files, len(self.paths)
        if len(bad) > self.max_bad_share * number:
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

    def read_file(self, path: str, file_hash: int | None) -> Iterator[Document]:
        for number, lines in enumerate(self._line_groups(path)):
            name = path if self.unit == 'file' and not number else f'{path}#{number}'
            text = self.replace_undecodable('\n'.join(lines), path)
            yield Document(text, name, file_hash)

    def _line_groups(self, path: str) -> Iterator[list[str]]:
        """Yield the lines of each document of a file, without leading blank lines."""
        lines: list[str] = []
        size = 0
        for line in self.parts(path):
            is_blank = not line or line.isspace()
            is_full = size > MAX_DOCUMENT_CHARACTERS * (1 if is_blank else 2)
            is_boundary = self._is_boundary(line, is_blank)
            if lines and (is_full or is_boundary):
                if not is_boundary:
                    self.count('cut_documents', path)
                yield lines
                lines, size = [], 0
            if lines or not is_blank:
                lines.append(line)
                size += len(line) + 1
        if lines:
            yield lines

    def _is_boundary(self, line: str, is_blank: bool) -> bool:
        """Whether the document before this line ends."""
        if self.title:
            return bool(self.title.search(line))
        return self.unit == 'line' or (is_blank and self.unit == 'blank_line')


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

    def read_file(self, path: str, file_hash: int | None) -> Iterator[Document]:
        number, malformed_before = 0, self.report['malformed_lines']
        lines = text_files.read_lines(path, self.encoding, MAX_LINE_CHARACTERS)
        for number, line in enumerate(lines, start=1):
            place = f'{path}:{number}'
            if len(line) == MAX_LINE_CHARACTERS:
                raise errors.UserError(
                    f'{place} has {MAX_LINE_CHARACTERS:,} characters or more, which is too long '
                    'for a line of JSON lines'
                )
            text = self._text(self.replace_undecodable(line, place), place)
            if text is not None:
                yield Document(text, place, file_hash)
        malformed = self.report['malformed_lines'] - malformed_before
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

"""Sources that read files: plain text and JSON lines."""

import json
import re
from collections.abc import Iterator, Mapping

from bert_jax import errors
from bert_jax.data import text_files
from bert_jax.data.sources.base import COMMON_OPTIONS, Document, Option, Source

# Bounds memory: a longer document of a text source is split, whatever the size of its file.
MAX_DOCUMENT_CHARACTERS = 2**22


class FileSource(Source):
    """Base of the sources that read files, plain or gzipped, found by a recursive glob."""

    location = 'GLOB'
    options = {
        **COMMON_OPTIONS,
        'encoding': Option('utf-8', 'encoding of the files, a Python codec name'),
    }

    def __init__(self, spec: str, where: str, settings: Mapping[str, str]):
        super().__init__(spec, where, settings)
        self.encoding = settings['encoding']
        self.paths = text_files.matching_files(where)
        if not self.paths:
            raise errors.UserError(f'source {spec!r}: no file matches {where!r}')
        text_files.check_encoding(self.encoding, f'encoding of source {spec!r}')


class TextSource(FileSource):
    """Plain text files.

    A document of more than `MAX_DOCUMENT_CHARACTERS` is split at the next blank line, or at the
    next line if there is no blank line within as many characters again. `report['cut_documents']`
    counts the splits.
    """

    description = 'plain or gzipped text files; ** matches folders recursively'
    options = {
        **FileSource.options,
        'documents': Option(
            'file',
            'what a document is: "file"; "blank_line", the lines between blank lines; or '
            '"title:REGEX", a line that contains a match and all lines until the next such line',
        ),
    }

    def __init__(self, spec: str, where: str, settings: Mapping[str, str]):
        super().__init__(spec, where, settings)
        documents = settings['documents']
        self.unit, _, pattern = documents.partition(':')
        if self.unit not in ('file', 'blank_line', 'title') or (
            (self.unit == 'title') != bool(pattern)
        ):
            raise errors.UserError(
                f'source {spec!r}: documents={documents!r} is not file, blank_line or title:REGEX'
            )
        try:
            self.title = re.compile(pattern) if pattern else None
        except re.error as error:
            raise errors.UserError(
                f'source {spec!r}: {pattern!r} is not a valid regular expression: {error}'
            ) from None

    def read(self) -> Iterator[Document]:
        for path in self.paths:
            self.report['files'] += 1
            for number, lines in enumerate(self._line_groups(path)):
                name = path if self.unit == 'file' and not number else f'{path}#{number}'
                yield Document(self.replace_undecodable('\n'.join(lines), path), name)

    def _line_groups(self, path: str) -> Iterator[list[str]]:
        """Yield the lines of each document of a file, without leading blank lines."""
        lines: list[str] = []
        size = 0
        for line in text_files.read_lines(path, self.encoding, MAX_DOCUMENT_CHARACTERS):
            is_blank = not line or line.isspace()
            is_full = size > MAX_DOCUMENT_CHARACTERS * (1 if is_blank else 2)
            is_boundary = (
                self.title.search(line) if self.title else is_blank and self.unit != 'file'
            )
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


class JsonLinesSource(FileSource):
    """Files of JSON lines: one object, and thus one document, per line."""

    description = 'JSON lines, one document per line; ** matches folders recursively'
    options = {**FileSource.options, 'field': Option('text', 'key of the text in each object')}

    def read(self) -> Iterator[Document]:
        for path in self.paths:
            self.report['files'] += 1
            for number, line in enumerate(text_files.read_lines(path, self.encoding), start=1):
                place = f'{path}:{number}'
                text = self._text(self.replace_undecodable(line, place), place)
                if text is not None:
                    yield Document(text, place)

    def _text(self, line: str, place: str) -> str | None:
        """The text in a line; None, and a count in `report`, if it has none."""
        if not line or line.isspace():
            return None
        try:
            record = json.loads(line)
        except ValueError:
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

"""Text sources: `open_source(spec)` gives the documents of a corpus as a stream.

A spec is `NAME:WHERE;option=value;…`: `docstrings`, `text:GLOB`, `jsonl:GLOB`, `tfds:NAME/CONFIG`.
"""

import collections
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from bert_jax import errors
from bert_jax.data import docstrings, tensorflow_import, text_files, tfds_folder

# A longer document of a `text` source is cut, so that memory stays bounded whatever the file size.
MAX_DOCUMENT_CHARACTERS = 2**22

_COMMON_OPTIONS = {'language': 'und', 'license': 'not stated'}
_ESCAPED_BYTE = re.compile('[\udc80-\udcff]')
_SURROGATE = re.compile('[\ud800-\udfff]')
_READ_ERRORS = (OSError, EOFError, zlib.error, UnicodeError)
_WIKI_MARKER = re.compile(r'\s*_START_(ARTICLE|SECTION|PARAGRAPH)_\s*')


@dataclass(frozen=True)
class Document:
    """One document: paragraphs are separated by a blank line, lines inside may be hard-wrapped."""

    text: str
    name: str


class Source:
    """A stream of documents with what is known about it; a kind of source is a subclass with
    `_read()`, which yields them.

    Attributes:
        spec: the line it was opened with.
        language: ISO 639 code, 'und' where it was not said.
        license: of the texts, as free text.
        report: counts of the last (or running) pass, such as `documents`, `bytes` (UTF-8) and
            everything that was replaced or left out.
        first: where each kind of trouble in `report` was met first.
    """

    options: dict[str, str] = {}

    def __init__(self, spec: str, where: str, options: dict[str, str]):
        self.spec = spec
        self.where = where
        self.options = options
        self.language = options['language']
        self.license = options['license']
        self.report = collections.Counter()
        self.first: dict[str, str] = {}

    def documents(self) -> Iterator[Document]:
        """Streams the documents in a fixed order; may be called again, which restarts `report`.

        Raises:
            UserError: a file cannot be read, or there is not one document in the whole source.
        """
        self.report.clear()
        self.first.clear()
        for document in self._read():
            if not document.text.strip():
                self._count('empty_documents', document.name)
                continue
            self.report['documents'] += 1
            self.report['bytes'] += _num_bytes(document.text)
            yield document
        if not self.report['documents']:
            raise errors.UserError(f'source {self.spec!r} holds no text ({self.summary()})')

    def summary(self) -> str:
        """One line, such as '25 documents, 17.1 MB; 3 undecodable bytes (first in a.txt)'."""
        text = f'{self.report["documents"]:,} documents, {self.report["bytes"] / 1e6:.1f} MB'
        for kind, count in self.report.items():
            if count and kind not in ('documents', 'bytes'):
                text += f'; {count:,} {kind.replace("_", " ")}'
                if kind in self.first:
                    text += f' (first in {self.first[kind]})'
        return text

    def _count(self, kind: str, place: str, number: int = 1):
        self.first.setdefault(kind, place)
        self.report[kind] += number

    def _decoded(self, text: str, place: str) -> str:
        """Replaces each byte that `surrogateescape` let through by U+FFFD and counts it."""
        if text.isascii() or not _ESCAPED_BYTE.search(text):
            return text
        text, number = _ESCAPED_BYTE.subn('\ufffd', text)
        self._count('undecodable_bytes', place, number)
        return text


class DocstringSource(Source):
    """The English documentation inside the installed Python packages, standard library included.

    Option `packages=a,b` keeps these top-level packages only. A few MB: read once, then kept.
    """

    options = {
        'language': 'en',
        'license': 'those of the installed packages (BSD, MIT, Apache-2.0, PSF and similar)',
        'packages': '',
    }

    def __init__(self, spec, where, options):
        super().__init__(spec, where, options)
        if where:
            raise errors.UserError(f'source {spec!r}: docstrings takes options only, no {where!r}')
        packages = tuple(name.strip() for name in options['packages'].split(',') if name.strip())
        self.files = docstrings.python_files(packages)
        missing = set(packages) - {file.package for file in self.files}
        if missing:
            raise errors.UserError(f'source {spec!r}: not installed: {", ".join(sorted(missing))}')
        self._kept: tuple[list[Document], collections.Counter] | None = None

    def _read(self):
        if self._kept is None:
            found, counts = [], collections.Counter()
            for name, text in docstrings.documents(self.files, counts):
                found.append(Document(text, name))
                yield found[-1]
            self._kept = found, counts
        else:
            yield from self._kept[0]
        self.report.update(self._kept[1])


class FileSource(Source):
    """What `text` and `jsonl` share: a (recursive) glob of plain or gzipped files."""

    options = {**_COMMON_OPTIONS, 'encoding': 'utf-8'}

    def __init__(self, spec, where, options):
        super().__init__(spec, where, options)
        self.paths = text_files.matching_files(where)
        if not self.paths:
            raise errors.UserError(f'source {spec!r}: no file matches {where!r}')
        text_files.check_encoding(options['encoding'], f'encoding of source {spec!r}')


class TextSource(FileSource):
    """Plain text. Option `documents` says what a document is.

    `documents=file` (default), `documents=blank_line` (a block of lines between blank lines), or
    `documents=title:REGEX` (each line in which REGEX is found starts one). A document of more than
    `MAX_DOCUMENT_CHARACTERS` is cut at the next blank line, or at the next line if it has none for
    as long again; every such cut is counted in `report['cut_documents']`.
    """

    options = {**FileSource.options, 'documents': 'file'}

    def __init__(self, spec, where, options):
        super().__init__(spec, where, options)
        kind, _, pattern = options['documents'].partition(':')
        if kind not in ('file', 'blank_line', 'title') or (kind == 'title') != bool(pattern):
            raise errors.UserError(
                f'source {spec!r}: documents={options["documents"]!r} is none of file, blank_line, '
                'title:REGEX'
            )
        self.kind = kind
        try:
            self.title = re.compile(pattern) if pattern else None
        except re.error as error:
            raise errors.UserError(f'source {spec!r}: bad pattern {pattern!r}: {error}') from None

    def _read(self):
        for path in self.paths:
            self.report['files'] += 1
            for number, lines in enumerate(self._blocks(path)):
                name = path if self.kind == 'file' and not number else f'{path}#{number}'
                yield Document(self._decoded('\n'.join(lines), path), name)

    def _blocks(self, path: str) -> Iterator[list[str]]:
        """The lines of each document of a file; with blank lines only, none."""
        lines, size = [], 0
        for line in text_files.read_lines(path, self.options['encoding'], MAX_DOCUMENT_CHARACTERS):
            blank = not line or line.isspace()
            full = size > MAX_DOCUMENT_CHARACTERS * (1 if blank else 2)
            starts = self.title.search(line) if self.title else blank and self.kind != 'file'
            if lines and (full or starts):
                if full and not starts:
                    self._count('cut_documents', path)
                yield lines
                lines, size = [], 0
            if lines or not blank:
                lines.append(line)
                size += len(line) + 1
        if lines:
            yield lines


class JsonLinesSource(FileSource):
    """JSON lines: the string in `field` (option, default `text`) of each line is a document."""

    options = {**FileSource.options, 'field': 'text'}

    def _read(self):
        for path in self.paths:
            self.report['files'] += 1
            for number, line in enumerate(
                text_files.read_lines(path, self.options['encoding']), start=1
            ):
                place = f'{path}:{number}'
                text = self._text(self._decoded(line, place), place)
                if text is not None:
                    yield Document(text, place)

    def _text(self, line: str, place: str) -> str | None:
        if not line or line.isspace():
            return None
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            self._count('malformed_lines', place)
            return None
        text = record.get(self.options['field'])
        if not isinstance(text, str):
            self._count('missing_field', place)
            return None
        if not text.isascii() and _SURROGATE.search(text):
            text, number = _SURROGATE.subn('\ufffd', text)
            self._count('lone_surrogates', place, number)
        return text


class TfdsSource(Source):
    """A TensorFlow Dataset already on disk; option `download=true` lets it fetch a missing one.

    Looked for in option `data_dir`, in $TFDS_DATA_DIR, in ~/tensorflow_datasets. The markers of
    wiki40b become the document's name and its paragraphs; as in BERT (section 3.1: "ignore lists,
    tables, and headers") its section titles are left out, and counted.
    """

    options = {
        **_COMMON_OPTIONS,
        'split': 'train',
        'field': 'text',
        'data_dir': '',
        'download': 'false',
    }

    def __init__(self, spec, where, options):
        super().__init__(spec, where, options)
        if options['download'] not in ('true', 'false'):
            raise errors.UserError(f'source {spec!r}: download must be true or false')
        self.builder = tfds_folder.open_builder(
            where,
            options['data_dir'],
            options['download'] == 'true',
            f'source {spec!r}',
            "add ';download=true' to fetch it, or point ';data_dir=…' at a copy",
        )
        self._check()
        config = self.builder.builder_config.name if self.builder.builder_config else ''
        if self.language == 'und' and re.fullmatch('[a-z]{2,3}', config):
            self.language = config
        stated = self.builder.info.as_proto.redistribution_info.license
        if stated and self.license == _COMMON_OPTIONS['license']:
            self.license = stated

    def _check(self):
        info, split = self.builder.info, self.options['split']
        if split.partition('[')[0] not in info.splits:
            raise errors.unknown(f'split of {self.where}', split, info.splits)
        if self.options['field'] not in info.features:
            raise errors.unknown(f'field of {self.where}', self.options['field'], info.features)

    def _read(self):
        tfds = tensorflow_import.tensorflow_datasets()
        examples = self.builder.as_dataset(
            split=self.options['split'],
            shuffle_files=False,
            read_config=tfds.ReadConfig(interleave_cycle_length=1),
        )
        field = self.options['field']
        examples = examples.map(lambda example: example[field])
        for number, raw in enumerate(tfds.as_numpy(examples)):
            name = f'{self.where}#{number}'
            text = self._decoded(raw.decode('utf-8', 'surrogateescape'), name)
            yield from self._articles(text, name)

    def _articles(self, text: str, name: str) -> Iterator[Document]:
        if '_START_' not in text:
            yield Document(text, name)
            return
        paragraphs = []
        before, *pieces = _WIKI_MARKER.split(text)
        if before.strip():
            paragraphs.append(before.strip())
        for kind, piece in zip(pieces[::2], pieces[1::2], strict=True):
            if kind == 'ARTICLE':
                if paragraphs:
                    yield Document('\n\n'.join(paragraphs), name)
                paragraphs, name = [], piece.strip() or name
            elif kind == 'SECTION':
                self.report['section_titles_left_out'] += 1
            else:
                parts = (part.strip() for part in piece.split('_NEWLINE_'))
                paragraphs += [part for part in parts if part]
        yield Document('\n\n'.join(paragraphs), name)


SOURCES: dict[str, type[Source]] = {
    'docstrings': DocstringSource,
    'text': TextSource,
    'jsonl': JsonLinesSource,
    'tfds': TfdsSource,
}


def open_source(spec: str) -> Source:
    """Opens `NAME:WHERE;option=value;…`, for example 'text:books/*.txt;language=en'.

    Values are taken as they stand, blanks included; WHERE and values cannot contain ';'.

    Raises:
        UserError: unknown source or option, nothing found there.
    """
    head, *settings = spec.split(';')
    name, _, where = head.strip().partition(':')
    if name not in SOURCES:
        raise errors.unknown('source', name, SOURCES)
    kind = SOURCES[name]
    if not where and kind is not DocstringSource:
        raise errors.UserError(f'source {spec!r}: say what to read, as in {name}:…')
    options = dict(kind.options)
    for setting in settings:
        key, equals, value = setting.partition('=')
        if key.strip() not in options:
            raise errors.unknown(f'option of source {name}', key.strip(), options)
        if not equals:
            raise errors.UserError(f'source {spec!r}: option {key!r} has no value')
        options[key.strip()] = value
    return kind(spec, where, options)


def _num_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode('utf-8', 'replace'))

"""The interface of text sources."""

import abc
import collections
import socket
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from bert_jax import errors
from bert_jax.text import held_out, scripts
from bert_jax.types import JsonObject, JsonRecord


@dataclass(frozen=True)
class Document:
    """A document: paragraphs are separated by blank lines; lines may be hard-wrapped.

    Attributes:
        text: The text.
        name: Where the text is from, for messages.
        file_hash: Hash of the document's file, if files are held out as a whole.
    """

    text: str
    name: str
    file_hash: int | None = None

    def hash(self) -> int:
        """Return the hash that decides whether the document is held out."""
        return held_out.text_hash(self.text) if self.file_hash is None else self.file_hash


class Piece(NamedTuple):
    """A file of a source, or its documents that begin in a range of bytes.

    Attributes:
        path: The file.
        start: First byte of the range.
        stop: End of the range; None for the end of the file.
        size: Bytes of the file when the work was divided; None if the work is not divided.
    """

    path: str
    start: int = 0
    stop: int | None = None
    size: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether this is a whole file."""
        return not self.start and self.stop is None

    def check_size(self, size: int | None) -> None:
        """Raise UserError if the file has another size here than when the work was divided."""
        if self.size not in (None, size):
            fault = 'is missing' if size is None else f'has {size:,} bytes instead of {self.size:,}'
            raise errors.UserError(
                f'{self.path} {fault} on {socket.gethostname()}: all machines must see the same '
                'files'
            )

    def place(self, number: int, mark: str = '#') -> str:
        """Return the name of an entry of the piece, such as 'a.txt#3'."""
        after = f' after byte {self.start:,}' if self.start else ''
        return f'{self.path}{mark}{number}{after}'


class Option(NamedTuple):
    """An option of a source's spec: its default and a line for `--help`."""

    default: str
    help: str


COMMON_OPTIONS: Mapping[str, Option] = {
    'language': Option('und', 'ISO 639 code of the language'),
    'license': Option('not stated', 'license of the texts, recorded in the datasheet'),
    'sentences': Option('rules', 'how to split sentences: by "rules", or by "line", one per line'),
}


class Source(abc.ABC):
    """A stream of documents; a subclass implements `read`.

    Class attributes:
        location: The part after 'NAME:' in a spec, such as 'GLOB'; '' if there is none.
        description: One line for `--help`.
        options: Options of the spec.
        is_training_only: Whether no document may be held out.

    Attributes:
        spec: The spec this source was opened with.
        where: The location in the spec.
        settings: The value of each option.
        language: ISO 639 code; 'und' if unknown.
        license: License of the texts, free text.
        one_per_line: Whether every line is a sentence.
        report: Counts of the current or last pass: `documents`, `bytes` (of UTF-8 text), and each
            kind of replacement or omission.
        first_place: Problem in `report` → place of its first occurrence.
        bad_files: Error message of each file that was left out in the current or last pass.
        max_bad_share: Maximum share of bad files, and of bad lines in a file.
        position: Bytes that the current or last pass has read, out of `size`.
        identities: Identity (`text_files.identify`) of each file → its path.
    """

    location: ClassVar[str]
    description: ClassVar[str]
    options: ClassVar[Mapping[str, Option]] = COMMON_OPTIONS
    is_training_only: ClassVar[bool] = False

    def __init__(self, spec: str, where: str, settings: Mapping[str, str]):
        """Store the parsed spec. `settings` maps every option to its value."""
        self.spec = spec
        self.where = where
        self.settings = settings
        self.language = settings['language']
        self.license = settings['license']
        sentences = settings.get('sentences', 'rules')
        if sentences not in ('rules', 'line'):
            raise errors.UserError(f'source {spec!r}: sentences={sentences!r} is not rules or line')
        self.one_per_line = sentences == 'line'
        self.report: collections.Counter[str] = collections.Counter()
        self.first_place: dict[str, str] = {}
        self.bad_files: list[str] = []
        self.max_bad_share = 0.0
        self.position = 0
        self.identities: dict[Hashable, str] = {}

    def list_files(self) -> None:  # noqa: B027  (most sources need not implement it)
        """Find the files of the source, if it has any; call before `units` and `documents`."""

    def size(self) -> int | None:
        """Return how many bytes a pass reads, None if unknown; call before `position` is used."""
        return None

    def units(self, size: int) -> list[tuple[Piece, ...]]:
        """Divide the source into units of work of about `size` bytes, in order.

        The units that `merge` accepts together have the same documents as the whole source.
        """
        return [()]

    @abc.abstractmethod
    def read(self) -> Iterator[Document]:
        """Yield the documents, in the same order every time."""

    def read_unit(self, pieces: Sequence[Piece]) -> Iterator[Document]:
        """Yield the documents of a unit, in the same order every time."""
        return self.read()

    def documents(self) -> Iterator[Document]:
        """Yield all documents that have text; every call is a new pass with a new `report`.

        Raises:
            UserError: A file cannot be read, or the source has no text at all.
        """
        self.restart()
        yield from self._with_text(self.read())
        self.check_text()

    def documents_of(self, pieces: Sequence[Piece]) -> Iterator[Document]:
        """Yield the documents of a unit that have text; `report` counts only the unit."""
        Source.restart(self)  # without the counts of the whole source that a subclass adds
        yield from self._with_text(self.read_unit(pieces))

    def _with_text(self, documents: Iterable[Document]) -> Iterator[Document]:
        for document in documents:
            if not document.text.strip():
                self.count('empty_documents', document.name)
                continue
            self.report['documents'] += 1
            self.report['bytes'] += len(document.text.encode('utf-8', 'replace'))
            yield document

    def restart(self) -> None:
        """Begin a pass: `report` has only counts that are known before reading."""
        self.restore({'report': {}, 'first_place': {}, 'bad_files': []})
        self.position = 0

    def check_text(self) -> None:
        """Raise UserError if the last pass found no document."""
        if not self.report['documents']:
            raise errors.UserError(f'source {self.spec!r} has no text ({self.summary()})')

    def merge(self, units: Sequence[Sequence[Piece]], states: Sequence[JsonRecord]) -> list[bool]:
        """Combine the states of units that were read separately into the state of one pass.

        Args:
            units: The pieces of each unit, in the order of the source.
            states: The state of the source after reading each unit.

        Returns:
            Whether the documents of each unit are part of the source.
        """
        self.restart()
        kept = [self.add(pieces, state) for pieces, state in zip(units, states, strict=True)]
        self.check_text()
        return kept

    def add(self, pieces: Sequence[Piece], state: JsonObject) -> bool:
        """Add the state after the next unit; return whether its documents are in the source."""
        self.report.update(state['report'])
        self.first_place = {**state['first_place'], **self.first_place}
        self.bad_files += state['bad_files']
        return True

    def summary(self) -> str:
        """Return a line such as '25 documents, 17.1 MB; 3 undecodable bytes (first in a.txt)'."""
        text = f'{self.report["documents"]:,} documents, {self.report["bytes"] / 1e6:.1f} MB'
        for problem, number in self.report.items():
            if number and problem not in ('documents', 'bytes'):
                text += f'; {number:,} {problem.replace("_", " ")}'
                if problem in self.first_place:
                    text += f' (first in {self.first_place[problem]})'
        return text

    def unread_fields(self) -> list[str]:
        """Return the fields of the first document that are not read; call after a pass."""
        return []

    def state(self) -> JsonRecord:
        """Return the findings of a pass, as JSON, for `restore`."""
        names = ('report', 'first_place', 'bad_files')
        return {name: getattr(self, name).copy() for name in names}

    def restore(self, state: JsonObject) -> None:
        """Set the findings of a pass to those of `state`."""
        self.report = collections.Counter(state['report'])
        self.first_place = dict(state['first_place'])
        self.bad_files = list(state['bad_files'])

    def describe(self) -> JsonRecord:
        """Return the entry of the source in the manifest of a corpus."""
        names = ('spec', 'language', 'license')
        counts = {'report': dict(sorted(self.report.items())), 'bad_files': list(self.bad_files)}
        return {name: getattr(self, name) for name in names} | counts

    def count(self, problem: str, place: str, number: int = 1) -> None:
        """Add to the count of a problem in `report`."""
        self.first_place.setdefault(problem, place)
        self.report[problem] += number

    def replace_surrogates(self, text: str, place: str, problem: str = 'undecodable_bytes') -> str:
        """Replace surrogates, such as undecodable bytes, by U+FFFD, and count them."""
        text, number = scripts.replace_surrogates(text)
        if number:
            self.count(problem, place, number)
        return text

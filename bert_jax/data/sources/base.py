"""The interface of a text source."""

import abc
import collections
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from bert_jax import errors
from bert_jax.data import held_out, text_files


@dataclass(frozen=True)
class Document:
    """A document: paragraphs are separated by blank lines; lines may be hard-wrapped.

    Attributes:
        text: The text.
        name: Where it is from.
        file_hash: Hash of the whole file, if a file is held out as a whole.
    """

    text: str
    name: str
    file_hash: int | None = None

    def hash(self) -> int:
        """Return the hash that decides whether the document is held out."""
        return held_out.text_hash(self.text) if self.file_hash is None else self.file_hash


class Option(NamedTuple):
    """An option of a source's spec: its default and a line for `--help`."""

    default: str
    help: str


COMMON_OPTIONS: Mapping[str, Option] = {
    'language': Option('und', 'ISO 639 code of the language'),
    'license': Option('not stated', 'license of the texts, recorded in the datasheet'),
    'sentences': Option('rules', 'what a sentence is: "rules", found by rules; or "line", a line'),
}


class Source(abc.ABC):
    """A stream of documents. A kind of source is a subclass that implements `read`.

    Class attributes:
        location: What follows 'NAME:' in a spec, such as 'GLOB'; '' if nothing does.
        description: One line for `--help`.
        options: Options of the spec.
        is_training_only: Whether none of its documents is held out.

    Attributes:
        spec: The spec this source was opened with.
        where: The location in the spec.
        settings: The value of each option.
        language: ISO 639 code; 'und' if unknown.
        license: License of the texts, free text.
        one_per_line: Whether every line is a sentence.
        report: Counts of the current or last pass: `documents`, `bytes` (of UTF-8 text), and one
            for each kind of replacement or omission.
        first_place: The place of the first occurrence of each problem in `report`.
        bad_files: What is wrong with each file that was left out in the current or last pass.
        max_bad_share: Largest share of the files, and of the lines of a file, that may be bad.
        identities: What identifies each file that is read → its path; see `text_files.identify`.
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
        self.identities: dict[Hashable, str] = {}

    @abc.abstractmethod
    def read(self) -> Iterator[Document]:
        """Yield the documents, in the same order every time."""

    def documents(self) -> Iterator[Document]:
        """Yield the documents that have text; every call starts again, and so does `report`.

        Raises:
            UserError: A file cannot be read, or the source has no text at all.
        """
        self.report.clear()
        self.first_place.clear()
        self.bad_files.clear()
        for document in self.read():
            if not document.text.strip():
                self.count('empty_documents', document.name)
                continue
            self.report['documents'] += 1
            self.report['bytes'] += len(document.text.encode('utf-8', 'replace'))
            yield document
        if not self.report['documents']:
            raise errors.UserError(f'source {self.spec!r} has no text ({self.summary()})')

    def summary(self) -> str:
        """Return a line such as '25 documents, 17.1 MB; 3 undecodable bytes (first in a.txt)'."""
        text = f'{self.report["documents"]:,} documents, {self.report["bytes"] / 1e6:.1f} MB'
        for kind, number in self.report.items():
            if number and kind not in ('documents', 'bytes'):
                text += f'; {number:,} {kind.replace("_", " ")}'
                if kind in self.first_place:
                    text += f' (first in {self.first_place[kind]})'
        return text

    def state(self) -> dict[str, Any]:
        """Return what a pass has found, as JSON, for `restore`."""
        names = ('report', 'first_place', 'bad_files')
        return {name: getattr(self, name).copy() for name in names}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Replace a pass by the `state` after it."""
        self.report = collections.Counter(state['report'])
        self.first_place, self.bad_files = state['first_place'], state['bad_files']

    def describe(self) -> dict[str, Any]:
        """Return the source's entry in the manifest of a corpus."""
        names = ('spec', 'language', 'license')
        counts = {'report': dict(self.report), 'bad_files': list(self.bad_files)}
        return {name: getattr(self, name) for name in names} | counts

    def count(self, problem: str, place: str, number: int = 1) -> None:
        """Add to the count of a problem in `report`."""
        self.first_place.setdefault(problem, place)
        self.report[problem] += number

    def replace_undecodable(self, text: str, place: str) -> str:
        """Replace bytes that `surrogateescape` let through by U+FFFD, and count them."""
        text, number = text_files.replace_surrogates(text)
        if number:
            self.count('undecodable_bytes', place, number)
        return text

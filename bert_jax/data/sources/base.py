"""The interface of a text source."""

import abc
import collections
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from bert_jax import errors
from bert_jax.data import text_files


@dataclass(frozen=True)
class Document:
    """A document: paragraphs are separated by blank lines; lines may be hard-wrapped."""

    text: str
    name: str


class Option(NamedTuple):
    """An option of a source's spec: its default and a line for `--help`."""

    default: str
    help: str


COMMON_OPTIONS: Mapping[str, Option] = {
    'language': Option('und', 'ISO 639 code of the language'),
    'license': Option('not stated', 'license of the texts, recorded in the datasheet'),
}


class Source(abc.ABC):
    """A stream of documents. A kind of source is a subclass that implements `read`.

    Class attributes:
        location: What follows 'NAME:' in a spec, such as 'GLOB'; '' if nothing does.
        description: One line for `--help`.
        options: Options of the spec.

    Attributes:
        spec: The spec this source was opened with.
        where: The location in the spec.
        settings: The value of each option.
        language: ISO 639 code; 'und' if unknown.
        license: License of the texts, free text.
        report: Counts of the current or last pass: `documents`, `bytes` (of UTF-8 text), and one
            for each kind of replacement or omission.
        first_place: The place of the first occurrence of each problem in `report`.
    """

    location: ClassVar[str]
    description: ClassVar[str]
    options: ClassVar[Mapping[str, Option]] = COMMON_OPTIONS

    def __init__(self, spec: str, where: str, settings: Mapping[str, str]):
        """Store the parsed spec. `settings` maps every option to its value."""
        self.spec = spec
        self.where = where
        self.settings = settings
        self.language = settings['language']
        self.license = settings['license']
        self.report: collections.Counter[str] = collections.Counter()
        self.first_place: dict[str, str] = {}

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

    def describe(self) -> dict[str, Any]:
        """Return the source's entry in the manifest of a corpus."""
        names = ('spec', 'language', 'license')
        return {name: getattr(self, name) for name in names} | {'report': dict(self.report)}

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

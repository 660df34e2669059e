"""The source that reads the English docstrings of installed Python packages."""

import ast
import collections
import os
import pathlib
import re
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from bert_jax import errors
from bert_jax.text.sources.base import Document, Option, Piece, Source
from bert_jax.text.sources.docstring_prose import extract_prose

_MIN_SENTENCES = 3  # in a document
_SKIPPED_FOLDERS = {'site-packages', 'dist-packages', 'test', 'tests', 'testing', 'idle_test'}
_WORD = re.compile(r"[A-Za-z']+")


class DocstringSource(Source):
    """The English docstrings of the installed Python packages and the standard library.

    Each module and each class with enough prose is a document. Files are parsed, never imported.
    The text, a few MB, stays in memory after the first pass.
    """

    location = ''
    description = 'English docstrings of the installed Python packages and the standard library'
    options = {
        'language': Option('en', 'ISO 639 code of the language'),
        'license': Option(
            'those of the installed packages (BSD, MIT, Apache-2.0, PSF and similar)',
            'license of the texts, recorded in the datasheet',
        ),
        'packages': Option('', 'only these top-level packages, separated by commas'),
    }

    def __init__(self, spec: str, where: str, settings: Mapping[str, str]):
        super().__init__(spec, where, settings)
        packages = {name.strip() for name in settings['packages'].split(',') if name.strip()}
        self.files = python_files(packages)
        missing = packages - {file.package for file in self.files}
        if missing:
            raise errors.UserError(f'source {spec!r}: not installed: {", ".join(sorted(missing))}')
        self._cached: tuple[list[Document], collections.Counter[str]] | None = None

    def units(self, size: int) -> list[tuple[Piece, ...]]:
        """Return a single unit: a docstring can be a duplicate of any docstring before it."""
        return [(Piece('the code of the installed Python packages', size=self.size()),)]

    def size(self) -> int:
        return sum(map(_size, self.files))

    def read_unit(self, pieces: Sequence[Piece]) -> Iterator[Document]:
        for piece in pieces:
            piece.check_size(self.size())
        return self.read()

    def read(self) -> Iterator[Document]:
        if self._cached:
            documents, counts = self._cached
            size = self.size()
            for number, document in enumerate(documents, start=1):
                self.position = number * size // len(documents)
                yield document
        else:
            documents, counts = [], collections.Counter()
            for document in read_documents(self._files_with_position(), counts):
                documents.append(document)
                yield document
            self._cached = documents, counts
        self.report.update(counts)

    def _files_with_position(self) -> Iterator['PythonFile']:
        for file in self.files:
            yield file
            self.position += _size(file)


class PythonFile(NamedTuple):
    """A Python source file, its dotted module name and its top-level package."""

    path: str
    module: str
    package: str


def _size(file: PythonFile) -> int:
    try:
        return os.path.getsize(file.path)
    except OSError:  # such as a broken link
        return 0


def python_files(packages: set[str]) -> list[PythonFile]:
    """List the .py files of the standard library and site-packages, without tests, in order.

    Args:
        packages: Top-level packages or modules to list; all if empty.
    """
    paths = sysconfig.get_paths()
    files = []
    for root in dict.fromkeys(paths[kind] for kind in ('stdlib', 'purelib', 'platlib')):
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(set(folders) - _SKIPPED_FOLDERS)
            if folder == root and packages:
                folders[:] = [name for name in folders if name in packages]
            for name in sorted(names):
                if name.endswith('.py') and not name.startswith('test_') and '_test.' not in name:
                    path = os.path.join(folder, name)
                    module = os.path.relpath(path, root)[:-3].replace(os.sep, '.')
                    files.append(PythonFile(path, module, module.partition('.')[0]))
    return [file for file in files if not packages or file.package in packages]


def read_documents(
    files: Iterable[PythonFile], counts: collections.Counter[str]
) -> Iterator[Document]:
    """Yield a document for each module and class that has enough prose.

    A paragraph is a duplicate, and left out, if more than half of its text occurred before.

    Args:
        files: Files to read, in order.
        counts: Numbers of files, docstrings and omissions are added to it.
    """
    seen_strings: set[str] = set()
    seen_sentences: set[str] = set()
    for file in files:
        for name, strings in _docstrings(file, counts):
            new = [string for string in strings if string not in seen_strings]
            seen_strings.update(new)
            paragraphs = [paragraph for string in new for paragraph in extract_prose(string)]
            kept = [part for part in paragraphs if not _is_duplicate(part, seen_sentences)]
            counts['docstrings'] += len(strings)
            counts['duplicate_docstrings'] += len(strings) - len(new)
            counts['duplicate_paragraphs'] += len(paragraphs) - len(kept)
            if sum(map(len, kept)) >= _MIN_SENTENCES:
                yield Document('\n\n'.join(map(' '.join, kept)), name)
            elif kept:
                counts['short_documents'] += 1
            elif paragraphs or len(new) < len(strings):
                counts['duplicate_documents'] += 1
            elif strings:
                counts['documents_without_prose'] += 1


def _is_duplicate(sentences: list[str], seen: set[str]) -> bool:
    """Whether more than half of a paragraph's text is in `seen`; adds its sentences to `seen`."""
    num_duplicate = 0
    for sentence in sentences:
        key = ''.join(_WORD.findall(sentence)).lower()
        num_duplicate += len(sentence) * (key in seen)
        seen.add(key)
    return 2 * num_duplicate > sum(map(len, sentences))


def _docstrings(
    file: PythonFile, counts: collections.Counter[str]
) -> Iterator[tuple[str, list[str]]]:
    """Yield (name, docstrings) of a module with its functions and of each class."""
    try:
        code = pathlib.Path(file.path).read_bytes()
        if b'"""' not in code and b"'''" not in code:
            return
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            tree = ast.parse(code)
    except OSError:
        counts['unreadable_files'] += 1
        return
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        counts['unparsable_files'] += 1
        return
    counts['files'] += 1
    name = file.module.removesuffix('.__init__')
    stack: list[tuple[ast.Module | ast.ClassDef, str]] = [(tree, name)]
    while stack:
        node, name = stack.pop()
        strings = [ast.get_docstring(node)]
        classes = []
        for child in node.body:
            if isinstance(child, ast.ClassDef):
                classes.append((child, f'{name}.{child.name}'))
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                strings.append(ast.get_docstring(child))
        stack += reversed(classes)
        yield name, [string for string in strings if string]

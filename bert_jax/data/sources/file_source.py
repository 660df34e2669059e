"""The base of the sources that read files, which divides them into units of work."""

import abc
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_jax import errors
from bert_jax.data import held_out, text_files
from bert_jax.data.sources.base import COMMON_OPTIONS, Document, Option, Piece, Source
from bert_jax.storage import paths
from bert_jax.storage.bucket import BucketError


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

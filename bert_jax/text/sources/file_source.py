"""The base class of sources that read files; divides files into units of work."""

import abc
import contextlib
from collections.abc import Iterator, Mapping, Sequence

from bert_jax import errors
from bert_jax.storage import paths
from bert_jax.storage.path import BucketError
from bert_jax.text import held_out, text_files
from bert_jax.text.sources.base import COMMON_OPTIONS, Document, Option, Piece, Source
from bert_jax.types import JsonRecord


class FileSource(Source):
    """Base class of sources that read files.

    A subclass implements `read_piece` and `parts`, and may override `find_files` and `can_divide`.
    A bad file is counted and left out from the place where it fails; more bad files than
    `max_bad_share` are an error.

    Attributes:
        paths: The files, in order. A file with several paths (links) is read once.
    """

    location = 'GLOB'
    options = {
        **COMMON_OPTIONS,
        'held_out_by': Option('document', 'unit that is held out as a whole: "document" or "file"'),
    }

    def __init__(self, spec: str, where: str, settings: Mapping[str, str]):
        super().__init__(spec, where, settings)
        self.paths: list[str] = []
        self._repeated: list[str] = []  # further paths of these files
        self._failed = ''  # the last bad file among the divided files
        self._sizes: dict[str, int] = {}  # path → bytes
        if settings['held_out_by'] not in ('document', 'file'):
            raise errors.UserError(
                f'source {spec!r}: held_out_by={settings["held_out_by"]!r} is not document or file'
            )

    def list_files(self) -> None:
        matches = self.find_files()
        if not matches:
            from bert_jax.storage import wrong_paths  # only to say what is wrong

            reason = wrong_paths.explain_glob(self.where, text_files.matching_files)
            raise errors.UserError(f'source {self.spec!r}: {reason}')
        for path in matches:
            self.identities.setdefault(text_files.identify(path), path)
        self.paths = list(self.identities.values())
        self._repeated = sorted(set(matches).difference(self.paths))

    def find_files(self) -> list[str]:
        """Return the paths that match the glob `where`."""
        return text_files.matching_files(self.where)

    def size(self) -> int:
        self._sizes = self.file_sizes()
        return sum(self._sizes.values())

    def file_sizes(self) -> dict[str, int]:
        """Return the bytes of each file; missing files are left out."""
        statuses = paths.statuses(self.paths)
        return {path: status.st_size for path, status in statuses.items()}

    def position_in_file(self) -> int:
        """Return how many bytes of the current file are read."""
        return 0

    def units(self, size: int) -> list[tuple[Piece, ...]]:
        """Return ranges of large files that can be divided, and groups of other files."""
        sizes = self.file_sizes()
        units: list[tuple[Piece, ...]] = []
        group: list[Piece] = []
        for path in self.paths:
            file_size = sizes.get(path)
            if file_size is not None and file_size > size and self.can_divide(path):
                units += [tuple(group)] if group else []
                group = []
                starts = range(0, file_size, size)
                ranges = zip(starts, [*starts[1:], None], strict=True)
                units += [(Piece(path, start, stop, file_size),) for start, stop in ranges]
                continue
            group.append(Piece(path, size=file_size))
            if sum(piece.size or 0 for piece in group) >= size:
                units.append(tuple(group))
                group = []
        return units + ([tuple(group)] if group else [])

    def can_divide(self, path: str) -> bool:
        """Whether `read_piece` can read ranges of a file; if not, it ignores `stop`."""
        return self.settings['held_out_by'] == 'document'

    @abc.abstractmethod
    def read_piece(self, piece: Piece, file_hash: int | None) -> Iterator[Document]:
        """Yield the documents of a file, or the documents that begin in a range of it.

        Args:
            piece: The range. All documents of an indivisible file begin at its first byte.
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
            if piece.size is not None:
                status = paths.statuses([piece.path]).get(piece.path)
                piece.check_size(status and status.st_size)
            self.report['files'] += not piece.start
            start = self.position
            with self._bad_file(piece.path):
                for document in self.read_piece(piece, self.file_hash(piece.path)):
                    self.position = max(self.position, start + self.position_in_file())
                    yield document
                if piece.is_whole:
                    self.end_file(piece.path)
            self.position = max(self.position, start + self._sizes.get(piece.path, 0))

    @contextlib.contextmanager
    def _bad_file(self, path: str) -> Iterator[None]:
        """Count a file as bad, instead of failing, if the block raises a UserError."""
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
        """Return the hash of a file if files are held out as a whole, else None."""
        if self.settings['held_out_by'] == 'document':
            return None
        return held_out.hash_of_parts(self.parts(path))

    def end_file(self, path: str) -> None:
        """Raise UserError if a file that was read to its end is bad."""

    def add(self, pieces: Sequence[Piece], state: JsonRecord) -> bool:
        """Add the state after the next unit; reject units of a divided file after its failure."""
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

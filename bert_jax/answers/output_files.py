"""How answers become a file: lines of text, or vectors of NumPy.

Answers are appended to the files of an unfinished output (`PartialFiles`), a limited number at a
time, and are not kept in memory.
"""

import shutil
import zipfile
from collections.abc import Callable, Iterable
from typing import IO, Any, NamedTuple, Protocol

import numpy as np

from bert_jax.storage.partial_files import PartialFiles
from bert_jax.types import JsonObject

_LINES, _EMBEDDINGS, _OFFSETS, _SPANS = 'lines', 'embeddings', 'offsets', 'spans'
_COPIED_BYTES = 2**20  # at a time


class OutputFile(Protocol):
    """A kind of file.

    Attributes:
        state: what the process that resumes needs to know, JSON values by name.
    """

    state: JsonObject

    def add(self, files: PartialFiles, results: Iterable[Any]) -> None:
        """Append the results for some rows."""

    def finish(self, files: PartialFiles) -> str:
        """Return the name of the complete file in the folder of `files`."""


class TextFile:
    """A file of text, to which each record adds one or more lines."""

    def __init__(self, to_text: Callable[[Any], str]) -> None:
        """Take a function that returns the text of a record with its line ends."""
        self.state: JsonObject = {}
        self._to_text = to_text

    def add(self, files: PartialFiles, results: Iterable[Any]) -> None:
        """See `OutputFile`."""
        files.append(_LINES, b'')  # there may be no records
        for record in results:
            files.append(_LINES, self._to_text(record).encode())

    def finish(self, files: PartialFiles) -> str:
        """See `OutputFile`."""
        return _LINES


class Vectors(NamedTuple):
    """The vectors of a text.

    Attributes:
        vectors: float32, [D] or [L + 1, D] for the text, or one such array for each of its words.
        spans: int64 [W, 2], the characters of the words, end exclusive; None without words.
    """

    vectors: np.ndarray
    spans: np.ndarray | None = None


class VectorFile:
    """A NumPy .npz with `embeddings`, and for groups of vectors `offsets` and `spans`."""

    def __init__(self, is_grouped: bool) -> None:
        """Choose the arrays.

        Args:
            is_grouped: whether a text has any number of vectors, not one; `offsets` [texts + 1] is
                then the index of the first vector of each text.
        """
        self.state: JsonObject = {'texts': 0, 'vectors': 0, 'shape': []}
        self._is_grouped = is_grouped

    def add(self, files: PartialFiles, results: Iterable[Vectors]) -> None:
        """See `OutputFile`."""
        for vectors, text_spans in results:
            rows = np.asarray(vectors if self._is_grouped else vectors[None], '<f4')
            files.append(_EMBEDDINGS, rows.tobytes())
            self.state['texts'] += 1
            self.state['vectors'] += len(rows)
            self.state['shape'] = list(rows.shape[1:])
            files.append(_OFFSETS, np.array(self.state['vectors'], '<i8').tobytes())
            if text_spans is not None:
                files.append(_SPANS, np.asarray(text_spans, '<i8').tobytes())

    def finish(self, files: PartialFiles) -> str:
        """See `OutputFile`; needs space for the vectors again, whose number the header has."""
        files.close()
        number, spans = self.state['vectors'], files.folder / _SPANS
        shapes: dict[str, tuple[int, ...]] = {_EMBEDDINGS: (number, *self.state['shape'])}
        if self._is_grouped:
            shapes[_OFFSETS] = (self.state['texts'] + 1,)
        if spans.exists():
            shapes[_SPANS] = (spans.stat().st_size // 16, 2)
        name = 'vectors.npz'
        with zipfile.ZipFile(files.folder / name, 'w') as archive:
            for part, shape in shapes.items():
                with (
                    archive.open(f'{part}.npy', 'w', force_zip64=True) as entry,
                    open(files.folder / part, 'rb') as content,
                ):
                    _write_header(entry, part, shape)
                    shutil.copyfileobj(content, entry, _COPIED_BYTES)
        return name


def _write_header(entry: IO[bytes], part: str, shape: tuple[int, ...]) -> None:
    """Write what comes before the content of a file."""
    header = {'descr': '<f4' if part == _EMBEDDINGS else '<i8', 'fortran_order': False}
    write = np.lib.format.write_array_header_1_0
    if part == _EMBEDDINGS:
        write = np.lib.format.write_array_header_2_0
    write(entry, header | {'shape': shape})
    if part == _OFFSETS:
        entry.write(np.zeros(1, '<i8').tobytes())

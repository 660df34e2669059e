"""Writes vectors to a NumPy .npz file as they are computed, without holding all in memory."""

import shutil
import tempfile
import zipfile
from collections.abc import Iterable
from typing import BinaryIO, NamedTuple

import numpy as np


class Vectors(NamedTuple):
    """The vectors of a text.

    Attributes:
        vectors: float32, [D] or [L + 1, D] for the text, or one such array for each of its words.
        spans: int64 [W, 2], the characters of the words, end exclusive; None without words.
    """

    vectors: np.ndarray
    spans: np.ndarray | None = None


def write(file: BinaryIO, results: Iterable[Vectors], folder: str, is_grouped: bool) -> None:
    """Write `embeddings`, and for groups `offsets` and `spans`.

    Args:
        file: gets the .npz.
        results: the vectors of each text.
        folder: for a temporary file of the size of the vectors, because the .npz starts with their
            number.
        is_grouped: whether a text has any number of vectors, not one; `offsets` [texts + 1] is then
            the index of the first vector of each text.
    """
    counts, spans, shape = [0], [], (0,)
    with tempfile.TemporaryFile(dir=folder) as spool, zipfile.ZipFile(file, 'w') as archive:
        for vectors, text_spans in results:
            rows = np.asarray(vectors if is_grouped else vectors[None], '<f4')
            spool.write(rows.tobytes())
            counts.append(len(rows))
            shape = rows.shape[1:]
            if text_spans is not None:
                spans.append(text_spans)
        spool.seek(0)
        header = {'descr': '<f4', 'fortran_order': False, 'shape': (sum(counts), *shape)}
        with archive.open('embeddings.npy', 'w', force_zip64=True) as entry:
            np.lib.format.write_array_header_2_0(entry, header)
            shutil.copyfileobj(spool, entry, 2**20)
        arrays = {'offsets': np.cumsum(counts)} if is_grouped else {}
        arrays |= {'spans': np.concatenate(spans)} if spans else {}
        for name, array in arrays.items():
            with archive.open(f'{name}.npy', 'w', force_zip64=True) as entry:
                np.save(entry, array)

"""Dense vectors in a quarter or a thirty-second of their memory, whose best are scored again.

A search compares queries, in float32, with int8 or binary vectors of the documents, and takes the
scores of the best ones from the float32 vectors, which stay on the disk. So its results are exact
among the candidates, and a document is missed only if its compact vector is not among them.
"""

import dataclasses

import numpy as np

from bert_jax.errors import UserError
from bert_jax.inference import nearest
from bert_jax.inference.nearest import Nearest

PRECISIONS = ('float32', 'int8', 'binary')
_BLOCK = 4096  # vectors that are converted at a time


@dataclasses.dataclass(frozen=True, eq=False)
class CompactVectors:
    """Vectors of documents, read as float32 in blocks, as `nearest.search` does.

    Attributes:
        codes_NX: int8 [N, D]; or of signs uint8 [N, ⌈D / 8⌉], a bit for each number.
        scales_N: float32, factors of int8 vectors; empty for signs.
        size: D.
    """

    codes_NX: np.ndarray
    scales_N: np.ndarray
    size: int

    @classmethod
    def of(cls, vectors_ND: np.ndarray, precision: str) -> 'CompactVectors':
        """Convert vectors, which may be memory-mapped: one block of them is read at a time."""
        blocks = [
            _convert(np.asarray(vectors_ND[first : first + _BLOCK]), precision)
            for first in range(0, len(vectors_ND), _BLOCK)
        ]
        codes, scales = zip(*blocks, strict=True)
        return cls(np.concatenate(codes), np.concatenate(scales), vectors_ND.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """N and D."""
        return len(self.codes_NX), self.size

    @property
    def nbytes(self) -> int:
        """The memory of the vectors."""
        return self.codes_NX.nbytes + self.scales_N.nbytes

    def __len__(self) -> int:
        return len(self.codes_NX)

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Return a block of the vectors, float32; signs are −1 and 1."""
        codes = self.codes_NX[rows]
        if len(self.scales_N):
            return np.asarray(codes.astype(np.float32) * self.scales_N[rows, None])
        bits = np.unpackbits(codes, axis=1, count=self.size)
        return np.asarray(2 * bits.astype(np.float32) - 1)


def _convert(vectors_ND: np.ndarray, precision: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the codes and the scales of a block."""
    if precision == 'binary':
        return np.packbits(vectors_ND > 0, axis=1), np.zeros(0, np.float32)
    return to_int8(vectors_ND)


def to_int8(vectors_ND: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Round vectors to int8 [N, D], and return the factor of each, float32 [N]."""
    largest_N = np.abs(vectors_ND).max(axis=1, initial=0)
    scales_N = np.maximum(largest_N, np.float32(1e-12)) / np.float32(127)
    return np.rint(vectors_ND / scales_N[:, None]).astype(np.int8), scales_N


def search(
    queries_QD: np.ndarray,
    compact: CompactVectors,
    vectors_ND: np.ndarray,
    number: int,
    candidates: int,
) -> Nearest:
    """Find the nearest documents of each query, as `nearest.search` does.

    Args:
        queries_QD: float32.
        compact: the vectors that are compared.
        vectors_ND: float32, the same vectors; those of candidates are read.
        number: how many to find.
        candidates: how many of the best compact vectors are scored again.

    Raises:
        UserError: there are fewer candidates than documents to find.
    """
    if candidates < number:
        raise UserError(f'{candidates} candidates are fewer than the {number} documents to find')
    # `nearest.search` reads blocks of rows, which `compact` makes float32 one at a time.
    found_QC = nearest.search(queries_QD, compact, candidates).documents_QK
    scores_QC = np.array(
        [vectors_ND[row] @ query_D for row, query_D in zip(found_QC, queries_QD, strict=True)],
        np.float32,
    ).reshape(found_QC.shape)
    # Candidates in the order of the documents, so of equal scores the earlier document is first.
    by_number_QC = np.argsort(found_QC, axis=1)
    found_QC, scores_QC = (np.take_along_axis(x, by_number_QC, 1) for x in (found_QC, scores_QC))
    order_QK = np.argsort(-scores_QC, axis=1, kind='stable')[:, :number]
    return Nearest(*(np.take_along_axis(x, order_QK, 1) for x in (scores_QC, found_QC)))

"""How often an attention head attends most to the syntactic head or dependent of a word.

Source: Clark et al. 2019, "What Does BERT Look At?", section 4.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

OFFSETS = tuple(offset for offset in range(-10, 11) if offset)
DIRECTIONS = ('dependent to head', 'head to dependent')


class HeadCounts(NamedTuple):
    """Counts by group of documents G and relation R.

    Attributes:
        hits_GRKLH: int32, correct guesses of each attention head, in both DIRECTIONS (K).
        offset_hits_GRKO: int32, correct guesses of each fixed offset in OFFSETS.
        totals_GR: int32, number of dependencies.
    """

    hits_GRKLH: np.ndarray
    offset_hits_GRKO: np.ndarray
    totals_GR: np.ndarray

    def add(
        self, group: int, attention_LHWW: np.ndarray, heads: Sequence[int], relations: Sequence[int]
    ) -> None:
        """Add the counts of a sentence, in place.

        Args:
            group: the group of its document.
            attention_LHWW: attention from each word (third axis) to each word.
            heads: index of the syntactic head of each word; −1 for none.
            relations: number of the relation of each word to its head; −1: not counted.
        """
        guesses_LHW = most_attended(attention_LHWW)
        for word, (head, relation) in enumerate(zip(heads, relations, strict=True)):
            if head < 0 or relation < 0:
                continue
            self.hits_GRKLH[group, relation, 0] += guesses_LHW[..., word] == head
            self.hits_GRKLH[group, relation, 1] += guesses_LHW[..., head] == word
            self.totals_GR[group, relation] += 1
            if abs(head - word) <= OFFSETS[-1]:
                self.offset_hits_GRKO[group, relation, 0, OFFSETS.index(head - word)] += 1
                self.offset_hits_GRKO[group, relation, 1, OFFSETS.index(word - head)] += 1


def no_counts(groups: int, relations: int, layers: int, heads: int) -> HeadCounts:
    """Zero counts."""
    return HeadCounts(
        np.zeros((groups, relations, 2, layers, heads), np.int32),
        np.zeros((groups, relations, 2, len(OFFSETS)), np.int32),
        np.zeros((groups, relations), np.int32),
    )


def most_attended(attention_LHWW: np.ndarray) -> np.ndarray:
    """The index of the other word that each word attends to most: int64 [L, H, W]."""
    size = attention_LHWW.shape[-1]
    others_LHWW = np.where(np.eye(size, dtype=bool), -np.inf, attention_LHWW)
    return np.asarray(others_LHWW.argmax(-1))

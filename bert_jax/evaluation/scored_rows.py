"""Rows of a model's input for scoring: which tokens are hidden, and which probabilities are read.

A masked language model gives a text no probability. Its pseudo-log-likelihood is the sum of the log
probabilities of its tokens, each hidden in a row of its own (Salazar et al. 2020, "Masked Language
Model Scoring", section 2). In the variant `word_l2r` the later subwords of the same word are hidden
too (Kauf and Ivanova 2023, "A Better Way to Do Masked Language Model Scoring"): otherwise a rare
word is easily guessed from its own other subwords. A causal model needs one row for a text.
"""

import dataclasses
import difflib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.data.tokenizers import Tokenizer, word_starts
from bert_jax.errors import UserError, unknown

VARIANTS = ('tokens', 'word_l2r')


class ScoredRow(NamedTuple):
    """A row of input and the log probabilities to read from it.

    Attributes:
        ids: int32 [T], special tokens included, with the hidden tokens as [MASK].
        positions: int32 [P], the positions whose predictions are read.
        targets: int32 [P], the tokens whose log probabilities are read there.
    """

    ids: np.ndarray
    positions: np.ndarray
    targets: np.ndarray


@dataclasses.dataclass(frozen=True)
class RowMaker:
    """Makes the rows that score a text.

    Attributes:
        mask_id: id of [MASK].
        is_word_start: bool [V], for the variant `word_l2r`; else None.
        is_causal: whether the model predicts each token from those to its left.
    """

    mask_id: int
    is_word_start: np.ndarray | None = None
    is_causal: bool = False

    @classmethod
    def of(
        cls, tokenizer: Tokenizer, variant: str = 'tokens', is_causal: bool = False
    ) -> 'RowMaker':
        """Create one for a tokenizer.

        A token starts a word if the vocabulary marks it so, or if it is punctuation.

        Raises:
            UserError: unknown variant, or one that the model or its vocabulary does not have.
        """
        if variant not in VARIANTS:
            raise unknown('variant', variant, VARIANTS)
        if variant == 'tokens':
            return cls(tokenizer.mask_id, None, is_causal)
        if is_causal:
            raise UserError('the variant word_l2r is one of masked language models; this is causal')
        starts = word_starts.find(tokenizer, 'punctuation', 'subwords')
        if starts is None:
            raise UserError('the variant word_l2r needs a vocabulary that marks word starts')
        return cls(tokenizer.mask_id, starts)

    def rows(self, ids_T: np.ndarray, positions: Sequence[int] | np.ndarray) -> list[ScoredRow]:
        """Return the rows that give the log probabilities of some tokens of a text, in order.

        Args:
            ids_T: int32 [T], the row of the text, special tokens included.
            positions: the tokens to score.
        """
        ids_T, positions_P = ids_T.astype(np.int32), np.asarray(positions, np.int32)
        if self.is_causal:
            return (
                [ScoredRow(ids_T, positions_P - 1, ids_T[positions_P])] if len(positions_P) else []
            )
        stops_P = (
            positions_P + 1 if self.is_word_start is None else self._word_ends(ids_T, positions_P)
        )
        rows = []
        for position, stop in zip(positions_P.tolist(), stops_P.tolist(), strict=True):
            masked_T = ids_T.copy()
            masked_T[position:stop] = self.mask_id
            slot = slice(position, position + 1)
            rows.append(ScoredRow(masked_T, np.array([position], np.int32), ids_T[slot]))
        return rows

    def _word_ends(self, ids_T: np.ndarray, positions_P: np.ndarray) -> np.ndarray:
        """The position after the word of each token; [SEP] ends the last word."""
        assert self.is_word_start is not None
        starts = np.flatnonzero(np.append(self.is_word_start[ids_T[:-1]], [True]))
        return starts[np.searchsorted(starts, positions_P, side='right')]


def add_special(tokenizer: Tokenizer, ids: np.ndarray) -> np.ndarray:
    """Return the row of a text, int32: its ids between [CLS] and [SEP]."""
    return np.concatenate([[tokenizer.cls_id], ids, [tokenizer.sep_id]]).astype(np.int32)


def encode_rows(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    """Tokenize texts; return the row of each, int32."""
    flat_ids, lengths = tokenizer.encode_ids(texts)
    encoded = np.split(flat_ids, np.cumsum(lengths))[:-1]
    return [add_special(tokenizer, ids) for ids in encoded]


def shared_positions(a_T: np.ndarray, b_U: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens that two sentences share, without the first and the last one.

    Source: nyu-mll/crows-pairs, metric.py, get_span and mask_unigram: the blocks that difflib finds
    equal in the ids, special tokens included.

    Args:
        a_T, b_U: rows with special tokens.

    Returns:
        Positions in a_T and positions in b_U, as many of them.
    """
    matcher = difflib.SequenceMatcher(None, a_T.tolist(), b_U.tolist())
    pairs = [
        (i, j)
        for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        if tag == 'equal'
        for i, j in zip(range(i1, i2), range(j1, j2), strict=True)
    ]
    first, second = np.array(pairs[1:-1], np.int32).reshape(-1, 2).T
    return first, second


def slot_rows(ids_T: np.ndarray, slot: slice, mask_id: int) -> Iterator[ScoredRow]:
    """Yield rows that score the tokens of a slot left to right, each as the slot's last token.

    The tokens before it in the slot are visible, those after it are left out. Source:
    moinnadeem/StereoSet, code/dataloader.py, IntrasentenceLoader.

    Args:
        ids_T: int32 [T], the row of the text with the slot filled, special tokens included.
        slot: the positions of the slot.
        mask_id: id of [MASK].
    """
    for position in range(slot.start, slot.stop):
        ids = np.concatenate([ids_T[:position], [mask_id], ids_T[slot.stop :]]).astype(np.int32)
        yield ScoredRow(ids, np.array([position], np.int32), ids_T[position : position + 1])

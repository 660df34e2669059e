"""Input rows that score a text: which tokens are masked, and which probabilities are read.

A masked language model assigns no probability to a text. Instead, the pseudo-log-likelihood sums
the log probabilities of all tokens, each masked in its own row (Salazar et al. 2020, "Masked
Language Model Scoring", section 2). The variant `word_l2r` also masks the later subwords of the
same word (Kauf and Ivanova 2023, "A Better Way to Do Masked Language Model Scoring"): otherwise a
rare word is easily guessed from its own subwords. A causal model needs one row for a text.
"""

import dataclasses
import difflib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.errors import UserError, unknown
from bert_jax.tokenizers import Tokenizer, word_starts

VARIANTS = ('tokens', 'word_l2r')


class ScoredRow(NamedTuple):
    """A row of input and the log probabilities to read from it.

    Attributes:
        ids: int32 [T], with special tokens, and [MASK] in place of masked tokens.
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
        mask_id: id of [MASK]; not read for a causal model.
        is_word_start: bool [V], for the variant `word_l2r`; else None.
        is_causal: whether the model predicts each token from the tokens to its left.
    """

    mask_id: int
    is_word_start: np.ndarray | None = None
    is_causal: bool = False

    @classmethod
    def of(
        cls, tokenizer: Tokenizer, variant: str = 'tokens', is_causal: bool = False
    ) -> 'RowMaker':
        """Create a maker for a tokenizer.

        A token starts a word if the vocabulary marks it as a word start, or if it is punctuation.

        Raises:
            UserError: the variant is unknown, or the model or vocabulary does not support it.
        """
        if variant not in VARIANTS:
            raise unknown('variant', variant, VARIANTS)
        if is_causal and variant != 'tokens':
            raise UserError(f'the variant {variant} needs a masked language model; this is causal')
        if is_causal:
            return cls(-1, None, is_causal)
        if variant == 'tokens':
            return cls(tokenizer.mask_id)
        starts = word_starts.find(tokenizer, 'punctuation', 'subwords')
        if starts is None:
            raise UserError('the variant word_l2r needs a vocabulary that marks word starts')
        return cls(tokenizer.mask_id, starts)

    def rows(self, ids_T: np.ndarray, positions: Sequence[int] | np.ndarray) -> list[ScoredRow]:
        """Return the rows that score some tokens of a text, in order.

        Args:
            ids_T: int32 [T], the row of the text, with special tokens.
            positions: the positions of the tokens to score.
        """
        ids_T, positions_P = ids_T.astype(np.int32), np.asarray(positions, np.int32)
        if not len(positions_P):
            return []
        if self.is_causal:
            return [ScoredRow(ids_T, positions_P - 1, ids_T[positions_P])]
        stops_P: np.ndarray = positions_P + 1
        if self.is_word_start is not None:  # mask up to the next word; [SEP] ends the last one
            starts = np.flatnonzero(np.append(self.is_word_start[ids_T[:-1]], [True]))
            stops_P = starts[np.searchsorted(starts, positions_P, side='right')]
        rows = []
        for position, stop in zip(positions_P.tolist(), stops_P.tolist(), strict=True):
            masked_T = ids_T.copy()
            masked_T[position:stop] = self.mask_id
            slot = slice(position, position + 1)
            rows.append(ScoredRow(masked_T, np.array([position], np.int32), ids_T[slot]))
        return rows


def add_special(tokenizer: Tokenizer, ids: np.ndarray) -> np.ndarray:
    """Return the row of a text, int32: its ids between [CLS] and [SEP], or before [SEP] [CLS]."""
    if tokenizer.is_cls_last:
        return np.concatenate([ids, [tokenizer.sep_id, tokenizer.cls_id]]).astype(np.int32)
    return np.concatenate([[tokenizer.cls_id], ids, [tokenizer.sep_id]]).astype(np.int32)


def encode_rows(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    """Tokenize texts; return the row of each, int32."""
    flat_ids, lengths = tokenizer.encode_ids(texts, special=True)
    encoded = np.split(flat_ids, np.cumsum(lengths))[:-1]
    return [add_special(tokenizer, ids) for ids in encoded]


def shared_positions(a_T: np.ndarray, b_U: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the tokens that two sentences share, except the first and last.

    Shared tokens are the equal blocks that difflib finds in the ids, special tokens included.
    Source: nyu-mll/crows-pairs, metric.py, get_span and mask_unigram.

    Args:
        a_T, b_U: rows with special tokens.

    Returns:
        Positions in a_T and the corresponding positions in b_U.
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
    """Yield rows that score the tokens of a slot from left to right.

    Earlier tokens of the slot are visible; later tokens are removed from the row. Source:
    moinnadeem/StereoSet, code/dataloader.py, IntrasentenceLoader.

    Args:
        ids_T: int32 [T], the row of the text with the slot filled and special tokens.
        slot: the positions of the slot.
        mask_id: id of [MASK].
    """
    for position in range(slot.start, slot.stop):
        ids = np.concatenate([ids_T[:position], [mask_id], ids_T[slot.stop :]]).astype(np.int32)
        yield ScoredRow(ids, np.array([position], np.int32), ids_T[position : position + 1])

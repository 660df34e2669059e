"""Scores of sentences, of the tokens that two sentences share, and of a slot in a sentence.

All functions stream: they take any number of texts and hold a few hundred in memory. Scores are
sums of log probabilities in nats; see metrics/scored_rows.py.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from bert_jax.errors import UserError
from bert_jax.inference.predictor import Predictor
from bert_jax.metrics.scored_rows import (
    RowMaker,
    ScoredRow,
    add_special,
    encode_rows,
    shared_positions,
    slot_rows,
)

_TEXTS_AT_ONCE = 512  # texts of similar lengths share a batch
Span = tuple[int, int]  # characters of a text, end exclusive
Item = TypeVar('Item')


def log_probabilities(
    predictor: Predictor, texts: Iterable[str], variant: str = 'tokens'
) -> Iterator[np.ndarray]:
    """Yield the log probability of each token of each text, float32 [tokens]."""
    for group in _groups(texts):
        for scored in predictor.pseudo_likelihood(group, variant=variant):
            yield scored.log_probabilities


def sums(predictor: Predictor, texts: Iterable[str], variant: str = 'tokens') -> Iterator[float]:
    """Yield the (pseudo-)log-likelihood of each text."""
    for log_p_T in log_probabilities(predictor, texts, variant):
        yield _sum([log_p_T])


def shared_sums(
    predictor: Predictor, pairs: Iterable[Sequence[str]], variant: str = 'tokens'
) -> Iterator[tuple[float, float]]:
    """Yield the sums over the tokens that both sentences of a pair share (CrowS-Pairs)."""
    maker = RowMaker.of(predictor.tokenizer, variant, predictor.is_causal)

    def rows_of(pair: Sequence[str]) -> list[list[ScoredRow]]:
        a_T, b_T = encode_rows(predictor.tokenizer, pair)
        a_positions, b_positions = shared_positions(a_T, b_T)
        return [maker.rows(a_T, a_positions), maker.rows(b_T, b_positions)]

    for first, second in _grouped_rows(predictor, pairs, rows_of):
        yield _sum(first), _sum(second)


def slot_log_probabilities(
    predictor: Predictor, texts: Iterable[tuple[str, Span]]
) -> Iterator[np.ndarray]:
    """Yield the log probability of each token of a slot, left to right (StereoSet).

    Args:
        texts: texts with their slots filled, and the characters of the slot.

    Raises:
        UserError: a slot has no tokens.
    """

    def rows_of(text: tuple[str, Span]) -> list[list[ScoredRow]]:
        ids, slot = locate(predictor, *text)
        return [list(slot_rows(ids, slot, predictor.tokenizer.mask_id))]

    for (log_p,) in _grouped_rows(predictor, texts, rows_of):
        yield np.concatenate(log_p)


def of_rows(predictor: Predictor, rows: Iterable[ScoredRow]) -> Iterator[np.ndarray]:
    """Yield the log probabilities of the targets of each row, float32 [P]."""
    for ((log_p_P,),) in _grouped_rows(predictor, rows, lambda row: [[row]]):
        yield log_p_P


def locate(predictor: Predictor, text: str, span: Span) -> tuple[np.ndarray, slice]:
    """The row of a text, and the positions in it of the tokens that overlap a span.

    Raises:
        UserError: no tokens overlap the span.
    """
    ((ids,), (offsets,)) = predictor.tokenizer.encode_batch([text], special=True)
    inside = np.flatnonzero((offsets[:, 0] < span[1]) & (offsets[:, 1] > span[0]))
    if not len(inside):
        raise UserError(f'{text!r:.80}: {text[slice(*span)]!r} has no tokens')
    row = add_special(predictor.tokenizer, ids)
    return row, slice(int(inside[0]) + 1, int(inside[-1]) + 2)


def _grouped_rows(
    predictor: Predictor, items: Iterable[Item], rows_of: Callable[[Item], list[list[ScoredRow]]]
) -> Iterator[list[list[np.ndarray]]]:
    """Yield, for each item, the log probabilities of the rows in each of its lists of rows."""
    for group in _groups(items):
        rows = [rows_of(item) for item in group]
        results = iter(predictor.log_probabilities(itertools.chain.from_iterable(rows)))
        for item_rows in rows:
            yield [next(results) for _ in item_rows]


def _groups(items: Iterable[Item]) -> Iterator[list[Item]]:
    items = iter(items)
    while group := list(itertools.islice(items, _TEXTS_AT_ONCE)):
        yield group


def _sum(arrays: Iterable[np.ndarray]) -> float:
    return float(sum(array.sum(dtype=np.float64) for array in arrays))

"""A lower bound on the log likelihood of texts under a model of masked diffusion.

LLaDA (Nie et al. 2025, arXiv 2502.09992), equation 6 and get_log_likelihood.py: of n tokens exactly
l are hidden, l uniform on 1, …, n, and the log probabilities of the hidden tokens are summed and
weighted by n / l. The mean over draws is the bound. It is the likelihood of writing the text token
by token in a random order.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from bert_jax.errors import UserError
from bert_jax.metrics.scored_rows import ScoredRow

_TEXTS_AT_ONCE = 16


class LikelihoodBound(NamedTuple):
    """A lower bound on the log likelihood of a text.

    Attributes:
        log_likelihood: in nats, the mean over the draws.
        standard_error: of this mean, in nats; an upper estimate, because the numbers of hidden
            tokens are spread evenly over the draws.
        num_tokens: number of tokens of the text, without special tokens.
    """

    log_likelihood: float
    standard_error: float
    num_tokens: int


class RowScorer(Protocol):
    """Returns the log probabilities of the rows of each text; see `Predictor`."""

    def __call__(self, rows: Iterable[Iterable[ScoredRow]]) -> list[list[np.ndarray]]: ...


def bounds(
    score: RowScorer, rows: Sequence[np.ndarray], mask_id: int, draws: int = 128, seed: int = 0
) -> Iterator[LikelihoodBound]:
    """Yield the bound of each text, which depends on its tokens and the seed alone.

    Args:
        score: computes log probabilities.
        rows: int32 [T] each, the rows of the texts, with a special token at each end.
        mask_id: id of [MASK].
        draws: number of masked rows for each text.
        seed: another number draws other rows.

    Raises:
        UserError: `draws` is below 1.
    """
    if draws < 1:
        raise UserError(f'draws is {draws}; it must be at least 1')
    for first in range(0, len(rows), _TEXTS_AT_ONCE):
        group = rows[first : first + _TEXTS_AT_ONCE]
        masked = [list(_masked_rows(ids_T, mask_id, draws, seed)) for ids_T in group]
        for ids_T, scores in zip(group, score(masked), strict=True):
            number = len(ids_T) - 2
            sums = [
                float(np.sum(log_p, dtype=np.float64)) * number / len(log_p) for log_p in scores
            ]
            error = np.std(sums, ddof=1) / math.sqrt(len(sums)) if len(sums) > 1 else math.nan
            if not number:
                sums, error = [0.0], 0.0
            yield LikelihoodBound(float(np.mean(sums)), float(error), number)


def _masked_rows(ids_T: np.ndarray, mask_id: int, draws: int, seed: int) -> Iterator[ScoredRow]:
    """Yield rows of a text with 1 to all of its tokens hidden, spread evenly over the draws."""
    number = len(ids_T) - 2
    if not number:
        return
    digest = hashlib.blake2b(ids_T.astype('<i4').tobytes(), digest_size=8).digest()
    rng = np.random.default_rng([seed, int.from_bytes(digest, 'little')])
    hidden = 1 + ((np.arange(draws) + rng.random()) * number / draws).astype(int)
    for size in np.minimum(hidden, number).tolist():
        positions = np.sort(rng.permutation(number)[:size] + 1).astype(np.int32)
        masked_T = ids_T.copy()
        masked_T[positions] = mask_id
        yield ScoredRow(masked_T, positions, ids_T[positions])

"""How often a model finds one sentence of a pair likelier than the other, by group of pairs."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.metrics import intervals

Summary = dict[str, float | int | tuple[float, float] | None]


def unigram_scores(ids: Sequence[np.ndarray], counts_V: np.ndarray) -> np.ndarray:
    """Log probability of each text under add-one unigram frequencies, in nats: float64 [N].

    The sum is exact, so that the same tokens in another order are a tie.
    """
    smoothed_V = counts_V + 1.0
    log_V = np.log(smoothed_V / smoothed_V.sum())
    return np.array([math.fsum(log_V[ids_T]) for ids_T in ids])


def prefers_first(scores_N2: np.ndarray) -> np.ndarray:
    """1 if the first sentence of a pair has the larger score, 0.5 for a tie: float64 [N]."""
    return np.asarray(0.5 + 0.5 * np.sign(scores_N2[:, 0] - scores_N2[:, 1]))


def summarize(scores_N2: np.ndarray, lengths_N2: np.ndarray, rows: np.ndarray | slice) -> Summary:
    """Summarize the preferences for the pairs in some rows.

    Args:
        scores_N2: float64, log probabilities in nats; the first sentence should be likelier.
        lengths_N2: numbers of tokens of both sentences.
        rows: bool [N] or indices.

    Returns:
        'pairs' (their number), 'accuracy' (ties count half) and its 'interval' over pairs,
        'per_token' (the accuracy by mean log probability of a token), and the shares of pairs of
        'equal_length' and of 'ties'.
    """
    scores_N2, lengths_N2 = scores_N2[rows], lengths_N2[rows]
    hits_N = prefers_first(scores_N2)
    return {
        'pairs': len(hits_N),
        'accuracy': float(hits_N.mean()),
        'interval': intervals.of_share(hits_N),
        'per_token': float(prefers_first(scores_N2 / np.maximum(lengths_N2, 1)).mean()),
        'equal_length': float(np.mean(lengths_N2[:, 0] == lengths_N2[:, 1])),
        'ties': float(np.mean(scores_N2[:, 0] == scores_N2[:, 1])),
    }


def groups(names: Sequence[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each name, in order of appearance, with the indices where it occurs."""
    array = np.array(names)
    for name in dict.fromkeys(names):
        yield name, np.flatnonzero(array == name)

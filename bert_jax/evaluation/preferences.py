"""How often a model finds one sentence of a pair likelier than the other, by group of pairs."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.evaluation import intervals

Summary = dict[str, float | int | tuple[float, float] | None]


def unigram_scores(ids: Sequence[np.ndarray], counts_V: np.ndarray) -> np.ndarray:
    """Σ log p of the tokens of each text, by their frequencies with one added: float64 [N].

    The sum is exact, so that the same tokens in another order are a tie.
    """
    smoothed_V = counts_V + 1.0
    log_V = np.log(smoothed_V / smoothed_V.sum())
    return np.array([math.fsum(log_V[own]) for own in ids])


def prefers_first(scores_N2: np.ndarray) -> np.ndarray:
    """1 if the first sentence of a pair has the larger score, 0.5 for a tie: float64 [N]."""
    return 0.5 + 0.5 * np.sign(scores_N2[:, 0] - scores_N2[:, 1])


def summarize(scores_N2: np.ndarray, lengths_N2: np.ndarray, chosen: np.ndarray) -> Summary:
    """Summarize some pairs.

    Args:
        scores_N2: float64, log probabilities of both sentences in nats; the first one should win.
        lengths_N2: their numbers of tokens.
        chosen: bool [N] or indices, the pairs.

    Returns:
        'pairs', 'accuracy' with its 'interval' over pairs, 'per_token' (the accuracy of mean log
        probabilities), the shares of pairs of 'equal_length' and of 'ties', which count half.
    """
    scores_N2, lengths_N2 = scores_N2[chosen], lengths_N2[chosen]
    hits_N = prefers_first(scores_N2)
    return {
        'pairs': len(hits_N),
        'accuracy': float(hits_N.mean()),
        'interval': interval(hits_N),
        'per_token': float(prefers_first(scores_N2 / np.maximum(lengths_N2, 1)).mean()),
        'equal_length': float(np.mean(lengths_N2[:, 0] == lengths_N2[:, 1])),
        'ties': float(np.mean(scores_N2[:, 0] == scores_N2[:, 1])),
    }


def interval(values_N: np.ndarray) -> tuple[float, float] | None:
    """The bootstrap interval of a mean; None for a single value."""
    found = intervals.of_shares(values_N[:, None], np.ones((len(values_N), 1)))
    return None if found is None else (float(found[0][0]), float(found[1][0]))


def groups(names: Sequence[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each name, in order of appearance, and the indices that have it."""
    array = np.array(names)
    for name in dict.fromkeys(names):
        yield name, np.flatnonzero(array == name)

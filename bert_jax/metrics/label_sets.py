"""Metrics of sets of classes: F1, subset accuracy, Hamming loss, label ranking.

Ratios without examples are 0, as with zero_division=0 in scikit-learn.
"""

from collections.abc import Sequence

import numpy as np

from bert_jax.metrics import metrics
from bert_jax.metrics.intervals import RowScore
from bert_jax.metrics.metrics import ClassCounts
from bert_jax.metrics.scores import Scores, Table, main_first


def score(
    gold_NC: np.ndarray,
    chosen_NC: np.ndarray,
    p_NC: np.ndarray,
    labels: Sequence[str],
    main: Sequence[str],
) -> Scores:
    """Score sets of classes; see `score_rows`. The table has one row per class."""
    rows = score_rows(gold_NC, chosen_NC, p_NC, main)
    counts = count(gold_NC, chosen_NC)
    per_class = (values_C.tolist() for values_C in metrics.per_class(counts))
    columns = ('class', 'precision', 'recall', 'f1', 'examples', 'predicted')
    cells = list(zip(labels, *per_class, counts.guessed_C.tolist(), strict=True))
    return Scores(dict(rows(np.arange(len(gold_NC)))), {'Classes': Table(columns, cells)})


def score_rows(
    gold_NC: np.ndarray, chosen_NC: np.ndarray, p_NC: np.ndarray, main: Sequence[str]
) -> RowScore:
    """Return a function that scores some of the examples.

    Args:
        gold_NC: bool, whether a class applies.
        chosen_NC: bool, whether it is predicted.
        p_NC: its probability.
        main: names of the main metrics.

    Returns:
        Numbers of examples → 'f1_micro', 'f1_macro', 'f1_weighted' (by the examples of a class),
        'subset_accuracy', 'hamming_loss', 'ranking' (label-ranking average precision).
    """
    ranking_N = label_ranking(gold_NC, p_NC)

    def score_some(rows_M: np.ndarray) -> dict[str, float]:
        gold_MC, chosen_MC = gold_NC[rows_M], chosen_NC[rows_M]
        counts, number = count(gold_MC, chosen_MC), max(len(rows_M), 1)
        f1_C, support_C = metrics.per_class(counts).f1, counts.gold_C
        values = {
            'f1_micro': metrics.f1_micro(counts),
            'f1_macro': float(f1_C.mean()) if len(f1_C) else 0.0,
            'f1_weighted': float(f1_C @ support_C / max(support_C.sum(), 1)),
            'subset_accuracy': float((gold_MC == chosen_MC).all(axis=1).sum() / number),
            'hamming_loss': float((gold_MC != chosen_MC).sum() / max(gold_MC.size, 1)),
            'ranking': float(ranking_N[rows_M].sum() / number),
        }
        return main_first(values, main)

    return score_some


def count(gold_NC: np.ndarray, chosen_NC: np.ndarray) -> ClassCounts:
    """Count the examples of each class, [C]."""
    return ClassCounts(*(array.sum(axis=0) for array in (gold_NC & chosen_NC, gold_NC, chosen_NC)))


def label_ranking(gold_NC: np.ndarray, p_NC: np.ndarray) -> np.ndarray:
    """Label-ranking average precision of each example, float64 [N] (Tsoumakas et al. 2010).

    The mean over the classes that apply of the share of such classes among those that are at least
    as probable. It is 1 for an example to which no or every class applies, as in scikit-learn.
    """
    precision_N = np.ones(len(gold_NC))
    for row, (gold_C, p_C) in enumerate(zip(gold_NC, p_NC, strict=True)):
        own_K = p_C[gold_C]
        if 0 < len(own_K) < len(p_C):
            rank_K = len(p_C) - np.searchsorted(np.sort(p_C), own_K)
            own_rank_K = len(own_K) - np.searchsorted(np.sort(own_K), own_K)
            precision_N[row] = (own_rank_K / rank_K).mean()
    return precision_N


def best_threshold(p_N: np.ndarray, gold_N: np.ndarray) -> float:
    """Return the threshold t with the best F1 of p ≥ t; 0.5 if no example is gold.

    Source: the thresholds of SCut (Yang 2001), with F1 as the measure. t is between two
    probabilities, so that rounding does not change the predictions.
    """
    if not gold_N.any():
        return 0.5
    order_N = np.argsort(-p_N, kind='stable')
    p_N, right_N = p_N[order_N].astype(np.float64), np.cumsum(gold_N[order_N])
    f1_N = 2 * right_N / (np.arange(1, len(p_N) + 1) + right_N[-1])
    is_last_N = np.append(p_N[1:] < p_N[:-1], True)  # of equal probabilities
    best = int(np.argmax(np.where(is_last_N, f1_N, -1)))
    following = p_N[best + 1] if best + 1 < len(p_N) else 0.0
    return float((p_N[best] + following) / 2)

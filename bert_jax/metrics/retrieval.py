"""Metrics of ranked documents: nDCG, MRR, recall, average precision, accuracy.

The rules are those of trec_eval, whose nDCG BEIR and MTEB report: documents whose scores are equal
in single precision are ordered by id, descending; the gain of a document is its relevance, and the
ideal order has all judged documents, retrieved or not. A judged query counts as 0 if it has no
results or no relevant document.

Sources: trec_eval 9 (m_ndcg_cut.c, m_map.c); Järvelin and Kekäläinen 2002 for nDCG.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from bert_jax.metrics import intervals
from bert_jax.metrics.intervals import Interval

Ranking: TypeAlias = Mapping[str, float]  # document id → score
Relevance: TypeAlias = Mapping[str, float]  # document id → relevance; 0 or less is not relevant

CUTOFFS = (1, 3, 5, 10, 100)
MAIN = 'ndcg@10'


@dataclasses.dataclass(frozen=True)
class QueryMetrics:
    """The metrics of each query.

    Attributes:
        names: names of the metrics, such as 'ndcg@10'.
        queries: ids of the Q queries.
        values_QM: float64 [Q, M].
        unanswerable: number of queries without a relevant document, whose metrics are 0.
    """

    names: tuple[str, ...]
    queries: tuple[str, ...]
    values_QM: np.ndarray
    unanswerable: int = 0

    def means(self) -> dict[str, float]:
        """The mean over the queries of each metric."""
        return dict(zip(self.names, self.values_QM.mean(0).tolist(), strict=True))

    def intervals(self) -> dict[str, Interval]:
        """The interval of each mean over other queries of the same kind."""

        def score(rows_R: np.ndarray) -> dict[str, float]:
            means_M = self.values_QM[rows_R].mean(0)
            return dict(zip(self.names, means_M.tolist(), strict=True))

        return intervals.of_rows(score, len(self.values_QM))


def evaluate(
    rankings: Mapping[str, Ranking],
    relevance: Mapping[str, Relevance],
    cutoffs: Sequence[int] = CUTOFFS,
) -> QueryMetrics:
    """Score the rankings of all judged queries.

    Args:
        rankings: query id → its results; a judged query without results counts as 0.
        relevance: query id → its judgments; a query without a relevant document counts as 0.
        cutoffs: numbers of results k of the metrics 'ndcg@k', 'recall@k', 'accuracy@k', 'mrr@k'.

    Raises:
        ValueError: no query has a relevant document.
    """
    unanswerable = sum(max(grades.values(), default=0) <= 0 for grades in relevance.values())
    if unanswerable == len(relevance):
        raise ValueError('no query has a relevant document')
    rows = [
        of_query(rankings.get(query, {}), grades, cutoffs) for query, grades in relevance.items()
    ]
    values_QM = np.array([list(row.values()) for row in rows])
    return QueryMetrics(tuple(rows[0]), tuple(relevance), values_QM, unanswerable)


def of_query(
    ranking: Ranking, relevance: Relevance, cutoffs: Sequence[int] = CUTOFFS
) -> dict[str, float]:
    """Return the metrics of one query; all are 0 if no document is relevant.

    Returns:
        For each k of `cutoffs`: 'ndcg@k'; 'recall@k', the share of the relevant documents that are
        among the first k; 'accuracy@k', whether any is; and 'mrr@k', 1 / rank of the first of
        them, 0 without one. Then 'map', the average precision over all results.
    """
    gains_N = np.array([max(relevance.get(name, 0), 0) for name in order(ranking)], np.float64)
    ideal_J = np.sort([max(grade, 0) for grade in relevance.values()])[::-1].astype(np.float64)
    is_hit_N, relevant = gains_N > 0, max(1, int((ideal_J > 0).sum()))
    first = int(is_hit_N.argmax()) + 1 if is_hit_N.any() else np.inf
    metrics = {f'ndcg@{k}': _dcg(gains_N[:k]) / (_dcg(ideal_J[:k]) or 1.0) for k in cutoffs}
    metrics |= {f'recall@{k}': float(is_hit_N[:k].sum() / relevant) for k in cutoffs}
    metrics |= {f'accuracy@{k}': float(first <= k) for k in cutoffs}
    metrics |= {f'mrr@{k}': float(1 / first if first <= k else 0) for k in cutoffs}
    precision_H = np.arange(1, is_hit_N.sum() + 1) / (np.flatnonzero(is_hit_N) + 1)
    return metrics | {'map': float(precision_H.sum() / relevant)}


def order(ranking: Ranking) -> list[str]:
    """The documents by score, best first; of equal scores, the larger id first.

    Scores are compared in single precision, in which trec_eval stores them.
    """
    return sorted(ranking, key=lambda name: (np.float32(ranking[name]), name), reverse=True)


def _dcg(gains_N: np.ndarray) -> float:
    """Σ gain / log2(1 + rank)."""
    return float((gains_N / np.log2(np.arange(2, len(gains_N) + 2))).sum())

"""Distances and depths of words in dependency trees, and scores of predicted trees.

Source: Hewitt and Manning 2019, "A Structural Probe for Finding Syntax in Word Representations",
section 4.1.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

_LENGTHS = range(5, 51)  # sentence lengths, in words, that count for rank correlations


class TreeDistances(NamedTuple):
    """The gold values of a sentence of W words.

    Attributes:
        distances_WW: int32, number of edges between two words.
        depths_W: int32, number of edges to the root.
        is_scored_W: False for punctuation, which the scores of edges and roots ignore.
    """

    distances_WW: np.ndarray
    depths_W: np.ndarray
    is_scored_W: np.ndarray


def from_heads(heads: Sequence[int], is_punctuation: Sequence[bool]) -> TreeDistances:
    """Compute the distances of a tree from the head of each word; the root has the head −1.

    Words without a path to each other (a cycle) have the length of the sentence as distance.
    """
    size = len(heads)
    adjacent_WW = np.zeros((size, size), bool)
    for word, head in enumerate(heads):
        if head >= 0:
            adjacent_WW[word, head] = adjacent_WW[head, word] = True
    distances_WW = np.where(np.eye(size, dtype=bool), 0, size).astype(np.int32)
    reached_WW = np.eye(size, dtype=bool)
    for steps in range(1, size):
        more_WW = (reached_WW @ adjacent_WW) & (distances_WW == size) & ~np.eye(size, dtype=bool)
        if not more_WW.any():
            break
        distances_WW[more_WW] = steps
        reached_WW = more_WW
    roots = [word for word, head in enumerate(heads) if head < 0]
    depths_W = distances_WW[:, roots].min(1) if roots else np.full(size, size, np.int32)
    return TreeDistances(distances_WW, depths_W, ~np.array(is_punctuation, bool))


def spanning_tree(distances_WW: np.ndarray) -> set[tuple[int, int]]:
    """The edges (a < b) of the minimum spanning tree (Prim's algorithm)."""
    size = len(distances_WW)
    edges: set[tuple[int, int]] = set()
    nearest_W, cost_W = np.zeros(size, int), distances_WW[0].astype(float)
    is_outside_W = np.arange(size) > 0
    for _ in range(size - 1):
        word = int(np.where(is_outside_W, cost_W, np.inf).argmin())
        edges.add((min(word, int(nearest_W[word])), max(word, int(nearest_W[word]))))
        is_outside_W[word] = False
        is_closer_W = distances_WW[word] < cost_W
        nearest_W[is_closer_W] = word
        cost_W = np.minimum(cost_W, distances_WW[word])
    return edges


def score_distances(
    gold: TreeDistances, predicted_WW: np.ndarray
) -> tuple[int, int, np.ndarray | None]:
    """Number of correct edges, number of edges, and rank correlations [W] of the distances.

    Correlations are None for sentences that are too short or too long.
    """
    scored = np.flatnonzero(gold.is_scored_W)
    correct = edges = 0
    if len(scored) > 1:
        grid = np.ix_(scored, scored)
        gold_edges = spanning_tree(gold.distances_WW[grid])
        correct = len(gold_edges & spanning_tree(predicted_WW[grid]))
        edges = len(gold_edges)
    is_ranked = len(predicted_WW) in _LENGTHS
    return correct, edges, rank_correlations(gold.distances_WW, predicted_WW) if is_ranked else None


def score_depths(gold: TreeDistances, predicted_W: np.ndarray) -> tuple[int, int, float | None]:
    """1 if the root is correct, 1 if it is scored, and the rank correlation of the depths.

    The correlation is None for sentences that are too short or too long.
    """
    scored = np.flatnonzero(gold.is_scored_W)
    has_root = bool(len(scored)) and gold.depths_W[scored].min() == 0
    is_correct = has_root and gold.depths_W[scored[predicted_W[scored].argmin()]] == 0
    correlation = None
    if len(predicted_W) in _LENGTHS:
        correlation = float(rank_correlations(gold.depths_W[None], predicted_W[None])[0])
    return int(is_correct), int(has_root), correlation


def rank_correlations(a_NM: np.ndarray, b_NM: np.ndarray) -> np.ndarray:
    """Spearman's correlation of each row; ties share their mean rank; 0 for constant rows."""
    normalized = []
    for values_NM in (a_NM, b_NM):
        less_NMM = values_NM[:, None, :] < values_NM[:, :, None]
        equal_NMM = values_NM[:, None, :] == values_NM[:, :, None]
        ranks_NM = less_NMM.sum(2) + (equal_NMM.sum(2) + 1) / 2
        centered_NM = ranks_NM - ranks_NM.mean(1, keepdims=True)
        norms_N = np.linalg.norm(centered_NM, axis=1, keepdims=True)
        normalized.append(centered_NM / np.where(norms_N > 0, norms_N, np.inf))
    return np.asarray((normalized[0] * normalized[1]).sum(1))


def mean_over_lengths(
    lengths: Iterable[int], correlations: Iterable[np.ndarray | float | None]
) -> float:
    """The mean over sentence lengths of the mean correlation at each length; 0 without any."""
    by_length: dict[int, list[float]] = defaultdict(list)
    for length, values in zip(lengths, correlations, strict=True):
        if values is not None:
            by_length[length].extend(np.atleast_1d(values).tolist())
    return float(np.mean([np.mean(values) for values in by_length.values()])) if by_length else 0.0

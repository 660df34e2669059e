"""The best dependency tree: a maximum spanning arborescence with one root.

Chu & Liu 1965 and Edmonds 1967, as McDonald et al. 2005 use them for parsing ("Non-projective
Dependency Parsing using Spanning Tree Algorithms", section 2.2.2).
"""

import numpy as np


def best_tree(scores_WU: np.ndarray) -> np.ndarray:
    """Return the heads of the tree with the highest sum of scores: int64 [W].

    Args:
        scores_WU: finite [W, W + 1], score of each head of each word: column 0 is the root, column
            u the word u − 1. Exactly one word gets the root as head. Scores of a word as its own
            head do not count.
    """
    words = len(scores_WU)
    if not words:
        return np.zeros(0, np.int64)
    scores_NN = np.full((words + 1, words + 1), -np.inf)
    scores_NN[1:] = scores_WU
    np.fill_diagonal(scores_NN, -np.inf)
    heads_N = _best_heads(scores_NN)
    if (heads_N[1:] == 0).sum() != 1:
        # The best tree with the fewest words under the root: one root outweighs all other scores.
        finite = scores_NN[np.isfinite(scores_NN)]
        scores_NN[1:, 0] -= (np.ptp(finite) + 1) * words
        heads_N = _best_heads(scores_NN)
    return np.asarray(heads_N[1:])


def _best_heads(scores_NN: np.ndarray) -> np.ndarray:
    """The heads of the best tree that leads from node 0 to every node; its own head is −1.

    Args:
        scores_NN: [dependent, head]; −inf for arcs that do not exist.
    """
    heads_N = scores_NN.argmax(1)
    heads_N[0] = -1
    cycle = _find_cycle(heads_N)
    if not len(cycle):
        return np.asarray(heads_N)
    # The cycle becomes one node, the last. An arc into it replaces an arc of the cycle.
    outside = np.setdiff1d(np.arange(len(heads_N)), cycle)
    gains_CN = scores_NN[cycle] - scores_NN[cycle, heads_N[cycle]][:, None]
    entered_M = gains_CN[:, outside].argmax(0)  # node of the cycle that an outer head enters
    left_M = scores_NN[np.ix_(outside, cycle)].argmax(1)  # node of the cycle that is the head
    size = len(outside) + 1
    smaller = np.full((size, size), -np.inf)
    smaller[:-1, :-1] = scores_NN[np.ix_(outside, outside)]
    smaller[-1, :-1] = gains_CN[:, outside].max(0)
    smaller[:-1, -1] = scores_NN[np.ix_(outside, cycle)].max(1)
    inner_M = _best_heads(smaller)
    for number, node in enumerate(outside):
        if inner_M[number] == size - 1:
            heads_N[node] = cycle[left_M[number]]
        elif node:
            heads_N[node] = outside[inner_M[number]]
    entry = inner_M[-1]
    heads_N[cycle[entered_M[entry]]] = outside[entry]
    return np.asarray(heads_N)


def _find_cycle(heads_N: np.ndarray) -> np.ndarray:
    """The nodes of a cycle, int64; none if there is no cycle."""
    done: set[int] = {0}
    for start in range(1, len(heads_N)):
        path: dict[int, None] = {}
        node = start
        while node not in done and node not in path:
            path[node] = None
            node = int(heads_N[node])
        if node in path:
            nodes = list(path)
            return np.array(nodes[nodes.index(node) :])
        done.update(path)
    return np.zeros(0, np.int64)

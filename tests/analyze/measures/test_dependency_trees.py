"""Trees and structural probes, compared with SciPy and with a space that has the distances."""

import numpy as np
import pytest
import scipy.sparse.csgraph
import scipy.stats

from bert_jax.analyze.measures import dependency_trees, structural_probes
from bert_jax.analyze.measures.structural_probes import ParsedSentence, StructuralSettings

RNG = np.random.default_rng(0)


def random_heads(size):
    """A random tree: each word of a random order hangs from one before it."""
    order = RNG.permutation(size)
    heads = np.full(size, -1)
    for place in range(1, size):
        heads[order[place]] = order[RNG.integers(place)]
    return heads.tolist()


@pytest.mark.parametrize('size', [1, 2, 7, 20])
def test_distances_are_those_of_scipy(size):
    heads = random_heads(size)
    gold = dependency_trees.from_heads(heads, [False] * size)
    edges = np.zeros((size, size))
    for word, head in enumerate(heads):
        if head >= 0:
            edges[word, head] = 1
    expected = scipy.sparse.csgraph.shortest_path(edges, directed=False, unweighted=True)
    np.testing.assert_array_equal(gold.distances_WW, expected)
    np.testing.assert_array_equal(gold.depths_W, expected[heads.index(-1)])


@pytest.mark.parametrize('size', [2, 5, 30])
def test_spanning_trees_are_those_of_scipy(size):
    distances = RNG.random((size, size)) + 0.1
    distances = distances + distances.T
    np.fill_diagonal(distances, 0)
    tree = scipy.sparse.csgraph.minimum_spanning_tree(distances).tocoo()
    expected = {
        tuple(sorted(edge)) for edge in zip(tree.row.tolist(), tree.col.tolist(), strict=True)
    }
    assert dependency_trees.spanning_tree(distances) == expected


def test_rank_correlations_are_those_of_scipy():
    a, b = RNG.integers(5, size=(8, 12)), RNG.random((8, 12))
    expected = [scipy.stats.spearmanr(x, y)[0] for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(dependency_trees.rank_correlations(a, b), expected)
    assert dependency_trees.rank_correlations(np.ones((1, 4)), b[:1, :4]).tolist() == [0]


def test_punctuation_counts_neither_for_edges_nor_for_the_root():
    gold = dependency_trees.from_heads([1, -1, 1, 1], [False, False, False, True])
    right, edges, _ = dependency_trees.score_distances(gold, gold.distances_WW)
    assert (right, edges) == (2, 2)
    depths = np.array([1.0, 0.5, 2.0, 0.1])  # the full stop is the least deep
    assert dependency_trees.score_depths(gold, depths)[:2] == (1, 1)


def test_a_probe_finds_trees_in_a_space_that_has_them():
    """Steps from the root in independent directions: their squared distance is that in the tree."""
    sentences = []
    for _ in range(240):
        size = int(RNG.integers(5, 9))
        heads = random_heads(size)
        gold = dependency_trees.from_heads(heads, [False] * size)
        steps = np.eye(10)[RNG.permutation(10)[:size]]
        vectors = np.zeros((size, 10))
        for word in np.argsort(gold.depths_W):
            if heads[word] >= 0:
                vectors[word] = vectors[heads[word]] + steps[word]
        noise = RNG.normal(0, 2, (size, 10))
        hidden = np.concatenate([vectors, noise], axis=1)  # the probe must ignore the noise
        both = np.stack([hidden, RNG.normal(size=(size, 20))], axis=1)
        sentences.append(ParsedSentence(both.astype(np.float32), gold))
    settings = StructuralSettings(rank=10, epochs=40, learning_rate=1e-2, batch_size=10)
    params = structural_probes.train(sentences[:200], sentences[200:], settings)
    right, edges = np.zeros(2), 0
    for one in sentences[200:]:
        distances, _ = structural_probes.predict(params, one.states_WLD)
        edges += len(one.gold.depths_W) - 1
        for layer in range(2):
            right[layer] += dependency_trees.score_distances(one.gold, distances[layer])[0]
    assert right[0] / edges > 0.9
    assert right[1] / edges < 0.6

"""Mean cosines in one pass, compared with those of all pairs."""

import itertools

import numpy as np
import pytest

from bert_jax.analyze.measures import isotropy

VECTORS = np.random.default_rng(0).normal(0.5, [1, 2, 3, 0.1], (30, 4))
GROUPS = np.repeat([0, 1, 2], [12, 12, 6])


def sums_of(vectors, groups=GROUPS):
    sums = isotropy.unit_sums(max(groups) + 1, vectors.shape[1])
    for group in np.unique(groups):
        sums.add(group, vectors[groups == group])
    return sums


def pairs_of(copies):
    """The cosine, by dimension, of all pairs of vectors that are not copies of each other."""
    unit = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)
    pairs = itertools.combinations(copies, 2)
    return np.mean([unit[a] * unit[b] for a, b in pairs if a != b], axis=0)


def test_contributions_are_the_means_over_all_pairs():
    np.testing.assert_allclose(sums_of(VECTORS).contributions(), pairs_of(range(30)))


def test_a_resample_counts_groups_as_often_as_they_were_drawn():
    copies = [i for i in range(30) for _ in range([2, 0, 3][GROUPS[i]])]
    found = sums_of(VECTORS).contributions(np.array([2.0, 0, 3]))
    np.testing.assert_allclose(found, pairs_of(copies))


def test_variances_and_correlations_are_those_of_numpy():
    vectors = np.random.default_rng(0).normal(size=(50, 4)) * [1, 5, 2, 0] + 3
    vectors[:, 2] += vectors[:, 0]
    moments = isotropy.moments(4)
    moments.add(vectors)
    scale = moments.scale()
    variance_D = vectors.var(0)[:3]
    assert scale.variance_ratio() == pytest.approx(variance_D.max() / variance_D.min())
    z_scores = scale.standardize(vectors)
    found = isotropy.mean_correlation(z_scores.T @ z_scores, scale.is_dead_D)
    correlations = np.corrcoef(vectors[:, :3].T)
    assert found == pytest.approx(np.abs(correlations[np.triu_indices(3, 1)]).mean())
    assert isotropy.mean_correlation(np.eye(2), np.array([True, False])) == 0


def test_zero_vectors_have_no_cosine():
    with_zero = sums_of(np.vstack([VECTORS, np.zeros(4)]), np.append(GROUPS, 2))
    np.testing.assert_array_equal(with_zero.contributions(), sums_of(VECTORS).contributions())


def test_standardizing_divides_by_the_standard_deviation():
    moments = isotropy.moments(4)
    for part in np.split(VECTORS, [7, 20]):
        moments.add(part)
    scale = moments.scale()
    expected = (VECTORS - VECTORS.mean(0)) / VECTORS.std(0)
    np.testing.assert_allclose(scale.standardize(VECTORS), expected, rtol=1e-9)
    assert not scale.is_dead_D.any()


@pytest.mark.parametrize('value', [0, 0.3, 40.0])
def test_a_dimension_that_hardly_varies_is_dead_and_becomes_zero(value):
    dead = np.full((30, 1), value) + np.random.default_rng(1).normal(0, 1e-8, (30, 1))
    moments = isotropy.moments(5)
    moments.add(np.hstack([VECTORS, dead]))
    scale = moments.scale()
    assert scale.is_dead_D.tolist() == [False] * 4 + [True]
    assert not scale.standardize(np.hstack([VECTORS, dead]))[:, 4].any()

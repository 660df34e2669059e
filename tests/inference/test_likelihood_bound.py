"""The bound on the likelihood is the mean over all masks, weighted by n / l."""

import itertools

import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.inference.likelihood_bound import bounds

MASK, DRAWS = 9, 20_000


def score(rows):
    """Log probabilities that depend on the token, its position and what is visible."""
    return [
        [
            -np.float32(0.1 * row.targets + 0.05 * row.positions + 0.3 * np.sum(row.ids == MASK))
            for row in of_text
        ]
        for of_text in rows
    ]


def exact(ids_T):
    """The bound by the definition: the mean over l of the mean over all sets of l tokens."""
    number, total = len(ids_T) - 2, 0.0
    for size in range(1, number + 1):
        sums = [
            sum(-(0.1 * ids_T[t] + 0.05 * t + 0.3 * size) for t in hidden)
            for hidden in itertools.combinations(range(1, number + 1), size)
        ]
        total += np.mean(sums) / size
    return total  # (1 / n) Σ (n / l) …


def test_the_bound_is_the_mean_over_all_masks():
    rows = [np.array(ids, np.int32) for ids in ([0, 3, 5, 2, 8, 1], [0, 4, 1], [0, 1])]
    found = list(bounds(score, rows, MASK, DRAWS))
    for ids_T, result in zip(rows, found, strict=True):
        assert result.num_tokens == len(ids_T) - 2
        assert result.log_likelihood == pytest.approx(exact(ids_T), abs=0.01)
    assert found[0].standard_error < 0.02
    assert found[2] == (0.0, 0.0, 0)


def test_the_bound_of_a_predictor_without_context_is_its_log_likelihood():
    """Each row has n / l times the sum of l terms; with l = n the sum is that of all."""
    rng = np.random.default_rng(0)
    ids_T = np.array([0, *rng.integers(2, 8, 12), 1], np.int32)
    without_context = lambda rows: [[-0.5 * row.targets for row in text] for text in rows]  # noqa: E731
    (result,) = bounds(without_context, [ids_T], MASK, DRAWS)
    assert result.log_likelihood == pytest.approx(-0.5 * ids_T[1:-1].sum(), rel=0.005)


def test_every_number_of_hidden_tokens_is_equally_frequent_and_nothing_else_changes():
    ids_T, sizes = np.arange(10, 22, dtype=np.int32), []

    def check(rows):
        for row in rows[0]:
            assert (row.ids[row.positions] == MASK).all()
            np.testing.assert_array_equal(ids_T[row.positions], row.targets)
            others = np.delete(np.arange(len(ids_T)), row.positions)
            np.testing.assert_array_equal(row.ids[others], ids_T[others])
            sizes.append(len(row.positions))
        return [[np.zeros(len(row.positions)) for row in rows[0]]]

    list(bounds(check, [ids_T], MASK, draws=50))
    assert np.bincount(sizes)[1:].tolist() == [5] * 10


def test_a_bound_depends_on_its_text_and_the_seed_alone():
    rows = [np.array(ids, np.int32) for ids in ([0, 3, 5, 2, 1], [0, 4, 2, 1])]
    first, second = bounds(score, rows, MASK, 8)
    assert list(bounds(score, rows[::-1], MASK, 8)) == [second, first]
    assert list(bounds(score, rows, MASK, 8, seed=1)) != [first, second]
    with pytest.raises(UserError, match='draws is 0'):
        list(bounds(score, rows, MASK, 0))

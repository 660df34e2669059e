"""Bootstrap intervals, compared with those of the normal distribution."""

import numpy as np
import pytest

from bert_jax.metrics import intervals


def accuracy(gold, guesses):
    return {'accuracy': float(np.mean([a == b for a, b in zip(gold, guesses, strict=True)]))}


def of_metrics(score, gold, guesses):
    return intervals.of_rows(intervals.rows_of(score, gold, guesses), len(gold))


def test_the_interval_of_an_accuracy_is_that_of_a_binomial_share():
    gold, guesses = ['a'] * 400, ['a'] * 320 + ['b'] * 80
    low, high = of_metrics(accuracy, gold, guesses)['accuracy']
    half = 1.96 * (0.8 * 0.2 / 400) ** 0.5
    assert high - 0.8 == pytest.approx(0.8 - low)
    assert high - 0.8 == pytest.approx(half, rel=0.15)


@pytest.mark.parametrize(('wrong', 'most'), [(0, 0), (1, 0.08)])
def test_an_interval_does_not_leave_the_range_of_the_metric(wrong, most):
    gold, guesses = ['a'] * 50, ['b'] * wrong + ['a'] * (50 - wrong)
    low, high = of_metrics(accuracy, gold, guesses)['accuracy']
    value = 1 - wrong / 50
    assert 1 - most <= low <= value <= high <= 1
    assert of_metrics(accuracy, ['a'], ['a'])['accuracy'] == (1, 1)


def test_resamples_that_lack_a_metric_do_not_count():
    def score(gold, guesses):
        return {'rare': 0.5} if 'rare' in gold else {}

    assert of_metrics(score, ['rare', *'abcd'], [''] * 5) == {'rare': (0.5, 0.5)}


def test_the_interval_of_a_mean_is_the_normal_approximation():
    """For many values it is mean ± 1.96 · sd / sqrt(n)."""
    x_S = np.random.default_rng(0).normal(size=400)
    low, high = intervals.of_share(x_S)
    half = 1.96 * x_S.std() / len(x_S) ** 0.5
    assert low == pytest.approx(x_S.mean() - half, abs=0.2 * half)
    assert high == pytest.approx(x_S.mean() + half, abs=0.2 * half)


def test_documents_are_drawn_whole():
    """Ten documents whose words are all right or all wrong tell as much as ten words."""
    right = np.repeat([1.0, 0.0], [7, 3])
    low, high = intervals.of_shares(right[:, None] * 50, np.full((10, 1), 50.0))
    half = 1.96 * (0.7 * 0.3 / 10) ** 0.5
    assert low[0] == pytest.approx(0.7 - half, abs=0.1)
    assert high[0] == pytest.approx(0.7 + half, abs=0.1)
    assert intervals.of_shares(np.ones((1, 1)), np.ones((1, 1))) is None


def test_an_interval_without_width_is_shown_with_the_number_of_values():
    assert intervals.cell((0.5, 0.5), 2) == '0.5000, all equal (n = 2)'
    assert intervals.cell((0.5, 0.50001)) == '0.5000, all equal'
    assert intervals.cell((0.5, 0.75), 2) == '0.5000 – 0.7500'
    assert intervals.cell(None) == '–'

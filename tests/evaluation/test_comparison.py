"""Summaries and bootstrap intervals of several runs."""

import numpy as np
import pytest

from bert_jax.evaluation import comparison


def test_a_summary_is_reproducible_and_its_interval_contains_the_mean():
    values = [0.8, 0.9, 0.7, 0.85]
    found = comparison.summarize(values)
    assert found.mean == pytest.approx(np.mean(values))
    assert found.sd == pytest.approx(np.std(values, ddof=1))
    assert found == comparison.summarize(values)
    assert min(values) <= found.low < found.mean < found.high <= max(values)


def test_one_run_has_no_deviation_and_two_runs_have_no_interval():
    one, two = comparison.summarize([0.5])._asdict(), comparison.summarize([0.5, 0.7])._asdict()
    assert (one['mean'], one['sd'], one['low'], one['high']) == (0.5, None, None, None)
    assert (two['sd'], two['low']) == (pytest.approx(0.1414, abs=1e-4), None)
    assert [comparison.mean_cell(one), comparison.interval_cell(one)] == ['0.5000', '–']
    assert [comparison.mean_cell(two), comparison.interval_cell(two)] == ['0.6000 ± 0.1414', '–']
    three = comparison.summarize([0.5, 0.7, 0.6])._asdict()
    assert comparison.interval_cell(three) == '0.5000 – 0.7000'


def test_the_interval_is_the_normal_approximation():
    """For many values it is mean ± 1.96 · sd / sqrt(n)."""
    x_S = np.random.default_rng(0).normal(size=400)
    low, high = comparison.bootstrap_interval(x_S)
    half = 1.96 * x_S.std() / len(x_S) ** 0.5
    assert low == pytest.approx(x_S.mean() - half, abs=0.2 * half)
    assert high == pytest.approx(x_S.mean() + half, abs=0.2 * half)

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
    assert comparison.summarize([0.5]) == (0.5, 0.0, 0.5, 0.5, 1)


def test_the_interval_is_the_normal_approximation():
    """For many values it is mean ± 1.96 · sd / sqrt(n)."""
    x_S = np.random.default_rng(0).normal(size=400)
    low, high = comparison.bootstrap_interval(x_S)
    half = 1.96 * x_S.std() / len(x_S) ** 0.5
    assert low == pytest.approx(x_S.mean() - half, abs=0.2 * half)
    assert high == pytest.approx(x_S.mean() + half, abs=0.2 * half)

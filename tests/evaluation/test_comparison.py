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
    assert str(found) == '0.8125 ± 0.0854'
    assert comparison.summarize([0.5]) == (0.5, 0.0, 0.5, 0.5, 1)


def test_the_interval_over_examples_is_the_normal_approximation():
    """For the mean of many examples it is mean ± 1.96 · sd / sqrt(n)."""
    x_N = np.random.default_rng(0).normal(size=400)
    low, high = comparison.bootstrap_interval(lambda run, chosen: x_N[chosen].mean(), 1, len(x_N))
    half = 1.96 * x_N.std() / len(x_N) ** 0.5
    assert low == pytest.approx(x_N.mean() - half, abs=0.2 * half)
    assert high == pytest.approx(x_N.mean() + half, abs=0.2 * half)


def test_resampling_runs_and_examples_both_widen_the_interval():
    rng = np.random.default_rng(0)
    x_SN = rng.normal(size=(4, 1)) + rng.normal(size=(1, 60))

    def width(num_runs, num_examples):
        def figure(run, chosen):
            return x_SN[run][chosen].mean() if len(chosen) else x_SN[run].mean()

        low, high = comparison.bootstrap_interval(figure, num_runs, num_examples)
        return high - low

    assert width(4, 60) > max(width(4, 0), width(1, 60)) > 0

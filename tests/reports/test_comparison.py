"""Summaries of several runs."""

import re

import numpy as np
import pytest

from bert_jax.reports import comparison


def test_a_summary_is_reproducible_and_its_interval_contains_the_mean():
    values = [0.8, 0.9, 0.7, 0.85, 0.75]
    found = comparison.summarize(values)
    assert found.mean == pytest.approx(np.mean(values))
    assert found.sd == pytest.approx(np.std(values, ddof=1))
    assert found == comparison.summarize(values)
    assert min(values) <= found.low < found.mean < found.high <= max(values)


def test_few_runs_have_a_range_instead_of_an_interval():
    cells = {}
    for values in ([0.5], [0.5, 0.7], [0.5, 0.7, 0.6], [0.5, 0.7, 0.6, 0.6, 0.65]):
        found = comparison.summarize(values)._asdict()
        assert found['values'] == values
        assert (found['low'] is None) == (len(values) < 5)
        cells[len(values)] = comparison.mean_cell(found), comparison.interval_cell(found)
    assert cells[1] == ('0.5000', '–')
    assert cells[2] == ('0.6000 ± 0.1414', 'range 0.5000 – 0.7000')
    assert cells[3][1] == 'range 0.5000 – 0.7000'
    assert re.fullmatch(r'0\.5\d+ – 0\.6\d+', cells[5][1])

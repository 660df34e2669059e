"""Preferences between two sentences: ties, lengths, intervals and the unigram baseline."""

import numpy as np
import pytest

from bert_jax.analyze.measures import preferences
from bert_jax.metrics import intervals


def test_a_tie_is_half_right_and_mean_scores_can_reverse_the_sum():
    scores = np.array([[-1.0, -2.0], [-2.0, -2.0], [-3.0, -2.0], [-9.0, -1.0]])
    lengths = np.array([[1, 1], [2, 2], [6, 2], [1, 1]])
    found = preferences.summarize(scores, lengths, np.arange(4))
    assert found['accuracy'] == (1 + 0.5) / 4
    assert found['per_token'] == (1 + 0.5 + 1) / 4
    assert (found['ties'], found['equal_length']) == (0.25, 0.75)
    assert preferences.summarize(scores, lengths, [0])['interval'] is None


def test_the_interval_covers_the_share_and_narrows_with_the_number_of_pairs():
    values = np.random.default_rng(0).integers(2, size=900).astype(float)
    (low, high), (few_low, few_high) = map(intervals.of_share, (values, values[:100]))
    assert low < values.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * 0.5 / 30, rel=0.1)
    assert few_high - few_low == pytest.approx(3 * (high - low), rel=0.15)


def test_unigram_scores_do_not_depend_on_the_order():
    rng = np.random.default_rng(0)
    counts, ids = rng.integers(1000, size=50), rng.integers(50, size=40)
    scores = preferences.unigram_scores([ids, rng.permutation(ids), ids[:1]], counts)
    assert scores[0] == scores[1]
    assert scores[2] == pytest.approx(np.log((counts[ids[0]] + 1) / (counts.sum() + 50)))

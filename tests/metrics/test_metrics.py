"""Metrics, compared with scikit-learn and SciPy on random and degenerate input."""

import warnings

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from bert_jax.errors import UserError
from bert_jax.metrics import metrics

CLASSES = 'abcd'
PAIRS = st.lists(st.tuples(st.sampled_from(CLASSES), st.sampled_from(CLASSES)), min_size=1)
NUMBERS = st.floats(-1e6, 1e6) | st.integers(-3, 3).map(float)


def count(gold, guesses, labels=CLASSES):
    numbers = (metrics.class_numbers(classes, labels) for classes in (gold, guesses))
    return metrics.count_classes(*numbers, len(labels))


@settings(deadline=None)  # a busy machine is not a failure
@given(PAIRS)
def test_metrics_of_classes_are_those_of_scikit_learn(pairs):
    gold, guesses = zip(*pairs, strict=True)
    counts = count(gold, guesses)
    options = dict(labels=list(CLASSES), zero_division=0)
    wanted = reference.precision_recall_fscore_support(gold, guesses, **options)
    for found, expected in zip(metrics.per_class(counts), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        expected = {
            metrics.accuracy: reference.accuracy_score(gold, guesses),
            metrics.f1_macro: reference.f1_score(gold, guesses, average='macro'),
            metrics.f1_micro: reference.f1_score(gold, guesses, average='micro'),
            metrics.matthews: reference.matthews_corrcoef(gold, guesses),
        }
        some = reference.f1_score(
            gold, guesses, average='micro', labels=list('bcd'), zero_division=0
        )
    for function, value in expected.items():
        assert function(counts) == pytest.approx(value, abs=1e-9), function.__name__
    assert metrics.f1_micro(counts, [0]) == pytest.approx(some)


def test_undefined_metrics_are_zero():
    counts = count([], [])
    for function in (metrics.accuracy, metrics.f1_macro, metrics.f1_micro, metrics.matthews):
        assert function(counts) == 0
    constant = count('abab', 'aaaa', 'abc')
    assert metrics.matthews(constant) == 0
    np.testing.assert_allclose(metrics.per_class(constant).f1, [2 / 3, 0, 0])
    assert metrics.f1_macro(constant) == pytest.approx(1 / 3)  # c occurs nowhere
    assert metrics.f1_macro(count('ab', 'ac', 'abc')) == pytest.approx(1 / 3)
    for function in (metrics.pearson, metrics.spearman):
        assert function([1, 2, 3], [5, 5, 5]) == 0
        assert function([], []) == 0


@settings(deadline=None)  # a busy machine is not a failure
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2))
def test_spearman_is_that_of_scipy(pairs):
    gold, guesses = (list(values) for values in zip(*pairs, strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        wanted = scipy.stats.spearmanr(gold, guesses).statistic
    assert metrics.spearman(gold, guesses) == pytest.approx(np.nan_to_num(wanted), abs=1e-9)


@pytest.mark.parametrize('scale', [1e-200, 1.0, 1e200])
@pytest.mark.parametrize('seed', range(3))
def test_pearson_is_that_of_scipy_at_any_scale(seed, scale):
    x_N, y_N = np.random.default_rng(seed).normal(size=(2, 50)).round(1)
    wanted = scipy.stats.pearsonr(x_N, y_N).statistic
    assert metrics.pearson(scale * x_N, 3 * y_N + 7) == pytest.approx(wanted, abs=1e-12)
    assert metrics.pearson(x_N, -2 * x_N) == pytest.approx(-1)


def test_unknown_classes_and_unequal_lengths_are_errors():
    with pytest.raises(UserError, match='unknown class z; the classes are a, b'):
        count('ab', 'az', 'ab')
    with pytest.raises(UserError, match=r'the classes are 0, 1, 2, 3, 4, 5, 6, 7 …$'):
        count(['z'], ['z'], list(map(str, range(3000))))
    with pytest.raises(ValueError, match='2 gold classes, but 1 predictions'):
        count('ab', 'a', 'ab')
    with pytest.raises(ValueError, match='2 gold numbers, but 1 predictions'):
        metrics.pearson([1.0, 2.0], [1.0])

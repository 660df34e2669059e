"""Metrics of sets of classes, compared with scikit-learn on random and degenerate input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from bert_jax.errors import UserError
from bert_jax.metrics import label_sets

LABELS = ('a', 'b', 'c', 'd')
SETS = st.lists(
    st.tuples(*[st.tuples(st.booleans(), st.sampled_from([0.1, 0.4, 0.5, 0.9]))] * 4), min_size=1
)


def arrays(rows):
    gold = np.array([[flag for flag, _ in row] for row in rows])
    p = np.array([[number for _, number in row] for row in rows])
    return gold, p >= 0.5, p


@settings(deadline=None)
@given(SETS)
def test_metrics_are_those_of_scikit_learn(rows):
    gold, chosen, p = arrays(rows)
    found = label_sets.score(gold, chosen, p, LABELS, ('f1_micro',))
    options = dict(zero_division=0)
    expected = {
        f'f1_{average}': reference.f1_score(gold, chosen, average=average, **options)
        for average in ('micro', 'macro', 'weighted')
    } | {
        'subset_accuracy': reference.accuracy_score(gold, chosen),
        'hamming_loss': reference.hamming_loss(gold, chosen),
        'ranking': reference.label_ranking_average_precision_score(gold, p),
    }
    assert found.metrics == pytest.approx(expected, abs=1e-12)
    per_class = reference.precision_recall_fscore_support(gold, chosen, **options)
    columns = list(zip(*found.tables['Classes'].rows, strict=True))
    assert columns[0] == LABELS
    for own, wanted in zip(columns[1:5], per_class, strict=True):
        assert own == pytest.approx(wanted.tolist(), abs=1e-12)


@settings(deadline=None)
@given(SETS)
def test_a_tuned_threshold_has_the_best_f1_of_all_thresholds(rows):
    gold, _, p = arrays(rows)
    gold, p = gold.ravel(), p.ravel()
    threshold = label_sets.best_threshold(p, gold)
    assert 0 < threshold < 1
    every = [0.0, *(p + 1e-9), *(p - 1e-9)]

    def f1(chosen):  # scikit-learn's takes a millisecond
        return 2 * (gold & chosen).sum() / max(gold.sum() + chosen.sum(), 1)

    assert f1(p >= threshold) == pytest.approx(max(f1(p >= one) for one in every))


def test_some_rows_are_scored_like_a_split_of_them():
    rng = np.random.default_rng(0)
    gold, p = rng.random((9, 4)) < 0.4, rng.random((9, 4))
    some = np.array([0, 3, 3, 8])
    found = label_sets.score_rows(gold, p >= 0.5, p, ('f1_macro', 'ranking'))(some)
    whole = label_sets.score(gold[some], p[some] >= 0.5, p[some], LABELS, ('f1_macro', 'ranking'))
    assert found == whole.metrics
    assert next(iter(found)) == 'score'


def test_no_examples_have_scores_and_an_unknown_metric_is_refused():
    none = np.zeros((0, 3), bool)
    assert label_sets.score(none, none, none, 'abc', ('f1_micro',)).metrics['f1_micro'] == 0
    with pytest.raises(UserError, match="unknown metric 'f1'; .*known: f1_macro"):
        label_sets.score(none, none, none, 'abc', ('f1',))

"""The closed-form probe equals that of scikit-learn."""

import numpy as np

from bert_jax.analyze.measures import ridge_probe


def test_accuracy_equals_that_of_scikit_learn_with_a_dead_dimension():
    from sklearn.linear_model import RidgeClassifier
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(0)
    labels = rng.integers(5, size=600)
    features = rng.normal(size=(5, 12))[labels] + 2 * rng.normal(size=(600, 12))
    features[:, 3] = 7.0
    is_test = np.arange(600) % 3 == 0
    scaler = StandardScaler().fit(features[~is_test])
    theirs = RidgeClassifier(alpha=1.0)
    theirs.fit(scaler.transform(features[~is_test]), labels[~is_test])
    expected = theirs.score(scaler.transform(features[is_test]), labels[is_test])
    assert 0.4 < expected < 0.95
    assert ridge_probe.accuracy(features, labels, is_test, 5) == expected

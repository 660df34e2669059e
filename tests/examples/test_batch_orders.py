"""How batches are composed: every order is a function of the epoch and keeps its promise."""

import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.examples.batch_orders import PairsOfClasses, Stratified, WithoutCopies

LENGTHS = np.random.default_rng(0).integers(2, 30, size=100)


def test_batches_without_copies_share_no_text():
    texts_NK = np.stack([np.arange(100) % 40, 1000 + np.arange(100)], axis=1)
    order = WithoutCopies(LENGTHS, 30, 0, texts_NK)
    assert order.size == 90
    for epoch in range(3):
        batches = order.epoch(epoch).reshape(3, 30)
        assert len(np.unique(batches)) == 90
        for batch in batches:
            texts = texts_NK[batch].ravel()
            assert len(np.unique(texts)) == len(texts)
    plain = Stratified(LENGTHS, 30, 0).epoch(0)[:90].reshape(3, 30)
    assert any(len(np.unique(texts_NK[batch, 0])) < 30 for batch in plain)
    np.testing.assert_array_equal(order.epoch(2), order.epoch(2))
    assert not np.array_equal(order.epoch(1), order.epoch(2))


def test_batches_that_copies_do_not_fill_are_refused():
    texts_NK = (np.arange(100) % 20)[:, None]
    with pytest.raises(UserError, match='batch 1 of an epoch has only 20 of 30 examples'):
        WithoutCopies(LENGTHS, 30, 0, texts_NK).epoch(0)


def test_pairs_of_classes_leave_out_one_of_an_odd_class():
    class_N = np.array([0] * 31 + [1] * 40 + [2] * 28 + [3])
    order = PairsOfClasses(LENGTHS, 20, 0, class_N)
    assert order.size == 30 + 40 + 28
    left_out = set()
    for epoch in range(4):
        examples = order.epoch(epoch)
        assert len(np.unique(examples)) == len(examples) == order.size
        first, second = class_N[examples].reshape(-1, 2).T
        np.testing.assert_array_equal(first, second)
        assert len(np.unique(first[:10])) > 1
        left_out |= {*range(31)} - {*examples.tolist()}
    assert len(left_out) > 1


@pytest.mark.parametrize(
    ('size', 'classes', 'message'),
    [
        (7, [0, 0, 1, 1], 'training.batch_size is 7'),
        (2, [0, 0, 1, 1], 'training.batch_size is 2'),
        (4, [0, 0, 0, 1], 'two classes with two training examples each'),
    ],
)
def test_batches_without_pairs_of_two_classes_are_refused(size, classes, message):
    with pytest.raises(UserError, match=message):
        PairsOfClasses(LENGTHS[:4], size, 0, np.array(classes))

"""Losses on lists of documents, compared with those of sentence-transformers: values, gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from sentence_transformers.cross_encoder import losses
from sentence_transformers.cross_encoder.losses import margin_mse

from bert_jax.averages import mean
from bert_jax.problems.reranking import LOSSES
from bert_jax.problems.reranking.base import ScoreBatch

RNG = np.random.default_rng(3)
SIZES = (5, 2, 3, 1)
LOGITS = [RNG.normal(size=n).astype(np.float32) * 2 for n in SIZES]
GRADES = [np.array([1, 0, 2, 1, 0]), np.array([0, 1]), np.array([3, 0, 0]), np.array([1])]
CHECKED = ([2, 1, 0.5], [0.2, -1]), ([1, 0, 2], [0, 1])  # computed beside the formulas


class Scores(torch.nn.Module):
    """A model whose scores are given, one for each pair that is asked for, in order."""

    num_labels, device = 1, torch.device('cpu')
    activation_fn = torch.nn.Identity()

    def __init__(self, lists):
        super().__init__()
        self.flat = torch.nn.Parameter(torch.from_numpy(np.concatenate(lists)))

    def preprocess(self, pairs, **_):
        return {'number': torch.tensor([int(document) for _, document in pairs])}

    def forward(self, tokens):
        return {'scores': self.flat[tokens['number']][:, None]}


def of_lists(loss, lists, labels):
    """The loss of sentence-transformers and its gradients, a list for each query."""
    model = Scores(lists)
    numbers = np.split(np.arange(sum(map(len, lists))), np.cumsum([len(one) for one in lists])[:-1])
    queries = [f'q{n}' for n in range(len(lists))]
    inputs = [queries, [[str(n) for n in row] for row in numbers]]
    value = loss(model)(inputs, [torch.from_numpy(np.float32(row)) for row in labels])
    value.backward()
    return value.item(), [model.flat.grad.numpy()[row] for row in numbers]


def batch(lists, labels, size=6):
    """The lists, filled up with numbers that must not matter."""
    rows = [np.pad(np.float32(row), (0, size - len(row)), constant_values=7) for row in lists]
    grades = [np.pad(np.float32(row), (0, size - len(row)), constant_values=9) for row in labels]
    present = np.arange(size) < np.array([len(row) for row in lists])[:, None]
    return ScoreBatch(jnp.array(rows), jnp.array(grades), jnp.array(present))


def value_and_gradients(loss, lists, labels):
    given = batch(lists, labels)

    def function(logits_BN):
        return mean(loss(given._replace(logits_BN=logits_BN)))

    value, gradient_BN = jax.value_and_grad(function)(given.logits_BN)
    assert not np.any(np.where(given.is_present_BN, 0, gradient_BN))
    return float(value), [row[: len(one)] for row, one in zip(gradient_BN, lists, strict=True)]


REFERENCES = {
    'listnet': (losses.ListNetLoss, {}, {}),
    'listmle': (losses.ListMLELoss, {}, {'respect_input_order': False}),
    'listmle, given order': (losses.ListMLELoss, {'given_order': True}, {}),
    'position_listmle': (losses.PListMLELoss, {}, {'respect_input_order': False}),
    'position_listmle, given order': (losses.PListMLELoss, {'given_order': True}, {}),
    'lambda': (losses.LambdaLoss, {}, {}),
    'lambda, depth': (losses.LambdaLoss, {'depth_of_ndcg': 2}, {'k': 2}),
    'lambda, rank': (
        losses.LambdaLoss,
        {'weighting': 'lambda_rank'},
        {'weighting_scheme': losses.LambdaRankScheme()},
    ),
    'lambda, ndcg': (
        losses.LambdaLoss,
        {'weighting': 'ndcg_2'},
        {'weighting_scheme': losses.NDCGLoss2Scheme()},
    ),
    'ranknet': (losses.RankNetLoss, {}, {}),
    'approximate_rank': (losses.ADRMSELoss, {}, {}),
}


@pytest.mark.parametrize('name', REFERENCES)
def test_listwise_losses_and_gradients_are_those_of_sentence_transformers(name):
    reference, options, theirs = REFERENCES[name]
    expected, gradients = of_lists(lambda model: reference(model, **theirs), LOGITS, GRADES)
    loss = LOSSES[name.partition(',')[0]](**options)
    value, found = value_and_gradients(loss, LOGITS, GRADES)
    assert value == pytest.approx(expected, abs=1e-6, rel=1e-6)
    for ours, given in zip(found, gradients, strict=True):
        np.testing.assert_allclose(ours, given, atol=1e-6)


@pytest.mark.parametrize(
    ('name', 'options', 'expected'),
    [
        ('listnet', {}, 1.34641),
        ('listmle', {'given_order': True}, 0.600864),
        ('listmle', {}, 1.87046),
        ('position_listmle', {}, 1.50744),
        ('lambda', {}, 3.98985),
        ('ranknet', {}, 1.60573),
        ('approximate_rank', {}, 0.724836),
    ],
)
def test_listwise_losses_have_known_values(name, options, expected):
    value, _ = value_and_gradients(LOSSES[name](**options), *CHECKED)
    assert value == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize('weight', [1.0, 2.5])
def test_binary_and_squared_error_are_means_over_documents(weight):
    logits, labels = np.concatenate(LOGITS), np.concatenate(GRADES) / 3
    given = [torch.from_numpy(np.float32(array)) for array in (logits, labels)]
    lists = [row / 3 for row in GRADES]
    binary = torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor(weight))(*given).item()
    value, _ = value_and_gradients(LOSSES['binary'](positive_weight=weight), LOGITS, lists)
    assert value == pytest.approx(binary, rel=1e-6)
    value, _ = value_and_gradients(LOSSES['squared_error'](), LOGITS, lists)
    assert value == pytest.approx(torch.nn.MSELoss()(*given).item(), rel=1e-6)


def test_margin_mse_is_that_of_sentence_transformers(monkeypatch):
    monkeypatch.setattr(margin_mse, 'CrossEncoder', Scores)
    lists, teacher = RNG.normal(size=(4, 3)).astype('f4'), RNG.normal(size=(4, 3)).astype('f4')
    model = Scores(lists)
    numbers = np.arange(12).reshape(4, 3).T.astype(str).tolist()
    reference = losses.MarginMSELoss(model)
    labels = [torch.from_numpy(column) for column in teacher.T.copy()]
    expected = reference([['q'] * 4, *numbers], torch.stack(labels, 1))
    expected.backward()
    value, found = value_and_gradients(LOSSES['margin_mse'](), lists, teacher)
    assert value == pytest.approx(expected.item(), rel=1e-6)
    np.testing.assert_allclose(np.stack(found), model.flat.grad.numpy().reshape(4, 3), atol=1e-6)


def test_long_lists_keep_their_weights_finite():
    logits = [np.zeros(300, np.float32)]
    labels = [np.arange(300)[::-1]]
    given = ScoreBatch(jnp.array(logits), jnp.array(labels, jnp.float32), jnp.ones((1, 300), bool))
    value = float(mean(LOSSES['position_listmle']()(given)))
    assert value == pytest.approx(
        sum(np.log(300 - r) * 2.0 ** -(r + 1) for r in range(60)), rel=1e-4
    )


def test_labels_outside_of_0_to_1_are_not_for_the_binary_loss():
    assert LOSSES['binary']().why_unusable((0.0, 1.0, 0.5)) == ''
    assert 'the label 2, must be from 0 to 1' in LOSSES['binary']().why_unusable((0.0, 2.0))

"""Several classes or numbers for a text on packed rows, compared with transformers."""

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification
from transformers.modeling_outputs import BaseModelOutputWithPooling

from bert_jax.averages import mean
from bert_jax.errors import UserError
from bert_jax.labels.examples import LabelSetExample, NumbersExample
from bert_jax.problems import PROBLEMS
from bert_jax.problems.base import Calibration
from bert_jax.problems.finetuning_model import EncodedExamples
from bert_jax.problems.multi_label import MULTI_LABEL
from bert_jax.problems.multi_regression import MULTI_REGRESSION
from tests.problems.test_classification import one_per_row, sequences_of, texts
from tests.tasks.small_problems import answers, large_params, make

LABELS = ('a', 'b', 'c')
SETTINGS = dict(PROBLEMS['multi_label'].settings)
del SETTINGS['labels']


def examples_of(number=10):
    rng = np.random.default_rng(1)
    flags = rng.random((number, 3)) < 0.4
    flags[0] = False
    return [
        LabelSetExample(
            f'{i}', own, tuple(name for name, is_set in zip(LABELS, row, strict=True) if is_set)
        )
        for i, (own, row) in enumerate(zip(texts(number, 0), flags, strict=True))
    ], flags


class Logits(torch.nn.Module):
    """Stands for the classifier of a model of transformers."""

    def __init__(self, logits):
        super().__init__()
        self.logits = logits

    def forward(self, *args, **kwargs):
        return self.logits


def loss_of_transformers(problem_type, logits, labels):
    """The loss that BertForSequenceClassification computes for these logits."""
    config = BertConfig(
        vocab_size=9, hidden_size=4, num_hidden_layers=0, num_attention_heads=1, num_labels=3,
        problem_type=problem_type,
    )  # fmt: skip
    model = BertForSequenceClassification(config).eval()
    model.classifier = Logits(logits)
    none = torch.zeros(len(logits), 4)
    model.bert.forward = lambda *args, **kwargs: BaseModelOutputWithPooling(none[:, None], none)
    return float(model(torch.zeros(len(logits), 1, dtype=int), labels=labels).loss)


@pytest.mark.parametrize('weights', ['none', 'balanced'])
def test_the_loss_and_the_probabilities_are_those_of_transformers(weights):
    examples, flags = examples_of()
    settings = SETTINGS | {'class_weights': weights}
    problem, model = make(MULTI_LABEL, LABELS, train=examples, **settings)
    params = large_params(model, EncodedExamples.of(problem, examples))
    unknown = LabelSetExample('x', ('the ship',), None)
    parts, terms = answers(model, params, [*examples, unknown])
    logits = torch.tensor(one_per_row(model, params, sequences_of(problem, examples)))
    assert logits.std() > 0.3
    gold = torch.tensor(flags, dtype=torch.float32)
    if weights == 'none':
        expected = loss_of_transformers('multi_label_classification', logits, gold)
    else:
        positive = (len(gold) - gold.sum(0)) / gold.sum(0)
        loss = torch.nn.BCEWithLogitsLoss(pos_weight=positive)
        expected = float(loss(logits, gold))
    assert float(mean(terms['multi_label'])) == pytest.approx(expected, rel=1e-5)
    assert float(terms['multi_label'].count) == len(examples)
    right = ((logits >= 0) == (gold > 0)).all(-1).float().mean()
    assert float(mean(terms['subset_accuracy'])) == pytest.approx(float(right))
    decoded = [
        problem.decoder.decode(e, own, Calibration())
        for e, own in zip(examples, parts[:-1], strict=True)
    ]
    found = np.array([list(one.probabilities.values()) for one in decoded])
    np.testing.assert_allclose(found, logits.sigmoid().numpy(), atol=1e-5)
    np.testing.assert_array_equal([one.chosen_C for one in decoded], (logits >= 0).numpy())
    record = problem.decoder.to_record(examples[0], decoded[0])
    assert record['gold'] == []
    assert record['predicted'] == [name for name, p in record['probabilities'].items() if p >= 0.5]


def test_a_class_of_all_examples_is_still_learned_with_balanced_weights():
    examples = [LabelSetExample(str(n), ('the ship',), LABELS[: 1 + n % 2]) for n in range(6)]
    problem, _ = make(
        MULTI_LABEL, LABELS[:2], train=examples, **SETTINGS | {'class_weights': 'balanced'}
    )
    batch = {'labels': np.ones((1, 1, 2), np.float32), 'known': np.ones((1, 1))}
    terms = problem.loss.terms({'logits': np.zeros((1, 1, 2), np.float32)}, batch)
    # Both classes have weight 1: the first in all examples, the second in half of them.
    assert float(mean(terms['multi_label'])) == pytest.approx(np.log(2), rel=1e-5)


def test_thresholds_are_tuned_on_dev_and_used():
    examples, flags = examples_of(16)
    rng = np.random.default_rng(2)
    p = (flags * 0.3 + rng.random(flags.shape) * 0.4).astype(np.float32)  # never above 0.7
    parts = [[[{'probabilities': row}]] for row in p]
    scores = {}
    for thresholds in ('none', 'one', 'per_class'):
        problem, _ = make(
            MULTI_LABEL, LABELS, train=examples, **SETTINGS | dict(thresholds=thresholds)
        )
        tuned = problem.decoder.tune_thresholds(examples, parts)
        assert len(set(tuned.values())) == {'none': 0, 'one': 1, 'per_class': 3}[thresholds]
        decoded = [
            problem.decoder.decode(e, own, Calibration(tuned))
            for e, own in zip(examples, parts, strict=True)
        ]
        scores[thresholds] = problem.decoder.score(examples, decoded).metrics
    assert scores['one']['f1_micro'] > scores['none']['f1_micro']
    assert scores['per_class']['f1_macro'] >= scores['one']['f1_macro']
    assert problem.decoder.dev_keys == ('thresholds',)


def test_a_guess_without_reading_is_the_best_set_of_classes():
    train = [LabelSetExample(f'{i}', ('x',), ('a', 'b') if i % 2 else ('a',)) for i in range(8)]
    problem, _ = make(MULTI_LABEL, LABELS, train=train, **SETTINGS)
    guess, *_ = problem.decoder.blind_guesses(train[:1], train)
    assert guess.chosen_C.tolist() == [True, True, False]


def test_an_unknown_label_is_refused():
    problem, _ = make(MULTI_LABEL, LABELS, **SETTINGS)
    with pytest.raises(UserError, match=r"example x7: the label 'd' is not among .*a, b, c"):
        problem.encoding.encode(LabelSetExample('x7', ('ship',), ('a', 'd')))


def test_several_numbers_have_the_loss_of_transformers():
    rng = np.random.default_rng(3)
    gold = rng.normal(size=(8, 3)).astype(np.float32)
    examples = [
        NumbersExample(f'{i}', own, tuple(zip(LABELS, row.tolist(), strict=True)))
        for i, (own, row) in enumerate(zip(texts(8, 2), gold, strict=True))
    ]
    settings = {'metrics': ('pearson', 'spearman')}
    problem, model = make(MULTI_REGRESSION, LABELS, train=examples, **settings)
    params = large_params(model, EncodedExamples.of(problem, examples))
    parts, terms = answers(model, params, examples)
    logits = torch.tensor(one_per_row(model, params, sequences_of(problem, examples)))
    expected = loss_of_transformers('regression', logits, torch.tensor(gold))
    assert float(mean(terms['regression'])) == pytest.approx(expected, rel=1e-5)
    decoded = [
        problem.decoder.decode(e, own, Calibration())
        for e, own in zip(examples, parts, strict=True)
    ]
    np.testing.assert_allclose(decoded, logits.numpy(), atol=1e-5)
    scores = problem.decoder.score(examples, decoded)
    rmse = np.sqrt(np.mean((np.array(decoded) - gold) ** 2, axis=0))
    assert scores.metrics['rmse'] == pytest.approx(float(rmse.mean()))
    assert [row[0] for row in scores.tables['Targets'].rows] == list(LABELS)
    with pytest.raises(UserError, match=r"example x: no number for 'c'; every example needs"):
        problem.encoding.encode(NumbersExample('x', ('ship',), (('a', 1.0), ('b', 2.0))))

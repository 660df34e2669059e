"""Classification, regression and multiple choice on packed rows, compared with torch."""

import random

import jax
import numpy as np
import pytest
import torch
from sklearn import metrics

from bert_jax.averages import mean
from bert_jax.errors import UserError
from bert_jax.labels.examples import DistilledExample, MultipleChoiceExample, TextExample
from bert_jax.problems.base import Calibration
from bert_jax.problems.classification import CLASSIFICATION, REGRESSION
from bert_jax.problems.finetuning_model import EncodedExamples
from bert_jax.problems.multiple_choice import MULTIPLE_CHOICE
from tests.tasks.small_problems import TEXT, answers, large_params, make

SETTINGS = {
    'metrics': ('accuracy',),
    'positive': '',
    'negative': '',
    'class_weights': 'none',
    'label_smoothing': 0.0,
}
LABELS = ('a', 'b', 'c')


def texts(number: int, seed: int, most: int = 2) -> list[tuple[str, ...]]:
    rng, words = random.Random(seed), TEXT.split()
    return [
        tuple(
            ' '.join(rng.choices(words, k=rng.randint(1, 9))) for _ in range(rng.randint(1, most))
        )
        for _ in range(number)
    ]


def one_per_row(model, params, sequences) -> np.ndarray:
    """Logits of each sequence in a padded row of its own."""
    length = max(len(sequence.ids) for sequence in sequences)

    def padded(arrays):
        return np.stack([np.pad(array, (0, length - len(array))) for array in arrays])

    batch = {
        'input_ids': padded([sequence.ids for sequence in sequences]),
        'token_type_ids': padded([sequence.token_type_ids for sequence in sequences]),
        'attention_mask': padded([np.ones(len(own.ids), np.int32) for own in sequences]),
    }
    logits = jax.jit(model.outputs)(params, batch)['logits']
    return np.asarray(logits).reshape(len(sequences), -1)


def sequences_of(problem, examples):
    return [sequence for e in examples for item in problem.encoding.encode(e) for sequence in item]


@pytest.mark.parametrize(
    ('smoothing', 'weights'), [(0.0, 'none'), (0.0, 'balanced'), (0.1, 'none')]
)
def test_classification_agrees_with_torch(smoothing, weights):
    examples = [
        TextExample(f'{i}', own, LABELS[0 if i < 6 else i % 3])
        for i, own in enumerate(texts(12, 0))
    ]
    settings = SETTINGS | {'label_smoothing': smoothing, 'class_weights': weights}
    problem, model = make(CLASSIFICATION, LABELS, train=examples, **settings)
    params = large_params(model, EncodedExamples.of(problem, examples))
    parts, terms = answers(model, params, examples)
    logits = torch.tensor(one_per_row(model, params, sequences_of(problem, examples)))
    gold = torch.tensor([LABELS.index(example.label) for example in examples])
    assert logits.std() > 0.3
    counts = torch.bincount(gold, minlength=3)
    weight_C = len(gold) / (3 * counts) if weights == 'balanced' else None
    expected = torch.nn.functional.cross_entropy(
        logits, gold, weight=weight_C, label_smoothing=smoothing
    )
    assert float(mean(terms['classification'])) == pytest.approx(float(expected), rel=1e-5)
    right = (logits.argmax(-1) == gold).float().mean()
    assert float(mean(terms['accuracy'])) == pytest.approx(float(right))
    decoded = [
        problem.decoder.decode(e, own, Calibration())
        for e, own in zip(examples, parts, strict=True)
    ]
    found = np.array([[own[label] for label in LABELS] for own in decoded])
    np.testing.assert_allclose(found, torch.softmax(logits, -1).numpy(), atol=1e-5)
    scores = problem.decoder.score(examples, decoded)
    assert next(iter(scores.metrics)) == 'accuracy'
    assert scores.metrics['accuracy'] == pytest.approx(float(right))


def test_distillation_is_the_divergence_at_a_temperature():
    rng = np.random.default_rng(0)
    shares = rng.dirichlet((1, 1, 1), 8)
    soft = [
        DistilledExample(f'{i}', own, 'a', tuple(zip(LABELS, share.tolist(), strict=True)))
        for i, (own, share) in enumerate(zip(texts(8, 3), shares, strict=True))
    ]
    hard = [TextExample('x', ('the ship',), 'b')]
    problem, model = make(
        CLASSIFICATION, LABELS, **SETTINGS | {'temperature': 2.0}, train=[*soft, *hard]
    )
    params = large_params(model, EncodedExamples.of(problem, soft))
    _, terms = answers(model, params, soft)
    logits = torch.tensor(one_per_row(model, params, sequences_of(problem, soft)))
    target = (torch.tensor(shares).log() / 2).softmax(-1)
    expected = 4 * torch.nn.functional.kl_div(
        (logits / 2).log_softmax(-1), target, reduction='batchmean'
    )
    assert float(mean(terms['classification'])) == pytest.approx(float(expected), rel=1e-4)
    _, mixed = answers(model, params, [*soft, *hard])
    logits = torch.tensor(one_per_row(model, params, sequences_of(problem, hard)))
    own = torch.nn.functional.cross_entropy(logits, torch.tensor([1]))
    assert float(mixed['classification'].count) == 9
    assert float(mixed['classification'].sum) == pytest.approx(8 * float(expected) + float(own))
    assert CLASSIFICATION.encoding.count_labels(soft[:1]).keys() == set(LABELS)
    for temperature, train in ((0.0, soft), (2.0, hard)):
        with pytest.raises(UserError, match='problem.temperature is .*; set it and data.columns'):
            make(CLASSIFICATION, LABELS, **SETTINGS | {'temperature': temperature}, train=train)


def test_unknown_labels_and_settings_are_refused():
    problem, _ = make(CLASSIFICATION, LABELS, **SETTINGS)
    with pytest.raises(UserError, match=r"example x7: the label 'd' is not among .*a, b, c"):
        problem.encoding.encode(TextExample('x7', ('ship',), 'd'))


def test_long_texts_are_truncated_and_counted():
    problem, _ = make(CLASSIFICATION, LABELS, max_length=16, **SETTINGS)
    ((sequence,),) = problem.encoding.encode(TextExample('1', (TEXT, TEXT), None))
    assert len(sequence.ids) == 16
    assert problem.setup.counts == {'texts truncated to 16 tokens': 1}


def test_regression_minimizes_the_squared_error():
    examples = [
        TextExample(f'{i}', own, None if i == 4 else i / 2.0) for i, own in enumerate(texts(9, 1))
    ]
    problem, model = make(REGRESSION, ('score',), metrics=('pearson', 'spearman'))
    params = large_params(model, EncodedExamples.of(problem, examples))
    parts, terms = answers(model, params, examples)
    scores = one_per_row(model, params, sequences_of(problem, examples))[:, 0]
    known = [i for i in range(9) if i != 4]
    expected = np.mean((scores[known] - np.array(known) / 2) ** 2)
    assert float(mean(terms['regression'])) == pytest.approx(expected, rel=1e-5)
    decoded = [
        problem.decoder.decode(e, own, Calibration())
        for e, own in zip(examples, parts, strict=True)
    ]
    np.testing.assert_allclose(decoded, scores, rtol=1e-4, atol=1e-4)
    gold, own = [e for e in examples if e.label is not None], [decoded[i] for i in known]
    found = problem.decoder.score(gold, own).metrics
    pearson = np.corrcoef([e.label for e in gold], own)[0, 1]
    assert found['pearson'] == pytest.approx(pearson, rel=1e-5)
    assert found['score'] == pytest.approx((found['pearson'] + found['spearman']) / 2)


def test_multiple_choice_is_a_softmax_over_the_choices_of_an_example():
    rng = random.Random(2)
    examples = []
    for i in range(7):
        premise, *choices = (' '.join(own) for own in texts(4, 10 + i, most=1))
        label = None if i == 3 else rng.randrange(3)
        also = ((label + 1) % 3,) if i == 5 else ()
        examples.append(MultipleChoiceExample(f'{i}', premise, tuple(choices), label, also))
    problem, model = make(MULTIPLE_CHOICE, ())
    params = large_params(model, EncodedExamples.of(problem, examples), scale=25.0)
    parts, terms = answers(model, params, examples, rows=1, length=160)
    logits = one_per_row(model, params, sequences_of(problem, examples)).reshape(7, 3)
    shares = torch.softmax(torch.tensor(logits), -1).numpy()
    decoded = np.array(
        [
            problem.decoder.decode(e, own, Calibration())
            for e, own in zip(examples, parts, strict=True)
        ]
    )
    assert shares.std() > 0.05
    np.testing.assert_allclose(decoded, shares, atol=1e-5)
    gained = [
        sum(own[i] for i in (e.label, *e.also_correct))
        for e, own in zip(examples, shares, strict=True)
        if e.label is not None
    ]
    assert float(mean(terms['multiple_choice'])) == pytest.approx(
        -np.mean(np.log(gained)), rel=1e-4
    )
    assert float(terms['multiple_choice'].count) == 6


def test_record_is_scored_by_the_text_of_the_chosen_entity():
    entities = ('New York', 'the York', 'Hull')
    own = MultipleChoiceExample('1-2', 'P', ('a', 'b', 'c'), 0, (2,), entities)
    problem, _ = make(MULTIPLE_CHOICE, ())
    wrong, right = [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]
    # Without its article, 'York' shares one of two words with 'New York': F1 is 2/3.
    assert problem.decoder.score([own], [wrong]).metrics == pytest.approx(
        {'score': 1 / 3, 'f1': 2 / 3, 'exact_match': 0, 'accuracy': 0}
    )
    found = problem.decoder.score([own, own], [wrong, right]).metrics
    assert next(iter(found)) == 'score'
    assert found == pytest.approx(
        {'score': 2 / 3, 'f1': 5 / 6, 'exact_match': 0.5, 'accuracy': 0.5}
    )
    assert list(problem.decoder.score([own._replace(entities=())], [wrong]).metrics) == ['accuracy']


@pytest.mark.parametrize(
    ('gold', 'settings', 'expected'),
    [
        # Most of the training examples are 'a', but not of those that are scored.
        ('abbb', {}, {'accuracy': 3 / 4, 'matthews': 0.0, 'f1_macro': 3 / 7}),
        ('abbb', {'positive': 'a', 'metrics': ('f1',)}, {'f1': 2 / 5, 'accuracy': 3 / 4}),
        ('1223', {'ordinal': True}, {'mae': 1 / 2, 'kappa': 0.0}),
    ],
)
def test_the_baseline_is_the_best_constant_for_each_metric(gold, settings, expected):
    labels = '123' if gold.isdecimal() else LABELS
    train = [TextExample(str(i), ('x',), labels[0]) for i in range(9)]
    examples = [TextExample(str(i), ('x',), label) for i, label in enumerate(gold)]
    problem, _ = make(CLASSIFICATION, tuple(labels), **SETTINGS | settings)
    found = problem.decoder.baseline(train, examples)
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_the_blind_guess_of_numbers_is_their_mean():
    numbers = [TextExample(str(i), ('x',), float(i)) for i in range(4)]
    problem, _ = make(REGRESSION, ('score',), metrics=('pearson',))
    assert problem.decoder.blind_guesses([], numbers) == [1.5] * 4


def test_parts_of_a_problem_are_frozen():
    problem, _ = make(CLASSIFICATION, LABELS, **SETTINGS)
    for part in (problem, problem.encoding, problem.loss, problem.decoder):
        with pytest.raises(AttributeError):
            part.setup = None
    with pytest.raises(AttributeError):
        problem.setup.all_probabilities = True


@pytest.mark.parametrize('smoothing', [0.0, 0.1])
def test_ordered_classes_have_the_ranked_probability_score(smoothing):
    examples = [TextExample(f'{i}', own, str(i % 3)) for i, own in enumerate(texts(9, 5))]
    unknown = TextExample('x', ('the ship',), None)
    settings = SETTINGS | {'ordinal': True, 'label_smoothing': smoothing}
    problem, model = make(CLASSIFICATION, '012', train=examples, **settings)
    params = large_params(model, EncodedExamples.of(problem, examples))
    parts, terms = answers(model, params, [*examples, unknown])
    p_NC = np.array([part['probabilities'] for ((part,),) in parts[:-1]])
    total = 0.0
    for p_C, example in zip(p_NC, examples, strict=True):
        target = [smoothing / 3 + (1 - smoothing) * (str(c) == example.label) for c in range(3)]
        total += sum((sum(p_C[: k + 1]) - sum(target[: k + 1])) ** 2 for k in range(3))
    assert float(mean(terms['classification'])) == pytest.approx(total / 9, rel=1e-4)
    decoded = [
        problem.decoder.decode(e, own, Calibration())
        for e, own in zip(examples, parts, strict=False)
    ]
    found = problem.decoder.score(examples, decoded).metrics
    gold, guesses = [int(e.label) for e in examples], p_NC.argmax(-1)
    assert found['mae'] == pytest.approx(metrics.mean_absolute_error(gold, guesses))
    kappa = metrics.cohen_kappa_score(gold, guesses, weights='quadratic')
    assert found['kappa'] == pytest.approx(kappa)


def test_the_order_of_ordered_classes_must_be_known():
    examples = [TextExample('1', ('ship',), 'good'), TextExample('2', ('ship',), 'bad')]
    with pytest.raises(UserError, match='the order of the classes bad, good is not known'):
        make(CLASSIFICATION, ('bad', 'good'), train=examples, **SETTINGS | {'ordinal': True})

"""Prefix prompts of causal models: the scores of transformers, answered examples, refusals."""

import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.inference.predictor import Predictor
from bert_jax.interop import huggingface
from tests.inference import small_gpt2

ANSWERS = {'good': ['fine', 'great'], 'bad': 'dull'}  # several subwords each
TEXTS = ['A film about ships.', 'No plot', '']
TEMPLATE = 'Review: {text}\nSentiment: [MASK]\n\n'


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return small_gpt2.folder(tmp_path_factory.mktemp('gpt2'))


@pytest.fixture(scope='module')
def model(folder):
    return Predictor(huggingface.load(folder), batch_tokens=512)


@pytest.fixture(scope='module')
def theirs(folder):
    """The log probability of a word after a text, by GPT-2 of transformers."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    network = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def score(text, word):
        prompt, answer = (tokenizer(part)['input_ids'] for part in (text, word))
        with torch.no_grad():
            logits = network(torch.tensor([prompt + answer])).logits[0]
        log_p = torch.log_softmax(logits, -1)[len(prompt) - 1 : -1]
        return log_p[range(len(answer)), answer].sum().item()

    return score


def probabilities(scores):
    mean = np.array([np.mean(scores[:2]), scores[2]])
    return np.exp(mean - np.logaddexp.reduce(mean))


def test_answers_have_the_log_probabilities_of_transformers(model, theirs):
    prompted = model.with_prompt(TEMPLATE, ANSWERS)
    for text, found in zip(TEXTS, prompted.prompt(TEXTS, probabilities=True), strict=True):
        prompt = f'Review: {text}\nSentiment:'
        scores = [theirs(prompt, f' {word}') for word in ('fine', 'great', 'dull')]
        log_p = np.log([answer['probability'] for answer in found['answers']])
        np.testing.assert_allclose(log_p, scores, atol=1e-4)
        expected = probabilities(scores)
        np.testing.assert_allclose([*found['probabilities'].values()], expected, atol=1e-4)


def test_answered_examples_come_before_the_text(model, theirs):
    shots = [{'text': 'Ships!', 'label': 'good'}, {'text': 'Old', 'label': 'bad'}]
    prompted = model.with_prompt(TEMPLATE, ANSWERS, shots=shots)
    (found,) = prompted.prompt(TEXTS[:1], probabilities=True)
    prompt = (
        'Review: Ships!\nSentiment: fine\n\nReview: Old\nSentiment: dull\n\n'
        f'Review: {TEXTS[0]}\nSentiment:'
    )
    scores = [theirs(prompt, f' {word}') for word in ('fine', 'great', 'dull')]
    log_p = np.log([answer['probability'] for answer in found['answers']])
    np.testing.assert_allclose(log_p, scores, atol=1e-4)


def test_calibration_divides_by_the_probabilities_without_the_text(model):
    plain = model.with_prompt(TEMPLATE, ANSWERS)
    by_pmi = model.with_prompt(TEMPLATE, ANSWERS, calibration='pmi')
    classes = [
        np.log([*found['probabilities'].values()])
        for found in plain.prompt([TEXTS[0], ''], probabilities=True)
    ]
    (found,) = by_pmi.prompt(TEXTS[:1], probabilities=True)
    difference = classes[0] - classes[1]
    expected = np.exp(difference - np.logaddexp.reduce(difference))
    np.testing.assert_allclose([*found['probabilities'].values()], expected, atol=1e-4)


def test_long_texts_are_truncated_not_the_template(model):
    prompted = model.with_prompt(TEMPLATE, ANSWERS)
    long, cut = prompted.prompt(['a' * 500, 'a' * 20], probabilities=True)
    assert set(long) == set(cut)
    assert any('truncated' in what for what in prompted.counts)


@pytest.mark.parametrize(
    ('template', 'options', 'message'),
    [
        ('{text} It was [MASK].', {}, r"'\.' after \[MASK\]; a causal model writes the answer"),
        ('{text} [SEP] [MASK]', {}, r'has \[SEP\]'),
        (TEMPLATE, {'decoding': 'max_first'}, 'reads an answer from left to right'),
        (TEMPLATE, {'shots': [{'label': 'good'}]}, "shot 1 lacks 'text'"),
        (TEMPLATE, {'shots': [{'text': 'x', 'label': 'so-so'}]}, "shot 1 has the label 'so-so'"),
    ],
)
def test_prompts_that_a_causal_model_cannot_answer_are_refused(model, template, options, message):
    with pytest.raises(UserError, match=message):
        model.with_prompt(template, ANSWERS, **options).prompt(TEXTS)

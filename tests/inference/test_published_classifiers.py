"""Published sequence classifiers: what their logits mean, as their folders say."""

import json

import pytest
import torch
import transformers

import bert_jax
from bert_jax.errors import UserError
from bert_jax.interop import huggingface_export, loading
from tests.inference import small_runs
from tests.interop import published

IDENTITY = 'torch.nn.modules.linear.Identity'
# How a folder with one class says what its logit means: keys of config.json and of
# config_sentence_transformers.json, and whether the answer is the logit or its sigmoid.
ONE_CLASS = {
    'nothing': ({}, {}, False),
    'regression': ({'problem_type': 'regression'}, {}, True),
    'cross encoder': ({}, {'model_type': 'CrossEncoder', 'activation_fn': IDENTITY}, True),
    'version 4': ({'sentence_transformers': {'activation_fn': IDENTITY}}, {}, True),
    'version 3': ({'sbert_ce_default_activation_function': IDENTITY}, {}, True),
    'sigmoid': (
        {'problem_type': 'regression'},
        {'model_type': 'CrossEncoder', 'activation_fn': 'torch.nn.modules.activation.Sigmoid'},
        False,
    ),
}


@pytest.mark.parametrize('name', ONE_CLASS)
def test_one_class_is_a_number_as_its_folder_says(name, tmp_path):
    """Also in transformers and sentence-transformers, before and after export."""
    changes, settings, is_logit = ONE_CLASS[name]
    path = published.folder(tmp_path / 'model', 'BertForSequenceClassification', num_labels=1)
    config = json.loads((path / 'config.json').read_text())
    (path / 'config.json').write_text(json.dumps(config | changes))
    if settings:
        (path / 'config_sentence_transformers.json').write_text(json.dumps(settings))
    tokenize = transformers.BertTokenizer(str(path / 'vocab.txt'))
    theirs = transformers.BertForSequenceClassification.from_pretrained(path).eval()
    with torch.no_grad():
        logit = theirs(**tokenize('the ship', 'the moon', return_tensors='pt')).logits[0, 0]
    expected = float(logit if is_logit else logit.sigmoid())
    pair = ('the ship', 'the moon')
    (record,) = bert_jax.load(path).classify([pair])
    assert record['predicted'] == pytest.approx(expected, abs=1e-5)

    huggingface_export.save(loading.load_any(path), tmp_path / 'exported')
    (record,) = bert_jax.load(tmp_path / 'exported').classify([pair])
    assert record['predicted'] == pytest.approx(expected, abs=1e-5)
    pipeline = transformers.pipeline('text-classification', str(tmp_path / 'exported'))
    found = pipeline({'text': pair[0], 'text_pair': pair[1]})
    assert found['score'] == pytest.approx(expected, abs=1e-5)
    sentence_transformers = pytest.importorskip('sentence_transformers')
    encoder = sentence_transformers.CrossEncoder(str(tmp_path / 'exported'))
    assert encoder.predict([pair])[0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize('problem_type', ['multi_label_classification', 'regression'])
def test_several_answers_are_those_of_transformers(problem_type, tmp_path):
    """Before and after export; classes with a probability of at least 0.5 are chosen."""
    changes = {'num_labels': 3, 'problem_type': problem_type}
    path = published.folder(tmp_path / 'model', 'BertForSequenceClassification', **changes)
    text = 'the ship near the moon'
    huggingface_export.save(loading.load_any(path), tmp_path / 'exported')
    config = json.loads((tmp_path / 'exported/config.json').read_text())
    assert config['problem_type'] == problem_type
    tokenize = transformers.BertTokenizer(str(path / 'vocab.txt'))
    theirs = transformers.BertForSequenceClassification.from_pretrained(path).eval()
    with torch.no_grad():
        logits = theirs(**tokenize(text, return_tensors='pt')).logits[0]
    is_set = problem_type != 'regression'
    expected = (logits.sigmoid() if is_set else logits).tolist()
    assert max(expected) - min(expected) > 0.05
    for folder in (path, tmp_path / 'exported'):
        (record,) = bert_jax.load(folder).classify([text])
        found = record['probabilities' if is_set else 'predicted']
        assert [*found] == [f'LABEL_{number}' for number in range(3)]
        assert [*found.values()] == pytest.approx(expected, abs=1e-5)
        if is_set:
            assert record['predicted'] == [name for name, p in found.items() if p >= 0.5]


def test_a_threshold_chooses_the_classes_of_a_published_model(tmp_path):
    changes = {'num_labels': 3, 'problem_type': 'multi_label_classification'}
    path = published.folder(tmp_path / 'model', 'BertForSequenceClassification', **changes)
    model = bert_jax.load(path)
    (record,) = model.classify(['the ship'])
    threshold = sorted(record['probabilities'].values())[1]
    (found,) = model.with_settings(threshold=threshold).classify(['the ship'])
    assert len(found['predicted']) == 2
    with pytest.raises(UserError, match="threshold has no effect: problem.thresholds is 'one'"):
        model.with_settings(threshold=threshold, thresholds='one')


def test_more_label_names_than_outputs_are_one_line(tmp_path):
    changes = {'num_labels': 3, 'problem_type': 'multi_label_classification'}
    path = published.folder(tmp_path / 'model', 'BertForSequenceClassification', **changes)
    config = json.loads((path / 'config.json').read_text())
    config['id2label'] = {str(number): f'x{number}' for number in range(5)}
    config.pop('label2id', None)
    (path / 'config.json').write_text(json.dumps(config))
    with pytest.raises(
        UserError, match=r'classifier.* has the shape \[3\], but .* \[5\]'
    ) as caught:
        bert_jax.load(path)
    assert '\n' not in str(caught.value)


def test_an_exported_regression_run_keeps_its_score(tmp_path):
    run = small_runs.save_run(tmp_path / 'run', 'regression')
    huggingface_export.save(loading.load_any(run), tmp_path / 'exported')
    (record,) = bert_jax.load(run).classify(['the ship near the moon'])
    pipeline = transformers.pipeline('text-classification', str(tmp_path / 'exported'))
    (found,) = pipeline(['the ship near the moon'])
    assert found['score'] == pytest.approx(record['predicted'], abs=1e-5)

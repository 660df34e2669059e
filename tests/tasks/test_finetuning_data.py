"""The tokenizer, the weights and the examples of a fine-tuning run: obeyed, compared or refused."""

import copy
import dataclasses
import shlex
import types

import pytest
from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.interop import loading
from bert_jax.labels.examples import TextExample
from bert_jax.models import architectures
from bert_jax.problems import PROBLEMS
from bert_jax.tasks import initialization, make_task
from bert_jax.tasks.finetuning import inputs
from bert_jax.tasks.finetuning.report import why_no_metrics
from bert_jax.tasks.finetuning.task import FineTuning
from bert_jax.training.workdir import Workdir
from configs import base, finetune
from tests.interop import published


@pytest.fixture
def weights(monkeypatch):
    found = types.SimpleNamespace(family='bert', tokenizer=object())
    monkeypatch.setattr(loading, 'load_any', lambda *_, **__: found)
    return found


def test_a_tokenizer_beside_weights_that_have_one_is_refused(weights):
    config = finetune.get_config()
    config.init_from = 'weights'
    assert inputs.make_tokenizer(config, weights, []) is weights.tokenizer
    config.data.tokenizer = 'vocab.txt'
    with pytest.raises(UserError, match="'vocab.txt', but init_from='weights' has its own"):
        inputs.make_tokenizer(config, weights, [])


def test_a_run_from_weights_does_not_record_the_architecture_of_its_recipe(weights, tmp_path):
    config = base.get_config()
    config.init_from = 'weights'
    of_recipe = copy.deepcopy(config)
    initialization.load_weights(config)
    assert config.model.architecture is None
    (tmp_path / 'checkpoints/5').mkdir(parents=True)
    Workdir.of(tmp_path).write_config(config)
    assert Workdir.of(tmp_path).check_config(of_recipe) == []
    config.model.architecture = 'roberta_base'
    with pytest.raises(UserError, match='is a bert model, .* set it to None'):
        initialization.load_weights(config)


def test_a_checkpoint_of_other_training_examples_is_refused():
    config = finetune.get_config('sample_sentiment')
    config.update_from_flattened_dict(
        {
            'data.tokenizer': 'train:wordpiece:200',
            'model.architecture': 'bert_tiny',
            'model.num_layers': 1,
        }
    )
    task = make_task(config)
    task.check(task.record)
    with pytest.raises(UserError, match='holds a run on other training examples'):
        task.check(dataclasses.replace(task.record, train_digest='another'))


def test_a_head_whose_classes_share_a_name_is_not_trained_further():
    settings = finetune.get_config('classification').problem
    model = types.SimpleNamespace(heads=('sequence_classification',), labels=('a', 'b', 'a'))
    train = [TextExample(str(n), ('x',), label) for n, label in enumerate('ab')]
    problem = PROBLEMS['classification']
    assert inputs.choose_labels(problem, train, settings, model) == (('a', 'b'), ())


@pytest.mark.parametrize(
    ('found', 'wanted'),
    [
        (['10', '2', '1'], ('1', '2', '10')),
        (['10', '2', '-1'], ('-1', '2', '10')),
        (['10', '2', 'a'], ('10', '2', 'a')),
    ],
)
def test_labels_that_are_integers_are_sorted_by_value(found, wanted):
    settings = finetune.get_config('classification').problem
    train = [TextExample(str(n), ('x',), label) for n, label in enumerate(found)]
    problem = PROBLEMS['classification']
    assert inputs.choose_labels(problem, train, settings, None) == (wanted, ())


@pytest.mark.parametrize(
    'labels', [[str(n / 7) for n in range(60)], [str(n) for n in range(1900, 1960)]]
)
def test_measured_numbers_are_not_taken_for_classes(labels):
    train = [TextExample(f'{n}', ('a text',), label) for n, label in enumerate(labels)]
    settings = ConfigDict({'labels': ()})
    classes_of_texts = PROBLEMS['classification']
    with pytest.raises(UserError, match='finetune.py:regression'):
        inputs.choose_labels(classes_of_texts, train, settings, None)
    stars = [example._replace(label=str(n % 10)) for n, example in enumerate(train)]
    names = [example._replace(label=f'intent {n}') for n, example in enumerate(train)]
    ids = [example._replace(label=str(n)) for n, example in enumerate(train)]
    for classes in (stars, names, ids):
        assert inputs.choose_labels(classes_of_texts, classes, settings, None)
    settings.labels = tuple(labels)
    chosen, _ = inputs.choose_labels(classes_of_texts, train, settings, None)
    assert chosen == tuple(labels)


def test_a_class_for_every_example_is_warned_about_unless_the_classes_are_given(capsys):
    train = [TextExample(str(n), (f'text {n}',), f'title {n}') for n in range(30)]
    settings = ConfigDict({'labels': ()})
    inputs.choose_labels(PROBLEMS['classification'], train, settings, None)
    warning = capsys.readouterr().err
    assert '30 classes in 30' in warning
    assert 'data.columns.label' in warning
    settings.labels = tuple(sorted(one.label for one in train))
    inputs.choose_labels(PROBLEMS['classification'], train, settings, None)
    assert not capsys.readouterr().err


def test_the_log_says_why_a_head_is_dropped(tmp_path):
    """Its labels have other names; or the problem has no such head."""
    names = dict(enumerate(['NEGATIVE', 'POSITIVE']))
    classes = published.folder(
        tmp_path / 'classes', 'BertForSequenceClassification', id2label=names
    )
    pretraining = published.folder(tmp_path / 'pretraining', 'BertForPreTraining')
    config = finetune.get_config('sample_sentiment')
    for folder, expected in (
        (
            classes,
            'dropped heads: sequence_classification (its labels are NEGATIVE, POSITIVE, those of '
            'the data negative, positive; give them the same names to train the head further)',
        ),
        (pretraining, 'dropped heads: mlm, nsp (task=classification does not use it)'),
    ):
        config.init_from = str(folder)
        assert expected in make_task(config).start.lines


def test_the_printed_command_has_a_short_text_of_the_training_data():
    texts = ['word ' * 500, "It's short.", 'A little longer.']
    splits = types.SimpleNamespace(train=[TextExample('x', (text,), 'a') for text in texts])
    config = ConfigDict({'workdir': 'runs/x', 'task': 'classification'})
    start = types.SimpleNamespace(family=None, architecture=architectures.build('bert'))
    record = types.SimpleNamespace(is_causal=False, has_prefix=False)
    task = types.SimpleNamespace(splits=splits, config=config, start=start, record=record)
    (query,) = FineTuning.next_commands(task, {'encoder': {}})
    assert shlex.split(query)[2] == "It's short."


def test_a_split_without_metrics_says_why():
    labeled, unlabeled = TextExample('a', ('x',), 'yes'), TextExample('b', ('x',), None)
    assert why_no_metrics([unlabeled] * 2) == 'no labels, predictions only'
    assert why_no_metrics([labeled, unlabeled]) == 'predictions only, 1 of 2 have no label'
    assert 'no metric is defined' in why_no_metrics([labeled] * 2)

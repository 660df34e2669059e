"""The card of a fine-tuning run: intervals, the baseline, and the page."""

import numpy as np
import pytest

from bert_jax.models import architectures
from bert_jax.problems import PROBLEMS
from bert_jax.reports import finetuning_card, model_card
from configs import finetune


def accuracy(examples, predictions):
    return {
        'accuracy': float(np.mean([a == b for a, b in zip(examples, predictions, strict=True)]))
    }


def test_a_score_within_the_interval_of_the_baseline_is_weak():
    def split(value, low, high, guess, name='accuracy'):
        return finetuning_card.SplitScores(50, {name: value}, {name: (low, high)}, {name: guess})

    assert 'accuracy 0.6 is not clearly better than 0.5' in split(0.6, 0.45, 0.7, 0.5).weakness(
        lambda name: False
    )
    assert split(0.5, 0.5, 0.5, 0.5).weakness(lambda name: False)
    assert not split(0.6, 0.55, 0.7, 0.5).weakness(lambda name: False)
    assert not split(0.6, 0.5, 0.7, 0.8, 'rmse').weakness(lambda name: True)
    assert split(0.6, 0.5, 0.7, 0.6, 'rmse').weakness(lambda name: True)


def test_the_page_names_what_was_trained_and_how_well():
    config = finetune.get_config('sample_sentiment')
    config.seed = 7
    scores = finetuning_card.SplitScores(90, {'f1': 0.5}, {'f1': (0.4, 0.6)}, {'f1': 0.25})
    results = dict(parameters=1234, steps=10, train_seconds=3.0, devices='1 × cpu')
    results |= dict(learning_rate=7.2e-4, warnings=['dev: f1 is not clearly better'])
    page = finetuning_card.finetuned(
        config, results, 600, {'dev': scores}, ['/x/bert_jax/main.py', '--a=b c']
    )
    for text in (
        '| f1 | 0.5000 | 0.4000 – 0.6000 | 0.2500 |',
        '### dev, 90 examples',
        '| training examples | 600 |',
        '| seed | 7 |',
        '| learning rate | 0.00072 |',
        '**Warning:** dev: f1 is not clearly better\n',
        "`python -m bert_jax.main '--a=b c'`",
    ):
        assert text in page


def test_the_score_of_the_split_that_thresholds_were_tuned_on_says_so():
    config = finetune.get_config('sample_spans')
    scores = finetuning_card.SplitScores(90, {'f1': 0.5}, {'f1': (0.4, 0.6)}, {})
    results = dict(parameters=1, steps=1, train_seconds=1.0, devices='cpu', learning_rate=1e-3)
    splits = {'dev': scores, 'test': scores}
    command = ['/x/bert_jax/main.py']
    tuned = {'tuned_on_dev': {'threshold': 0.31254}}
    page = finetuning_card.finetuned(config, results | tuned, 600, splits, command)
    assert '| thresholds, tuned on dev | threshold 0.3125 |' in page
    assert '### dev, on which the thresholds were tuned, 90 examples' in page
    assert '### test, 90 examples' in page
    assert '(dev, on which the thresholds were tuned)' in page
    page = finetuning_card.finetuned(config, results, 600, splits, command)
    assert 'were tuned' not in page
    assert 'tuned on dev' not in page


def test_the_header_is_one_that_the_hub_reads():
    hub = pytest.importorskip('huggingface_hub')
    config = finetune.get_config('sample_pos')
    config.init_from, config.workdir = '/models/bert-base-cased', 'runs/pos: "x"'
    results = dict(parameters=1, steps=1, train_seconds=1.0, devices='cpu', learning_rate=1e-3)
    metrics = {'f1': 0.5, 'accuracy': 0.75, 'matthews': float('nan')}
    scores = finetuning_card.SplitScores(9, metrics, dict.fromkeys(metrics, (0, 1)), {})
    tag = PROBLEMS[config.task].pipeline_tag
    page = finetuning_card.finetuned(
        config, results, 9, {'dev': scores}, ['a.py'], 'apache-2.0', ['loss.png'], tag
    )
    data = hub.ModelCard(page).data
    assert (data.license, data.base_model) == ('apache-2.0', 'bert-base-cased')
    assert data.pipeline_tag == 'token-classification'
    assert data.model_name == 'pos: "x"'
    found = {result.metric_type: result.metric_value for result in data.eval_results}
    assert found == {'f1': 0.5, 'accuracy': 0.75}
    assert '![loss.png](loss.png)' in page


def test_the_card_of_an_export_with_thousands_of_labels_stays_readable():
    labels = [f'label {number}' for number in range(3000)]
    card = model_card.exported(
        family='bert',
        published_class='BertForSequenceClassification',
        architecture=architectures.build('bert', vocab_size=9, max_position_embeddings=9),
        num_parameters=1,
        heads=['sequence_classification'],
        labels=labels,
        tokenizer=None,
        details={'labels': labels, 'task': 'classification'},
        run_card='',
    )
    assert 'label 99 … (3,000 in all, see config.json)' in card
    assert 'label 100' not in card
    assert len(card) < 6000

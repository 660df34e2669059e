"""A span run from its command to its scores: decoding, tuned thresholds, a model with settings."""

import json

import pytest

import bert_jax
from bert_jax import evaluate, main
from bert_jax.errors import UserError
from tests.end_to_end.test_finetuning import config_of

GOLD = 'bert_jax/labels/samples/spans.jsonl'
FEW = {'training__steps': 2, 'evaluation__every_steps': 0, 'problem__width': 16}


def train(folder, **keys):
    return main.run(config_of('sample_spans', folder, **FEW, **keys))


@pytest.fixture(scope='module')
def argmax(tmp_path_factory):
    folder = tmp_path_factory.mktemp('spans') / 'run'
    return folder, train(folder, problem__summary='self_attention')


def test_argmax_tunes_nothing(argmax):
    folder, results = argmax
    assert 'tuned_on_dev' not in results
    assert 'were tuned' not in (folder / 'README.md').read_text()


def test_a_tuned_threshold_is_in_log_results_and_card_and_names_the_dev_score(tmp_path, capsys):
    results = train(tmp_path / 'run', problem__decoding='threshold')
    threshold = results['tuned_on_dev']['threshold']
    assert 0 < threshold < 1
    assert json.loads((tmp_path / 'run/results.json').read_text())['tuned_on_dev'] == {
        'threshold': threshold
    }
    log = ''.join(capsys.readouterr())
    assert f'tuned on dev: threshold {threshold:.4g}\n' in log
    assert 'dev, on which the thresholds were tuned: f1' in log
    card = (tmp_path / 'run/README.md').read_text()
    assert f'| thresholds, tuned on dev | threshold {threshold:.4g} |' in card
    assert '### dev, on which the thresholds were tuned, 32 examples' in card
    report = (tmp_path / 'run/dev/report.md').read_text()
    assert 'on which the thresholds were tuned' in report
    assert bert_jax.load(str(tmp_path / 'run')).spans(['The mayor of Leeds spoke.'])


def test_a_trained_model_takes_another_decoding(argmax, tmp_path):
    folder, _ = argmax
    flags = [f'--model={folder}', f'--input={GOLD}', f'--output={tmp_path / "scores"}']
    set_to = ['--problem.decoding=threshold', '--problem.threshold=0.001']
    evaluate.main([*flags, *set_to])
    lines = (tmp_path / 'scores/predictions.jsonl').read_text().splitlines()
    model, text = bert_jax.load(str(folder)), json.loads(lines[0])['text']
    many = model.with_settings(decoding='threshold', threshold=0.001)
    assert many.spans([text])[0]['predicted'] == json.loads(lines[0])['predicted']
    flat = many.with_settings(nested=False).spans([text])[0]['predicted']
    assert 0 < len(flat) < len(many.spans([text])[0]['predicted'])
    none = model.with_settings(decoding='threshold', threshold=0.999)
    assert none.spans([text])[0]['predicted'] == []
    with pytest.raises(UserError, match='no threshold was tuned'):
        model.with_settings(decoding='threshold').spans([text])
    with pytest.raises(UserError, match="no effect: problem.decoding is 'argmax'"):
        model.with_settings(threshold=0.5)


def test_a_threshold_that_is_to_be_tuned_needs_a_dev_split(tmp_path):
    without = {'data__dev': (), 'data__dev_fraction': 0.0}
    with pytest.raises(UserError, match="decoding is 'threshold', but there is no dev split"):
        train(tmp_path / 'run', problem__decoding='threshold', **without)

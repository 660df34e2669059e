"""Exported folders predict like the run they were made from."""

import json

import pytest

import bert_jax
from bert_jax import export
from bert_jax.errors import UserError
from bert_jax.inference.inputs import PredictionOptions
from bert_jax.problems import PROBLEMS
from tests.inference.small_runs import KINDS, LENGTH, save_run

pytestmark = pytest.mark.usefixtures('no_loader_process')
TEXTS = ['The U.S. ship near-by, the moon.', 'the cow', 'star ' * LENGTH + 'the moon']
INPUTS = {
    'classification': [{'text': text} for text in TEXTS],
    'regression': [{'text': text} for text in TEXTS],
    'tagging': [{'text': text} for text in TEXTS],
    'multiple_choice': [KINDS['multiple_choice'][1]],
    'question_answering': [{'question': 'the ship', 'context': text} for text in TEXTS],
}
METADATA = {
    'tagging': {'kept': {'splitter': 'whitespace'}},
    'question_answering': {'calibrated': {'no_answer_threshold': 1e6}},
}


@pytest.mark.parametrize('kind', INPUTS)
def test_an_exported_model_predicts_like_its_run(kind, tmp_path):
    run = save_run(tmp_path / 'run', kind, **METADATA.get(kind, {}))
    export.export(export.Request(model=str(run), output=str(tmp_path / 'exported')))
    options = PredictionOptions(probabilities=PROBLEMS[kind].has_probabilities)
    (ours, our_counts), (theirs, their_counts) = (
        (model.predict(PROBLEMS[kind].predict_task, INPUTS[kind], options), model.counts)
        for model in (bert_jax.load(run), bert_jax.load(tmp_path / 'exported'))
    )
    assert theirs == ours
    assert their_counts == our_counts
    if kind == 'tagging':
        assert [word['text'] for word in theirs[0]['words']] == TEXTS[0].split()


def test_a_model_without_its_crf_or_its_head_says_what_it_can_do(tmp_path):
    crf = save_run(tmp_path / 'crf', 'tagging', {'crf': True}, kept={'splitter': 'whitespace'})
    export.export(export.Request(model=str(crf), output=str(tmp_path / 'without_crf')))
    (record,) = bert_jax.load(tmp_path / 'without_crf').tag(['the U.S.'])
    assert [word['text'] for word in record['words']] == ['the', 'U.S.']
    spans = save_run(tmp_path / 'spans', 'spans')
    export.export(export.Request(model=str(spans), output=str(tmp_path / 'without_spans')))
    with pytest.raises(UserError, match='has no head for spans; it can answer embed'):
        bert_jax.load(tmp_path / 'without_spans').spans(['the ship'])


def test_a_damaged_file_is_one_line_and_holds_no_paths(tmp_path):
    run = save_run(tmp_path / 'run', 'classification')
    export.export(export.Request(model=str(run), output=str(tmp_path / 'exported')))
    path = tmp_path / 'exported/bert_jax.json'
    assert str(tmp_path) not in path.read_text()
    assert json.loads(path.read_text())['task'] == 'classification'
    path.write_text('[')
    with pytest.raises(UserError, match=r'bert_jax\.json is not valid JSON'):
        bert_jax.load(tmp_path / 'exported')


def test_an_exported_model_reads_gold_files_like_its_run(tmp_path):
    (tmp_path / 'new.csv').write_text('review;stars\nthe ship;yes\nthe moon;no\nthe cow;odd\n')
    settings = dict(PROBLEMS['classification'].settings) | {'labels': KINDS['classification'][0]}
    data = {
        'columns': {'text': 'review', 'label': 'stars'},
        'separator': ';',
        'skip_labels': ('odd',),
        'train': (f'{tmp_path}/train.csv',),
    }
    config = {'training': {'sequence_length': LENGTH}, 'problem': settings, 'data': data}
    run = save_run(tmp_path / 'run', 'classification', config=config)
    export.export(export.Request(model=str(run), output=str(tmp_path / 'exported')))
    ours, theirs = (
        bert_jax.load(folder).evaluate([f'{tmp_path}/new.csv'])
        for folder in (run, tmp_path / 'exported')
    )
    assert len(ours.records) == 2
    assert theirs == ours

"""The analysis of minimal pairs, on a model with random parameters."""

import json

import numpy as np
import pytest

import bert_jax
from bert_jax.analyze import __main__ as command
from tests.interop import published

PAIRS = {
    'plural': [('the ships', 'a ships'), ('rockets', 'rocket'), ('the moon', 'the moon')],
    'order': [('a cow near the barn', 'cow the near a barn'), ('the star', 'star the')],
}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return published.folder(tmp_path_factory.mktemp('model') / 'bert')


@pytest.fixture
def pairs(tmp_path):
    rows = ['sentence_good,sentence_bad,UID,linguistics_term']
    rows += [f'{a},{b},{name},{name[0]}' for name, own in PAIRS.items() for a, b in own]
    (tmp_path / 'pairs.csv').write_text('\n'.join(rows))
    return tmp_path / 'pairs.csv'


def test_a_model_is_compared_on_every_paradigm_with_its_untrained_copy(folder, pairs, tmp_path):
    flags = [f'--model={folder}', f'--input={pairs}', f'--output={tmp_path}/out']
    command.main(['pairs', *flags])
    found = json.loads((tmp_path / 'out/results.json').read_text())
    paradigms = found['results']['paradigms']
    model = bert_jax.load(folder)
    for name, own in PAIRS.items():
        scores = [[s.total for s in model.pseudo_likelihood(pair)] for pair in own]
        expected = np.mean([0.5 if a == b else a > b for a, b in scores])
        assert paradigms[name]['accuracy'] == pytest.approx(expected)
        assert 0 <= paradigms[name]['untrained'] <= 1
    assert paradigms['plural']['ties'] == pytest.approx(1 / 3)
    assert found['results']['phenomena']['all pairs']['pairs'] == 5
    assert 'No unigram baseline' in found['notes'][0]
    assert (tmp_path / 'out/pairs.png').exists()


def test_a_model_without_a_language_model_head_is_refused(pairs, tmp_path, capsys):
    path = published.folder(tmp_path / 'bert', 'BertForSequenceClassification')
    with pytest.raises(SystemExit):
        command.main(['pairs', f'--model={path}', f'--input={pairs}', f'--output={tmp_path}/out'])
    assert 'has no head for pseudo_likelihood' in capsys.readouterr().err
    assert not (tmp_path / 'out').exists()

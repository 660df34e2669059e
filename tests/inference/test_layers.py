"""A name of a layer means the same in every command, and is refused in the same words."""

import numpy as np
import pytest

import bert_jax
from bert_jax.analyze import layers
from bert_jax.analyze.base import AnalyzedModel
from bert_jax.errors import UserError
from bert_jax.interop import loading
from bert_jax.models import head_states
from bert_jax.models.architecture import Compute
from bert_jax.models.architecture_parts import HeadLSTM
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from tests.inference.small_runs import save_run

TEXT = 'the ship near the moon'
LSTM = {'head_states': 'mix', 'head_lstm': HeadLSTM(2, 5)}


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    """A run of one layer, and a run of four whose head reads an LSTM."""
    folder = tmp_path_factory.mktemp('runs')
    save_run(folder / 'small', 'tagging')
    save_run(folder / 'large', 'tagging', architecture=LSTM | {'num_layers': 4})
    return folder


@pytest.mark.parametrize('name', ['mean_last_4', 'sum_last_4', 'concat_last_4', '2', 'first'])
def test_every_way_refuses_the_same_layers_in_the_same_words(runs, name):
    path = runs / 'small'
    model, loaded = bert_jax.load(path), loading.load_any(path)
    analyzed = AnalyzedModel(model.name, loaded)
    ways = {
        'embed': lambda: model.embed([TEXT], layer=name),
        'embed_words': lambda: model.embed_words([TEXT], layer=name),
        'analyze': lambda: layers.parse(name, analyzed),
        'model.head_states': lambda: loaded.architecture.changed({'head_states': name}),
    }
    messages = set()
    for way in ways.values():
        with pytest.raises(UserError) as raised:
            way()
        text = str(raised.value).removeprefix('Architecture: ').replace('head_states: ', '')
        text = text.replace(', mix', '').replace(', all', '')
        for owner in (str(path), model.name, 'the model', 'the encoder'):
            text = text.replace(owner, 'OWNER')
        messages.add(text)
    assert len(messages) == 1, messages


def test_an_analysis_takes_the_default_that_the_model_has(runs):
    small, large = (
        AnalyzedModel(name, loading.load_any(runs / name)) for name in ('small', 'large')
    )
    assert layers.parse(None, small) == layers.parse('last', small) == (1,)
    assert layers.parse(None, large) == ('mean_last_4',)
    assert layers.parse(None, large, 'mean_last_4,last') == ('mean_last_4', 4)
    assert layers.parse('last,-1,4,0', large) == (4, 0)


def test_last_is_the_last_layer(runs):
    model = bert_jax.load(runs / 'large')
    expected = model.embed_words([TEXT], layer=4)[0]
    for layer in ('last', -1, '-1'):
        np.testing.assert_array_equal(model.embed_words([TEXT], layer=layer)[0], expected)


def test_layers_of_the_lstm_of_a_head_are_those_that_it_computes(runs):
    model, loaded = bert_jax.load(runs / 'large'), loading.load_any(runs / 'large')
    ids = np.array([[model.tokenizer.cls_id, *model.tokenizer.encode_batch([TEXT]).ids[0]]])
    ids = np.append(ids, [[model.tokenizer.sep_id]], axis=1).astype(np.int32)
    rows = Rows(ids, np.ones_like(ids))
    encoder = Model(loaded.architecture, Compute())
    states = encoder.apply({'params': loaded.params}, rows, all_hidden=True).states
    own = loaded.params['token_classification']['states']
    module = head_states.HeadStates(loaded.architecture, Compute())
    second = np.asarray(module.apply({'params': own}, states, rows).hidden_BTD)[0]
    found = model.embed([TEXT], 'tokens', layer=('lstm_1', 'lstm_2'))[0]
    assert found.shape == (len(second), 2, 10)
    np.testing.assert_allclose(found[:, 1], second, atol=1e-5)
    first = np.asarray(
        head_states.HeadStates(loaded.architecture.changed({'head_lstm.layers': 1}), Compute())
        .apply({'params': own}, states, rows)
        .hidden_BTD
    )[0]
    np.testing.assert_allclose(found[:, 0], first, atol=1e-5)
    assert np.abs(found[:, 0] - found[:, 1]).max() > 1e-3


def test_layers_of_different_sizes_are_not_stacked(runs):
    model = bert_jax.load(runs / 'large')
    with pytest.raises(UserError, match=r'different sizes \(4: 16, lstm_2: 10\)'):
        model.embed([TEXT], layer=('last', 'lstm_2'))
    with pytest.raises(UserError, match='has no layer lstm_1'):
        bert_jax.load(runs / 'small').embed([TEXT], layer='lstm_1')

"""The states that fine-tuning heads read, for every head and tuning method."""

import jax
import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.interop import loading
from bert_jax.models import architectures, tuning
from bert_jax.models.architecture import Compute
from bert_jax.models.architecture_parts import HeadLSTM
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from bert_jax.problems import PROBLEMS
from tests.inference import small_runs
from tests.random_parameters import random_parameters

SIZES = dict(vocab_size=64, hidden_size=8, num_heads=2, num_layers=4, intermediate_size=12)
HEADS = {
    'sequence_classification': {'num_labels': 3},
    'token_classification': {'num_labels': 3},
    'question_answering': {},
    'multiple_choice': {},
    'mlm': {},
}
TEXTS = {'sequence_classification': {'num_labels': 3}}
IDS = np.random.default_rng(0).integers(4, 64, (3, 6)).astype(np.int32)
MASK = (np.arange(6) < np.array([[6], [4], [1]])).astype(np.int32)
LSTM = {'head_states': 'mix', 'head_lstm': HeadLSTM(1, 5), 'classifier.pooling': 'concat'}


def make(heads=None, **changes):
    changes = {name.replace('__', '.'): value for name, value in changes.items()}
    architecture = architectures.build('bert', **SIZES).changed(changes)
    return Model(architecture, Compute(), HEADS if heads is None else heads)


def run(model):
    params = random_parameters(model, Rows(IDS, MASK), deviation=0.3)

    @jax.jit
    def compute(params, rows):
        return model.apply({'params': params}, rows, all_hidden=True)

    return params, compute(params, Rows(IDS, MASK))


@pytest.mark.parametrize('name', ['2', '-3', 'sum_last_4', 'mean_last_4', 'concat_last_4', 'mix'])
def test_heads_read_the_layer_the_combination_or_the_mix(name):
    """The logits, computed with NumPy from the states of all layers."""
    params, output = run(make(head_states=name, classifier__pooling='mean'))
    states = np.asarray(output.states.all_hidden_LBTD)
    for head in ('token_classification', 'sequence_classification'):
        if name == 'mix':
            own = params[head]['states']
            shares = np.exp(own['weights']) / np.exp(own['weights']).sum()
            hidden = own['scale'] * sum(p * layer for p, layer in zip(shares, states, strict=True))
        else:
            hidden = {
                '2': states[2],
                '-3': states[2],
                'sum_last_4': states[-4:].sum(0),
                'mean_last_4': states[-4:].mean(0),
                'concat_last_4': np.concatenate([*states[-4:]], axis=-1),
            }[name]
        if head == 'sequence_classification':
            weight = (MASK / MASK.sum(1, keepdims=True))[:, :, None]
            hidden = (hidden * weight).sum(1)
        own = params[head]['head']['output']
        expected = hidden @ np.asarray(own['kernel']) + np.asarray(own['bias'])
        np.testing.assert_allclose(output.heads[head], expected, atol=1e-5)
    assert 'states' not in params['mlm']  # the pretraining head reads the last layer
    last = make({'mlm': {}}).apply({'params': params}, Rows(IDS, MASK)).heads['mlm']
    np.testing.assert_allclose(output.heads['mlm'], last, atol=1e-5)


def test_a_new_mix_is_the_mean_of_all_layers_and_concat_is_last_max_mean():
    model = make(TEXTS, **LSTM | {'head_lstm': HeadLSTM()}, num_layers=2)
    initial = jax.jit(model.init)(jax.random.key(0), Rows(IDS, MASK))['params']
    states = initial['sequence_classification']['states']
    assert (np.asarray(states['weights'].value) == 0).all()
    assert states['scale'].value == 1
    params, output = run(model)
    own = params['sequence_classification']
    params['sequence_classification'] = own | {'states': {'weights': np.zeros(3), 'scale': 1.0}}
    logits = model.apply({'params': params}, Rows(IDS, MASK)).heads['sequence_classification']
    mean = np.asarray(output.states.all_hidden_LBTD).mean(0)
    for number, length in enumerate(MASK.sum(1)):
        text = mean[number, :length]
        vector = np.concatenate([text[-1], text.max(0), text.mean(0)])
        expected = vector @ np.asarray(own['head']['output']['kernel'])
        expected += np.asarray(own['head']['output']['bias'])
        np.testing.assert_allclose(logits[number], expected, atol=1e-5)


def test_packed_sequences_have_the_logits_that_they_have_alone():
    model = make(**LSTM, num_layers=1)
    params, alone = run(model)
    apply = jax.jit(lambda rows: model.apply({'params': params}, rows).heads)
    ids = np.zeros((1, 13), np.int32)
    segments, starts = np.zeros((1, 13), np.int32), np.array([[0, 6, 10, -1]], np.int32)
    for number, (start, length) in enumerate(zip(starts[0], MASK.sum(1), strict=False)):
        ids[0, start : start + length] = IDS[number, :length]
        segments[0, start : start + length] = number + 1
    mask = (segments > 0).astype(np.int32)
    packed = apply(Rows(ids, mask, segment_ids_BT=segments, first_positions_BS=starts))
    for head in ('sequence_classification', 'multiple_choice'):
        np.testing.assert_allclose(packed[head][0, :3], alone.heads[head], atol=1e-5)
    for number, (start, length) in enumerate(zip(starts[0], MASK.sum(1), strict=False)):
        for head in ('token_classification', 'question_answering'):
            found = packed[head][0, start : start + length]
            np.testing.assert_allclose(found, alone.heads[head][number, :length], atol=1e-5)


@pytest.mark.parametrize('kind', small_runs.KINDS)
def test_every_problem_has_a_head_that_reads_the_states(kind, tmp_path):
    """Only the head that reads states has parameters for them, also in a loaded run."""
    path = small_runs.save_run(tmp_path / 'run', kind, architecture=LSTM)
    model = loading.load_any(path)
    parts = {**model.params, **model.other_parts}
    reading = [part for part in parts if 'states' in parts[part]]
    assert len(reading) == 1
    assert parts[reading[0]]['states'].keys() == {'weights', 'scale', 'lstm'}


@pytest.mark.parametrize('method', tuning.METHODS)
def test_tuning_methods_leave_the_states_as_they_are(method):
    built = tuning.build(method, {})
    model = make({'token_classification': {}}, **LSTM, tuning=built)
    params = jax.eval_shape(model.init, jax.random.key(0), Rows(IDS, MASK))['params']
    assert params['token_classification']['states'].keys() == {'weights', 'scale', 'lstm'}


def test_operations_of_the_lstm_are_counted():
    heads = {'token_classification': {}}
    more = make(heads, **LSTM).flops_per_token(6, 0) - make(heads).flops_per_token(6, 0)
    assert more == 3 * 2 * (2 * 4 * 5 * (8 + 5))


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (
            {'head_states': '5'},
            'head_states: the encoder has no layer 5; it must be .* to 4, .*mix',
        ),
        ({'head_states': 'first'}, 'has no layer first'),
        (
            {'head_states': 'mean_last_4', 'num_layers': 3},
            'mean_last_4 needs 4 layers, but .* has 3',
        ),
        ({'head_lstm.size': 0}, 'size is 0'),
    ],
)
def test_states_that_do_not_exist_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        architectures.build('bert', **SIZES).changed(changes)


def test_all_kinds_of_problems_are_covered():
    reading = {kind for kind, entry in PROBLEMS.items() if not entry.reads_last_layer}
    same_heads = {
        'word_in_context',
        'coreference',
        'multi_label',
        'multi_regression',
        'reranking',
    }
    assert reading == {*small_runs.KINDS, *same_heads} - {'embedding'}

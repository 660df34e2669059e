"""The bidirectional language model: an obvious loop, what each direction sees, its encoder."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import objectives
from bert_jax.averages import mean
from bert_jax.errors import UserError
from bert_jax.interop import families
from bert_jax.models import architectures, tuning
from bert_jax.models.architecture import Compute
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from bert_jax.objectives.bilm import BidirectionalLanguageModel, CleanText
from bert_jax.objectives.corruption import Vocabulary
from tests.random_parameters import random_parameters

SIZES = dict(vocab_size=40, hidden_size=12, intermediate_size=10, num_layers=3)
CLS, SEP, LENGTHS = 1, 2, (9, 5, 3)


def make(**changes):
    architecture = architectures.build('elmo', **SIZES).changed({'recurrence.clip': 0.5, **changes})
    return Model(architecture, Compute(), {'bilm': {}})


def rows_of(lengths=LENGTHS):
    rng = np.random.default_rng(0)
    ids = np.zeros((len(lengths), max(lengths)), np.int32)
    for row, length in enumerate(lengths):
        ids[row, :length] = [CLS, *rng.integers(5, 40, length - 2), SEP]
    return Rows(ids, (ids > 0).astype(np.int32))


def corrupt(rows):
    vocabulary = Vocabulary(4, 0, (0, 1, 2, 3, 4), np.ones(40, int))
    return CleanText(vocabulary)(jax.random.split(jax.random.key(0), len(rows.input_ids_BT)), rows)


@pytest.fixture(scope='module')
def model():
    made = make()
    return made, random_parameters(made, corrupt(rows_of()), deviation=0.5)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def obvious_states(params, ids):
    """Both directions of a row without padding, one token after the other: [L + 1, T, D]."""
    table = np.asarray(params['encoder']['embeddings']['token'])
    layers = [np.concatenate([table[ids], table[ids]], axis=-1)]
    for number in range(3):
        halves = []
        for name, inputs in zip(('forward', 'backward'), np.split(layers[-1], 2, -1), strict=True):
            own = {k: np.asarray(v) for k, v in params['encoder'][f'layers_{number}'][name].items()}
            h, c = np.zeros(6), np.zeros(10)
            states = [None] * len(ids)
            for t in range(len(ids)) if name == 'forward' else reversed(range(len(ids))):
                z = inputs[t] @ own['input'] + h @ own['recurrent'] + own['bias']
                i, f, g, o = np.split(z, 4)
                c = np.clip(sigmoid(f) * c + sigmoid(i) * np.tanh(g), -0.5, 0.5)
                h = np.clip((sigmoid(o) * np.tanh(c)) @ own['projection'], -0.5, 0.5)
                states[t] = h + inputs[t] * (number > 0)
            halves.append(states)
        layers.append(np.concatenate(halves, axis=-1))
    return np.stack(layers)


def test_loss_and_states_are_those_of_an_obvious_loop(model):
    made, params = model
    rows = corrupt(rows_of())
    output = jax.jit(lambda p: made.apply({'params': p}, rows, all_hidden=True))(params)
    terms = BidirectionalLanguageModel().terms(output, rows)
    losses = {'forward': [], 'backward': []}
    table, bias = (
        np.asarray(params['encoder']['embeddings']['token'])[:40],
        np.asarray(params['bilm']['head']['bias'])[:40],
    )
    for row, length in enumerate(LENGTHS):
        ids = rows.input_ids_BT[row, :length]
        states = obvious_states(params, ids)
        found = output.states.all_hidden_LBTD[:, row, :length]
        np.testing.assert_allclose(found, states, atol=1e-5)
        forward, backward = np.split(states[-1], 2, axis=-1)
        for t in range(1, length - 1):
            for name, state in (('forward', forward[t - 1]), ('backward', backward[t + 1])):
                logits = table @ state + bias
                losses[name].append(np.log(np.exp(logits).sum()) - logits[ids[t]])
    for name, values in losses.items():
        assert mean(terms[f'bilm_{name}']) == pytest.approx(np.mean(values), rel=1e-5)
    half = (np.mean(losses['forward']) + np.mean(losses['backward'])) / 2
    assert mean(terms['bilm_loss']) == pytest.approx(half, rel=1e-5)
    assert terms['bilm_empty'].sum == 0


def test_no_direction_sees_the_token_that_it_predicts_or_what_follows(model):
    made, params = model
    rows = corrupt(rows_of((8,)))
    params = jax.tree.map(jnp.asarray, params)

    def gradient(direction, place):
        """Of the logits at a place, with respect to each token's own embedding."""
        ids = np.arange(10, 18, dtype=np.int32)[None]  # distinct, so that rows are positions

        def logits(table):
            encoder = params['encoder'] | {'embeddings': {'token': table}}
            output = made.apply(
                {'params': params | {'encoder': encoder}}, rows.replace(input_ids_BT=ids)
            )
            # The product with the table would also have a gradient: read the states.
            forward, backward = jnp.split(output.states.hidden_BTD, 2, axis=-1)
            state = forward[0, place - 1] if direction == 'forward' else backward[0, place + 1]
            return jnp.square(state).sum()

        table = jax.jit(jax.grad(logits))(params['encoder']['embeddings']['token'])
        return np.abs(table[10:18]).sum(-1) > 0

    assert gradient('forward', 4).tolist() == [True] * 4 + [False] * 4
    assert gradient('backward', 4).tolist() == [False] * 5 + [True] * 3


def test_packed_sequences_have_the_states_and_the_loss_that_they_have_alone(model):
    made, params = model
    alone = corrupt(rows_of())
    packed_ids = np.zeros((1, 18), np.int32)
    segments, start = np.zeros((1, 18), np.int32), 0
    for row, length in enumerate(LENGTHS):
        packed_ids[0, start : start + length] = alone.input_ids_BT[row, :length]
        segments[0, start : start + length] = row + 1
        start += length
    packed = Rows(packed_ids, (segments > 0).astype(np.int32), segment_ids_BT=segments)

    @jax.jit
    def loss(rows):
        output = made.apply({'params': params}, rows)
        return BidirectionalLanguageModel().terms(output, rows)['bilm_loss']

    totals = [loss(rows) for rows in (alone, corrupt(packed))]
    assert totals[0].sum == pytest.approx(float(totals[1].sum), rel=1e-5)
    assert totals[0].count == totals[1].count == 2 * sum(length - 2 for length in LENGTHS)


def test_what_the_recurrent_encoder_lacks_is_one_line(model):
    made, params = model
    rows = corrupt(rows_of())
    causal = Model(made.architecture, Compute(), {}, is_causal=True)
    with pytest.raises(UserError, match=r'reads both directions; train it with objectives\.bilm'):
        causal.apply({'params': params}, rows)
    for compute in (Compute(scan_layers=True), Compute(remat=True)):
        with pytest.raises(UserError, match='is for the Transformer; set it to False'):
            jax.eval_shape(Model(made.architecture, compute).init, jax.random.key(0), rows)
    lora = made.architecture.changed({'tuning': tuning.build('lora', {})})
    with pytest.raises(UserError, match=r'transfer\.method=lora changes layers of a Transformer'):
        jax.eval_shape(Model(lora, Compute()).init, jax.random.key(0), rows)
    bert = architectures.build('bert', vocab_size=40, hidden_size=12, num_layers=1)
    with pytest.raises(UserError, match="set model.architecture to 'elmo'"):
        jax.eval_shape(Model(bert, Compute(), {'bilm': {}}).init, jax.random.key(0), rows)
    with pytest.raises(UserError, match="encoder is 'recurrent', but recurrence is None"):
        architectures.build('bert', encoder='recurrent')
    with pytest.raises(UserError, match='no published family'):
        families.by_model_type(architectures.find('elmo').family)
    with pytest.raises(UserError, match='bilm: clean'):
        objectives.common_corruption(('mlm', 'bilm'), 'tokens')

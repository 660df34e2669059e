"""LSTM layers compute what torch.nn.LSTM computes for packed sequences, and its gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import architectures, recurrence
from bert_jax.models.architecture import Compute
from bert_jax.models.recurrence import Bidirectional, Layer
from bert_jax.models.rows import Rows
from tests.random_parameters import random_parameters

ARCHITECTURE = architectures.build('bert', hidden_size=8, num_heads=2)
LENGTHS, INPUTS, SIZE = (7, 3, 1, 9), 5, 6
REAL = (np.arange(9) < np.array(LENGTHS)[:, None]).astype(np.int32)
ROWS = Rows(REAL, REAL)
STATES = np.random.default_rng(0).normal(0, 3, (4, 9, INPUTS)).astype(np.float32)


def make(layers=2):
    module = Bidirectional(ARCHITECTURE, Compute(), layers, SIZE)
    return module, random_parameters(module, STATES, ROWS, deviation=1.0)


def test_states_and_gradients_are_those_of_torch_on_packed_sequences():
    torch = pytest.importorskip('torch')
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    module, params = make()
    lstm = torch.nn.LSTM(INPUTS, SIZE, num_layers=2, bidirectional=True, batch_first=True)
    for name, suffix in (('forward', ''), ('backward', '_reverse')):
        for number in range(2):
            own, place = params[f'{name}_{number}'], f'l{number}{suffix}'
            for theirs, array in (
                (f'weight_ih_{place}', np.asarray(own['input']).T),
                (f'weight_hh_{place}', np.asarray(own['recurrent']).T),
                (f'bias_ih_{place}', np.asarray(own['bias'])),
                (f'bias_hh_{place}', np.zeros(4 * SIZE, np.float32)),
            ):
                getattr(lstm, theirs).data = torch.tensor(array)
    inputs = torch.tensor(STATES, requires_grad=True)
    packed = pack_padded_sequence(inputs, LENGTHS, batch_first=True, enforce_sorted=False)
    expected, _ = pad_packed_sequence(lstm(packed)[0], batch_first=True)
    weight = np.random.default_rng(1).normal(size=(4, 9, 2 * SIZE)).astype(np.float32)
    (expected * torch.tensor(weight)).sum().backward()

    def loss(params, states):
        hidden = module.apply({'params': params}, states, ROWS)
        return (hidden * weight).sum(), hidden

    (grads, grad_states), hidden = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(params, STATES)
    np.testing.assert_allclose(hidden, expected.detach(), atol=1e-6)
    np.testing.assert_allclose(grad_states, inputs.grad, atol=1e-5)
    for number, place in ((0, 'l0'), (1, 'l1_reverse')):
        own = grads[f'{"backward" if "reverse" in place else "forward"}_{number}']
        for ours, theirs in (('input', 'weight_ih'), ('recurrent', 'weight_hh')):
            gradient = getattr(lstm, f'{theirs}_{place}').grad.T
            np.testing.assert_allclose(own[ours], gradient, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(
            own['bias'], getattr(lstm, f'bias_ih_{place}').grad, rtol=1e-4, atol=1e-4
        )


def test_padding_and_other_sequences_of_the_row_have_no_influence():
    module, params = make()
    apply = jax.jit(lambda states, rows: module.apply({'params': params}, states, rows))
    alone = np.asarray(apply(STATES, ROWS))
    noise = jnp.where(REAL[:, :, None] > 0, STATES, 99.0)
    np.testing.assert_array_equal(apply(noise, ROWS), alone)
    packed, segments = np.full((1, 22, INPUTS), 99, np.float32), np.zeros((1, 22), np.int32)
    starts = (1, 8, 11, 12)  # padding also before the first sequence
    for number, (start, length) in enumerate(zip(starts, LENGTHS, strict=True)):
        packed[0, start : start + length] = STATES[number, :length]
        segments[0, start : start + length] = number + 1
    mask = (segments > 0).astype(np.int32)
    together = apply(packed, Rows(mask, mask, segment_ids_BT=segments))
    for number, (start, length) in enumerate(zip(starts, LENGTHS, strict=True)):
        found = together[0, start : start + length]
        np.testing.assert_allclose(found, alone[number, :length], atol=1e-6)
    assert not np.any(np.asarray(together)[segments == 0])


@pytest.mark.parametrize('reverse', [False, True])
def test_projection_and_clipping_are_an_obvious_loop_with_its_gradients(reverse):
    module = Layer(ARCHITECTURE, Compute(), SIZE, reverse, projection=3, clip=0.4)
    params = random_parameters(module, STATES, ROWS, deviation=0.7)
    keep_TB = recurrence.continues(ROWS, reverse).T

    def loop(params, states):
        h_BR, c_BU = jnp.zeros((4, 3)), jnp.zeros((4, SIZE))
        outputs = [None] * 9
        for t in reversed(range(9)) if reverse else range(9):
            h_BR, c_BU = (jnp.where(keep_TB[t][:, None], x, 0) for x in (h_BR, c_BU))
            z = states[:, t] @ params['input'] + h_BR @ params['recurrent'] + params['bias']
            i, f, g, o = jnp.split(z, 4, axis=-1)
            new = jax.nn.sigmoid(f) * c_BU + jax.nn.sigmoid(i) * jnp.tanh(g)
            c_BU = jnp.clip(new, -0.4, 0.4)
            h_BR = (jax.nn.sigmoid(o) * jnp.tanh(c_BU)) @ params['projection']
            h_BR = jnp.clip(h_BR, -0.4, 0.4)
            outputs[t] = h_BR
        return jnp.where(REAL[:, :, None] > 0, jnp.stack(outputs, 1), 0)

    def gradients(function):
        weight = np.random.default_rng(2).normal(size=(4, 9, 3))
        value = function(params, STATES)
        grads = jax.grad(lambda *arguments: (function(*arguments) * weight).sum(), (0, 1))
        return value, grads(params, jnp.asarray(STATES))

    found = gradients(lambda params, states: module.apply({'params': params}, states, ROWS))
    expected = gradients(loop)
    assert 0.1 < (np.abs(expected[0])[REAL > 0] == np.float32(0.4)).mean() < 0.9  # some are clipped
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), found, expected)


def test_bfloat16_is_near_float32():
    module, params = make(layers=1)
    exact = module.apply({'params': params}, STATES, ROWS)
    rounded = Bidirectional(ARCHITECTURE, Compute('bfloat16'), 1, SIZE)
    states = rounded.apply({'params': params}, STATES, ROWS)
    assert states.dtype == jnp.bfloat16
    np.testing.assert_allclose(states.astype(np.float32), exact, atol=0.1)

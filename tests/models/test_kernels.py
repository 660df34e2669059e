"""Attention kernels for accelerators, interpreted on CPU, agree with materialized scores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu

from bert_jax.errors import UserError
from bert_jax.models import architectures, kernels
from bert_jax.models.architecture import Compute
from bert_jax.models.encoders import Encoder, build_encoder
from tests import jaxprs
from tests.random_parameters import random_parameters

LENGTH, ROWS = 128, 2
SIZES = {
    'vocab_size': 50,
    'hidden_size': 32,
    'num_layers': 2,
    'num_heads': 2,
    'intermediate_size': 48,
    'max_position_embeddings': LENGTH,
    'initializer_range': 0.3,
    'attention_dropout': 0.0,
}
ENCODERS = {
    'bert': {},
    'mosaicbert': {},  # ALiBi
    'modernbert': {'local_window': 5, 'num_layers': 3},  # rotary, with windows
}
# Three sequences in the first row, two in the second, and padding in both.
SEGMENTS = np.repeat([[0, 1, 2, 3], [0, 1, 4, 4]], [32] * 4, axis=1).astype(np.int32)
MASKS = {
    'padded': {'attention_mask_BT': (np.arange(LENGTH) >= [[0], [50]]).astype(np.int32)},
    'packed': {
        'attention_mask_BT': np.isin(SEGMENTS, (0, 1, 2)).astype(np.int32),
        'segment_ids_BT': SEGMENTS,
    },
}


@pytest.fixture
def on_this_cpu(monkeypatch):
    monkeypatch.setattr(kernels, 'PLATFORMS', dict.fromkeys(kernels.PLATFORMS, 'cpu'))
    monkeypatch.setattr(kernels, 'CUDNN', 'xla')
    with tpu.force_tpu_interpret_mode():
        yield


def make(name: str, kernel: str, dtype: str = 'float32'):
    architecture = architectures.build(name, **SIZES | ENCODERS[name])
    return build_encoder(architecture, Compute(dtype, attention_kernel=kernel))


def states_and_gradients(encoder: Encoder, params, seen: dict):
    """The states of real positions, and the gradient of a sum of their cubes."""
    ids = np.random.default_rng(0).integers(0, 50, (ROWS, LENGTH)).astype(np.int32)

    def loss(params):
        hidden_BTD = encoder.apply(params, ids, **seen).hidden_BTD.astype(jnp.float32)
        hidden_BTD *= seen['attention_mask_BT'][:, :, None]
        return jnp.mean(hidden_BTD**3), hidden_BTD

    gradients, hidden_BTD = jax.jit(jax.grad(loss, has_aux=True))(params)
    return jax.tree.leaves((hidden_BTD, gradients))


def compare(name, kernel, seen, dtype='float32', tolerance=1e-5):
    ids = jnp.zeros((1, LENGTH), jnp.int32)
    params = {'params': random_parameters(make(name, 'xla'), ids, ids + 1, deviation=0.3)}
    expected = states_and_gradients(make(name, 'xla', dtype), params, seen)
    found = states_and_gradients(make(name, kernel, dtype), params, seen)
    for mine, theirs in zip(found, expected, strict=True):
        scale = np.abs(np.asarray(theirs, np.float32)).max()
        difference = np.abs(np.asarray(mine, np.float32) - np.asarray(theirs, np.float32)).max()
        # The bias of the keys cancels in softmax; its gradient is only rounding.
        assert difference <= tolerance * max(scale, 0.01)
    assert np.abs(expected[0]).max() > 1


@pytest.mark.parametrize('name', ENCODERS)
@pytest.mark.parametrize('mask', MASKS)
def test_flash_agrees_with_materialized_scores(on_this_cpu, name, mask):
    compare(name, 'flash', MASKS[mask])


def test_causal_flash_agrees_with_materialized_scores(on_this_cpu):
    compare('bert', 'flash', MASKS['packed'] | {'causal': True})


@pytest.mark.parametrize('name', ENCODERS)
def test_the_arguments_for_cudnn_describe_the_same_attention(on_this_cpu, name):
    """Computed by the XLA implementation of jax.nn.dot_product_attention."""
    compare(name, 'cudnn', MASKS['packed'], 'bfloat16', tolerance=0.1)


def test_flash_does_not_materialize_scores(on_this_cpu):
    """Also not in packed rows."""
    ids = jnp.zeros((ROWS, LENGTH), jnp.int32)
    params = jax.eval_shape(make('bert', 'xla').init, jax.random.key(0), ids, ids)
    shapes = {}
    for kernel in ('xla', 'flash'):
        encoder = make('bert', kernel)
        apply = jax.make_jaxpr(lambda p, e=encoder: e.apply(p, ids, **MASKS['packed']).hidden_BTD)
        shapes[kernel] = set(jaxprs.shapes(apply(params).jaxpr))
    scores = (ROWS, 2, LENGTH, LENGTH)
    assert scores in shapes['xla']
    assert scores not in shapes['flash']


def test_a_kernel_for_another_platform_is_an_error():
    with pytest.raises(UserError, match='runs on tpu, but the backend is cpu; set it to xla'):
        run({'attention_kernel': 'flash'}, {})


REFUSED = {
    'name': ({'attention_kernel': 'fast'}, {}, "unknown attention_kernel 'fast'; known: cudnn"),
    'dropout': (
        {'attention_kernel': 'flash'},
        {'attention_dropout': 0.1},
        'attention_dropout is 0.1',
    ),
    'distances': (
        {'attention_kernel': 'flash'},
        {'name': 'deberta'},
        'does not support disentangled',
    ),
    'dtype': ({'attention_kernel': 'cudnn'}, {}, 'needs bfloat16 and a head size'),
    'heads': (
        {'attention_kernel': 'cudnn', 'dtype': 'bfloat16'},
        {'hidden_size': 24},
        'not bfloat16 and 12',
    ),
    'length': ({'attention_kernel': 'flash'}, {'length': 96}, 'multiples of 128, not 96'),
}


@pytest.mark.parametrize('case', REFUSED)
def test_unsupported_settings_are_errors(on_this_cpu, case):
    compute, sizes, message = REFUSED[case]
    with pytest.raises(UserError, match=message):
        run(compute, dict(sizes))


def run(compute: dict, sizes: dict):
    """Trace an encoder in training mode on one row."""
    name, length = sizes.pop('name', 'bert'), sizes.pop('length', LENGTH)
    encoder = build_encoder(architectures.build(name, **SIZES | sizes), Compute(**compute))
    ids = jnp.zeros((1, length), jnp.int32)
    jax.eval_shape(encoder.init, jax.random.key(0), ids, ids, None, jnp.zeros(1, jnp.uint32))

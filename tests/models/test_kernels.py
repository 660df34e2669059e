"""Attention kernels for accelerators, interpreted on CPU, agree with materialized scores."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.models import architectures, kernels, pallas_attention, triton_norm
from bert_jax.models.architecture import Compute
from bert_jax.models.architecture_parts import DecoderStack
from bert_jax.models.encoders import Encoder, build_encoder
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from bert_jax.models.visibility import Visibility, alibi_slopes
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
    'modernbert': {'windows': (None, 5, 5)},
    'deberta': {'attention.max_distance': 10, 'positions': 'mask_decoder'},
    'deberta_v2': {
        'attention.buckets': 16,
        'hidden_dropout': 0.1,
        'positions': 'mask_decoder',
        'attention.max_distance': LENGTH,
    },
}
# Three sequences in the first row, two in the second, and padding in both.
SEGMENTS = np.repeat([[0, 1, 2, 3], [0, 1, 4, 4]], [32] * 4, axis=1).astype(np.int32)
MASKS = {
    'packed': {
        'attention_mask_BT': np.isin(SEGMENTS, (0, 1, 2)).astype(np.int32),
        'segment_ids_BT': SEGMENTS,
    },
}


@pytest.fixture
def on_this_cpu(monkeypatch):
    monkeypatch.setattr(kernels, 'PLATFORMS', dict.fromkeys(kernels.PLATFORMS, 'cpu'))
    monkeypatch.setattr(kernels, 'CUDNN', 'xla')
    monkeypatch.setattr(pallas_attention, 'INTERPRET', True)


def make(name: str, kernel: str, dtype: str = 'float32', **compute):
    architecture = architectures.build(name, **SIZES | ENCODERS[name])
    return build_encoder(architecture, Compute(dtype, attention_kernel=kernel, **compute))


def states_and_gradients(encoder: Encoder, params, seen: dict, seeds=None):
    """The states of real positions, and the gradient of a sum of their cubes."""
    shape = seen['attention_mask_BT'].shape
    ids = np.random.default_rng(0).integers(0, 50, shape).astype(np.int32)

    def loss(params):
        encoded = encoder.apply(params, Rows(ids, **seen), seeds)
        hidden_BTD = (encoded.hidden_BTD + encoded.decoded_BTD).astype(jnp.float32)
        hidden_BTD *= seen['attention_mask_BT'][:, :, None]
        return jnp.mean(hidden_BTD**3), hidden_BTD

    gradients, hidden_BTD = jax.jit(jax.grad(loss, has_aux=True))(params)
    return jax.tree.leaves((hidden_BTD, gradients))


def compare(name, kernel, seen, dtype='float32', tolerance=1e-5, seeds=None, **compute):
    ids, xla = jnp.zeros((1, LENGTH), jnp.int32), make(name, 'xla', dtype, **compute)
    params = {'params': random_parameters(xla, Rows(ids, ids + 1), deviation=0.3)}
    expected = states_and_gradients(xla, params, seen, seeds)
    found = states_and_gradients(make(name, kernel, dtype, **compute), params, seen, seeds)
    for mine, theirs in zip(found, expected, strict=True):
        scale = np.abs(np.asarray(theirs, np.float32)).max()
        difference = np.abs(np.asarray(mine, np.float32) - np.asarray(theirs, np.float32)).max()
        # The bias of the keys cancels in softmax; its gradient is only rounding.
        assert difference <= tolerance * max(scale, 0.01)
    assert np.abs(expected[0]).max() > 1


def test_programs_for_gpus_are_as_near_to_float32_as_others(monkeypatch):
    """They round products to bfloat16, and have one kernel for residual, dropout and norm."""
    seen = {'attention_mask_BT': (np.arange(LENGTH) < [[LENGTH], [90]]).astype(np.int32)}
    seeds, like = np.arange(ROWS, dtype=np.uint32), jnp.ones((1, LENGTH), jnp.int32)
    encoder = make('bert', 'xla')
    params = {'params': random_parameters(encoder, Rows(like, like), deviation=0.1)}
    exact = states_and_gradients(encoder, params, seen, seeds)

    def error(encoder):
        found = states_and_gradients(encoder, params, seen, seeds)
        norm = sum(np.square(x).sum() for x in exact)
        return sum(np.square(x - y).sum() for x, y in zip(found, exact, strict=True)) / norm

    elsewhere = error(make('bert', 'xla', 'bfloat16'))
    monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
    monkeypatch.setattr(kernels, 'CUDNN', 'xla')
    monkeypatch.setattr(triton_norm, 'INTERPRET', True)
    encoder = make('bert', 'cudnn', 'bfloat16')
    names = jaxprs.primitives(
        jax.make_jaxpr(lambda: encoder.apply(params, Rows(like, like)))().jaxpr
    )
    assert 'pallas_call' in names
    on_gpu = error(encoder)
    assert 0 < on_gpu < 1.2 * elsewhere < 1e-3


def test_rows_with_padding_in_front_are_nan_from_one_check_on(monkeypatch):
    monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
    monkeypatch.setattr(kernels, 'CUDNN', 'xla')
    monkeypatch.setattr(triton_norm, 'INTERPRET', True)
    mask, encoder = np.ones((2, LENGTH), np.int32), make('bert', 'cudnn', 'bfloat16')
    mask[1, :5] = 0
    params = encoder.init(jax.random.key(0), Rows(mask, mask))

    def states(params):
        return encoder.apply(params, Rows(mask, mask)).hidden_BTD

    is_nan = jnp.isnan(states(params)).all((1, 2))
    assert is_nan.tolist() == [False, True]
    equations = jaxprs.equations(jax.make_jaxpr(states)(params).jaxpr)
    checks = [x for x in equations if x.primitive.name == 'reduce_and']
    assert len(checks) == 1


def test_encoders_give_flash_their_masks(on_this_cpu):
    compare('bert', 'flash', MASKS['packed'])


def test_encoders_give_cudnn_their_masks(on_this_cpu):
    compare('modernbert', 'cudnn', MASKS['packed'], 'bfloat16', tolerance=0.1)


@pytest.mark.parametrize('name', ['deberta', 'deberta_v2'])
def test_encoders_give_flash_their_distance_vectors(on_this_cpu, monkeypatch, name):
    """With and without buckets, with dropout of the vectors and a mask decoder, in packed rows."""
    for size in ('LANES', 'CHUNK', 'MAX_BLOCK'):  # interpreted shifts are many operations
        monkeypatch.setattr(pallas_attention, size, 16)
    seen = {key: mask_BT[:, 20:44] for key, mask_BT in MASKS['packed'].items()}
    seeds = np.arange(ROWS, dtype=np.uint32)
    compare(name, 'flash', seen, tolerance=3e-5, seeds=seeds, scan_layers=True)


def packed_rows(source: int, target: int) -> Rows:
    """Two texts in each row of a source and a target of these lengths, with padding."""
    rng, rows = np.random.default_rng(0), []
    for length in (source, target):
        ids = rng.integers(5, 50, (ROWS, length))
        mask = (np.arange(length) < [[length], [length - 6]]).astype(np.int32)
        segments = np.tile(np.arange(length) > length // 2, (ROWS, 1)).astype(np.int32)
        rows.append(Rows(ids, mask, segment_ids_BT=segments))
    return rows[0].replace(target=rows[1])


@pytest.mark.parametrize(
    ('kernel', 'lengths'), [('flash', (40, 24)), ('flash', (24, 40)), ('cudnn', (40, 24))]
)
def test_decoders_give_kernels_sources_of_another_length(on_this_cpu, monkeypatch, kernel, lengths):
    """Flash drops the same weights of attention as XLA, and writes no scores to memory."""
    cudnn, by_cudnn = kernels._cudnn, set()

    def recorded(query_BTHK, key_BUHK, *arguments):
        by_cudnn.add((query_BTHK.shape[1], key_BUHK.shape[1]))
        return cudnn(query_BTHK, key_BUHK, *arguments)

    monkeypatch.setattr(kernels, '_cudnn', recorded)
    for size in ('LANES', 'CHUNK', 'MAX_BLOCK'):
        monkeypatch.setattr(pallas_attention, size, 16)
    is_flash, rows = kernel == 'flash', packed_rows(*lengths)
    sizes = SIZES | {'max_position_embeddings': 42, 'decoder': DecoderStack(2)}
    architecture = architectures.build('bart', **sizes | {'attention_dropout': 0.1 * is_flash})
    seeds = np.arange(ROWS, dtype=np.uint32)

    def run(attention_kernel):
        compute = Compute('float32' if is_flash else 'bfloat16', attention_kernel=attention_kernel)
        model = Model(architecture, compute, {'seq2seq': {}})
        params = random_parameters(model, rows, deviation=0.3)

        def loss(params):
            logits_BTV = model.apply({'params': params}, rows, seeds).heads['seq2seq'][..., :50]
            is_token_BT1 = rows.target.attention_mask_BT[:, :, None] > 0
            logits_BTV = jnp.where(is_token_BT1, logits_BTV.astype(jnp.float32), 0)
            return jnp.mean(logits_BTV**2), logits_BTV

        gradient = jax.grad(loss, has_aux=True)
        shapes = set(jaxprs.shapes(jax.make_jaxpr(gradient)(params).jaxpr))
        return jax.tree.leaves(jax.jit(gradient)(params)), shapes

    (expected, xla_shapes), (found, shapes) = run('xla'), run(kernel)
    for mine, theirs in zip(found, expected, strict=True):
        scale = max(np.abs(np.asarray(theirs, np.float32)).max(), 0.01)
        difference = np.asarray(mine, np.float32) - np.asarray(theirs, np.float32)
        assert np.abs(difference).max() <= (1e-5 if is_flash else 0.1) * scale
    assert np.abs(expected[-1]).max() > 1
    source, target = lengths
    pairs = {(source, source), (target, target), (target, source)}
    scores = {(ROWS, 2, *pair) for pair in pairs}
    assert scores <= xla_shapes
    assert by_cudnn == (set() if is_flash else pairs)
    assert not (is_flash and scores & shapes)


PADDED = (np.arange(LENGTH) < [[LENGTH], [50]]).astype(np.int32)
SEEN = {
    'padded': {},
    'packed': {'segment_ids_BT': SEGMENTS},
    'causal': {'is_causal': True},
    'alibi': {'slopes_H': alibi_slopes(2)},
    'blocks': {'window': 5},
    'wide window': {'window': 60},
    'packed blocks': {'segment_ids_BT': SEGMENTS, 'window': 5, 'is_causal': True},
    'all': {
        'segment_ids_BT': SEGMENTS,
        'window': 60,
        'is_causal': True,
        'slopes_H': alibi_slopes(2),
    },
}


@pytest.mark.parametrize(
    ('kernel', 'case'), [('flash', 'all'), *(('cudnn', case) for case in SEEN)]
)
def test_kernels_agree_with_materialized_scores(on_this_cpu, kernel, case):
    """cuDNN's arguments are computed by the XLA implementation of the function that takes them."""
    visibility = Visibility(PADDED, **SEEN[case])
    rng = np.random.default_rng(0)
    states = [rng.normal(size=(ROWS, LENGTH, 2, 8)).astype(np.float32) for _ in range(4)]
    *states, weight_BTHK = states
    weight_BTHK *= PADDED[:, :, None, None]

    def dense(query_BTHK, key_BUHK, value_BUHK):
        scores_BHTU = jnp.einsum('BTHK,BUHK->BHTU', query_BTHK, key_BUHK) * 8**-0.5
        weights_BHTU = jax.nn.softmax(scores_BHTU + visibility.bias(LENGTH, LENGTH))
        return jnp.einsum('BHTU,BUHK->BTHK', weights_BHTU, value_BUHK)

    def run(attend):
        def loss(*states):
            result_BTHK = attend(*states) * weight_BTHK
            return result_BTHK.sum(), result_BTHK

        return jax.tree.leaves(jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))(*states))

    found = run(lambda *states: kernels.attend(kernel, *states, visibility))
    for mine, theirs in zip(found, run(dense), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)
        assert np.abs(theirs).max() > 0.5


def test_padding_before_tokens_is_not_taken_for_tokens_by_cudnn(on_this_cpu):
    """Its sequence lengths cannot express it."""
    mask = np.array([[1, 1, 0, 0], [0, 1, 1, 1]], np.int32)
    states = jnp.ones((3, 2, 4, 1, 8))
    is_nan = jnp.isnan(kernels.attend('cudnn', *states, Visibility(mask)))
    assert is_nan.all((1, 2, 3)).tolist() == [False, True]


def test_cudnn_takes_lengths_for_padding_and_blocks_for_windows(on_this_cpu, monkeypatch):
    taken = []
    monkeypatch.setattr(
        jax.nn,
        'dot_product_attention',
        lambda query, key, value, **options: taken.append((key.shape, options)) or query,
    )
    states = [jnp.zeros((2, 512, 2, 8))] * 3
    mask = np.arange(512) < [[512], [9]]
    kernels.attend('cudnn', *states, Visibility(mask, is_causal=True))
    kernels.attend('cudnn', *states, Visibility(mask, window=64))
    (whole, lengths), (blocks, bias) = taken
    assert whole == (2, 512, 2, 8)
    assert lengths['key_value_seq_lengths'].tolist() == [512, 9]
    assert lengths['is_causal']
    assert 'bias' not in lengths
    assert blocks == (16, 192, 2, 8)
    assert bias['bias'].shape == (16, 1, 64, 192)


@pytest.mark.parametrize('name', ['bert', 'modernbert', 'deberta', 'deberta_v2'])
def test_flash_does_not_materialize_scores(on_this_cpu, name):
    """Also not in packed rows, nor in the backward pass."""
    ids = jnp.zeros((ROWS, LENGTH), jnp.int32)
    params = jax.eval_shape(make(name, 'xla').init, jax.random.key(0), Rows(ids, ids))
    shapes = {}
    for kernel in ('xla', 'flash'):
        encoder = make(name, kernel)

        def loss(params, encoder=encoder):
            return encoder.apply(params, Rows(ids, **MASKS['packed'])).hidden_BTD.sum()

        shapes[kernel] = set(jaxprs.shapes(jax.make_jaxpr(jax.grad(loss))(params).jaxpr))
    scores = (ROWS, 2, LENGTH, LENGTH)
    assert scores in shapes['xla']
    assert scores not in shapes['flash']


CHOICES = {
    'gpu': ('gpu', {'dtype': 'bfloat16'}, {}, 'cudnn'),
    'tpu': ('tpu', {}, {}, 'flash'),
    'cpu': ('cpu', {}, {}, 'xla'),
    'named': ('gpu', {'dtype': 'bfloat16', 'attention_kernel': 'xla'}, {}, 'xla'),
    'dtype': ('gpu', {}, {}, 'xla: cudnn needs compute.dtype=bfloat16 and a head size'),
    'dropout': (
        'gpu',
        {'dtype': 'bfloat16'},
        {'attention_dropout': 0.1},
        'xla: cudnn has no dropout of attention weights, but model.attention_dropout is 0.1',
    ),
    'distances': ('tpu', {}, {'name': 'deberta'}, 'flash'),
    'distances on gpu': (
        'gpu',
        {'dtype': 'bfloat16'},
        {'name': 'deberta'},
        'xla: cudnn does not support disentangled attention',
    ),
}


@pytest.mark.parametrize('case', CHOICES)
def test_the_best_valid_kernel_is_chosen_and_logged(monkeypatch, case):
    platform, compute, sizes, expected = CHOICES[case]
    monkeypatch.setattr(kernels, 'platform', lambda: platform)
    architecture = architectures.build(**{'name': 'bert'} | SIZES | sizes)
    line = kernels.describe(architecture, Compute(**compute), LENGTH)
    assert line.startswith(f'attention kernel {expected}')
    assert (':' in line) == (':' in expected)


def test_a_gpu_without_flash_attention_takes_xla(monkeypatch):
    monkeypatch.setattr(kernels, 'platform', lambda: 'gpu')
    monkeypatch.setattr(jax, 'local_devices', lambda: [SimpleNamespace(compute_capability='7.5')])
    line = kernels.describe(architectures.build('bert', **SIZES), Compute('bfloat16'), LENGTH)
    assert line.endswith('compute capability 8.0 or higher, not 7.5')


def test_a_kernel_for_another_platform_is_an_error():
    with pytest.raises(UserError, match='runs on tpu, but the backend is cpu; set it to auto'):
        run({'attention_kernel': 'flash'}, {})


REFUSED = {
    'name': (
        {'attention_kernel': 'fast'},
        {},
        "unknown attention_kernel 'fast'; known: auto, cudnn",
    ),
    'dropout': (
        {'attention_kernel': 'cudnn', 'dtype': 'bfloat16'},
        {'attention_dropout': 0.1},
        'attention_dropout is 0.1',
    ),
    'distances': (
        {'attention_kernel': 'cudnn'},
        {'name': 'deberta'},
        'does not support disentangled',
    ),
    'dtype': ({'attention_kernel': 'cudnn'}, {}, 'needs compute.dtype=bfloat16 and a head'),
    'heads': (
        {'attention_kernel': 'cudnn', 'dtype': 'bfloat16'},
        {'hidden_size': 24},
        'not bfloat16 and 12',
    ),
    'odd': (
        {'attention_kernel': 'cudnn', 'dtype': 'bfloat16'},
        {'length': 97},
        'even sequence length, not 97',
    ),
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
    jax.eval_shape(encoder.init, jax.random.key(0), Rows(ids, ids), jnp.zeros(1, jnp.uint32))


@pytest.mark.parametrize(('name', 'most'), [('bert', 32768), ('deberta', 4096)])
def test_rows_that_are_too_long_for_flash_take_xla(monkeypatch, name, most):
    monkeypatch.setattr(kernels, 'platform', lambda: 'tpu')
    architecture = architectures.build(**SIZES | {'name': name})
    assert kernels.describe(architecture, Compute(), most) == 'attention kernel flash'
    line = kernels.describe(architecture, Compute(), most + 1)
    assert line == (
        f'attention kernel xla: flash takes rows of at most {most:,} tokens, not {most + 1:,}'
    )
    with pytest.raises(UserError, match='at most'):
        kernels.choose(architecture, Compute(attention_kernel='flash'), most + 1, True)

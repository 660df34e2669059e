"""Tuning methods in encoder–decoders: what they add, cached decoding, and where training starts."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from flax import linen as nn

from bert_jax import tree_paths
from bert_jax.models import architectures, tuning
from bert_jax.models.architecture import Compute
from bert_jax.models.architecture_parts import DecoderStack
from bert_jax.models.attention import Context
from bert_jax.models.cache import Cache, KeysValues, Memory
from bert_jax.models.cross_attention import CrossAttention
from bert_jax.models.model import Model
from bert_jax.models.parameters import stack_layers
from bert_jax.models.rows import Rows
from bert_jax.models.tuning_method import ADDED
from bert_jax.models.visibility import Visibility
from tests.random_parameters import random_parameters

SIZES = dict(
    vocab_size=50,
    hidden_size=16,
    num_layers=1,
    num_heads=2,
    intermediate_size=24,
    hidden_dropout=0.0,
    attention_dropout=0.0,
)
KINDS = {
    'bart': dict(decoder=DecoderStack(2), max_position_embeddings=18),
    't5': dict(decoder=DecoderStack(2, 'pad'), size_per_head=10, max_position_embeddings=16),
}
COMPUTE = Compute()
SMALL = {'rank': 2, 'bottleneck': 3, 'length': 3}
IDENTITY = {'up': 0.0, 'up_bias': 0.0, 'scale': 1.0}  # added parameters that change nothing
# Both kinds of decoder, and every module that a method adds.
QUICK = [('bart', 'mam'), ('bart', 'prompt'), ('t5', 'houlsby'), ('t5', 'prefix'), ('bart', 'ia3')]
rng = np.random.default_rng(0)
SOURCE, TARGET = rng.integers(5, 50, (2, 9)), rng.integers(5, 50, (2, 6))
MASK = (np.arange(9) < [[9], [6]]).astype(np.int32)
ROWS = Rows(SOURCE, MASK, target=Rows(TARGET, np.ones_like(TARGET)))
PAIRS = [
    pytest.param(kind, method, marks=() if (kind, method) in QUICK else pytest.mark.slow)
    for kind in KINDS
    for method in tuning.METHODS
]


def build(kind, method=None, compute=COMPUTE):
    """A small model; `method` None: without tuning."""
    architecture = architectures.build(kind, **SIZES | KINDS[kind])
    if method is not None:
        names = tuning.settings(method)
        chosen = tuning.build(method, {name: SMALL[name] for name in SMALL if name in names})
        architecture = dataclasses.replace(architecture, tuning=chosen)
    return Model(architecture, compute, {'seq2seq': {}})


@functools.cache
def parameters(kind, method):
    return random_parameters(build(kind, method), ROWS)


def is_added(name):
    return ADDED in name.split('/')


@functools.partial(jax.jit, static_argnames=('model', 'method'))
def run(model, params, *arguments, method=None):
    return model.apply({'params': params}, *arguments, method=method)


def logits(model, params, rows=ROWS):
    return np.asarray(run(model, params, rows).heads['seq2seq'])[..., :50]


@pytest.mark.parametrize(('kind', 'method'), PAIRS)
def test_cached_decoding_equals_the_whole_target(kind, method):
    """With two beams per source, and added parameters as large as all others."""
    model, params = build(kind, method), parameters(kind, method)
    expected = np.repeat(logits(model, params), 2, axis=0)
    memory = run(model, params, ROWS, method='memory')
    beams = np.repeat(TARGET, 2, axis=0)
    cache = Cache.empty(model.architecture.of_decoder, Compute(), 4, 8)
    parts = []
    for part in (slice(0, 3), slice(3, 6)):
        rows = Rows(beams[:, part], np.ones_like(beams[:, part]), cache=cache)
        output = run(model, params, rows, memory, method='decode')
        cache = output.decoder.cache
        parts.append(output.heads['seq2seq'][..., :50])
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(np.concatenate(parts, axis=1), expected, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize(('kind', 'method'), PAIRS)
def test_added_parameters_at_the_identity_change_nothing(kind, method):
    """They change the logits otherwise; prefixes and prompts have no identity."""
    model, params = build(kind, method), parameters(kind, method)
    base = tree_paths.flatten(parameters(kind, None))

    def fill(path, leaf, identity):
        name = tree_paths.path_name(path)
        if not is_added(name):
            return base[name]
        return np.full_like(leaf, identity.get(name.split('/')[-1], 0)) if identity else leaf

    expected = logits(build(kind), parameters(kind, None))
    for identity in (IDENTITY, None):
        tuned = jax.tree_util.tree_map_with_path(functools.partial(fill, identity=identity), params)
        difference = np.abs(logits(model, tuned) - expected).max()
        has_identity = not any(part in method for part in ('prefix', 'mam', 'prompt'))
        if method == 'bitfit' or (identity and has_identity):
            assert difference == 0
        else:
            assert difference > 1e-3


@pytest.mark.parametrize('kind', KINDS)
def test_a_prefix_is_as_further_states_of_the_encoder(kind):
    """Its keys and values beside those of the states, for two beams per source."""
    tuned = build(kind, 'prefix').architecture.of_decoder
    plain = dataclasses.replace(tuned, tuning=None)
    states = np.random.default_rng(1).normal(size=(2, 9, 16)).astype(np.float32)
    x = np.random.default_rng(2).normal(size=(4, 3, 16)).astype(np.float32)
    context = Context(Visibility(None), memory=Memory(states, MASK))
    module, arguments = CrossAttention(tuned, Compute()), (x, context, None)
    params = random_parameters(module, *arguments, method='attend_to')
    found = module.apply({'params': params}, *arguments, method='attend_to')

    added, params = params[ADDED], {name: params[name] for name in params if name != ADDED}
    module = CrossAttention(plain, Compute())
    known = module.apply({'params': params}, states, method='keys_values')
    known = KeysValues(
        *(
            np.concatenate([own, np.repeat(added[name][None], 2, 0)], axis=1)
            for name, own in (('keys', known.key_BUHK), ('values', known.value_BUHK))
        )
    )
    mask = np.concatenate([MASK, np.ones((2, SMALL['length']), np.int32)], axis=1)
    context = Context(Visibility(None), memory=Memory(states, mask))
    expected = module.apply({'params': params}, x, context, None, known, method='attend_to')
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize('method', ['mam', pytest.param('prompt', marks=pytest.mark.slow)])
def test_packed_sequences_do_not_attend_to_each_other(method):
    model, params = build('bart', method), parameters('bart', method)
    source = np.concatenate([SOURCE[0], SOURCE[1, :6]])[None]
    segments = np.repeat([1, 2], [9, 6])[None]
    target_segments = np.repeat([1, 2], 6)[None]
    target = Rows(TARGET.reshape(1, -1), np.ones((1, 12), np.int32), segment_ids_BT=target_segments)
    rows = Rows(source, np.ones_like(source), segment_ids_BT=segments, target=target)
    rows = rows.replace(first_positions_BS=np.array([[0, 9, -1]]))
    found = logits(model, params, rows).reshape(2, 6, -1)
    np.testing.assert_allclose(found, logits(model, params), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize('method', ['mam', pytest.param('houlsby', marks=pytest.mark.slow)])
def test_stacked_layers_compute_the_same(method):
    model, params = build('bart', method), dict(parameters('bart', method))
    expected = logits(model, params)
    params |= {part: stack_layers(params[part]) for part in ('encoder', 'decoder')}
    scanned = build('bart', method, Compute(scan_layers=True))
    np.testing.assert_allclose(logits(scanned, params), expected, atol=1e-4, rtol=1e-5)


def test_a_tuned_prompt_is_in_the_encoder_alone():
    shapes = tree_paths.flatten(parameters('t5', 'prompt'))
    assert [name for name in shapes if is_added(name)] == [f'encoder/embeddings/{ADDED}/vectors']


L, D, F = 12, 1024, 4096  # of each stack of BART-large


def adapter(bottleneck):
    return 2 * D * bottleneck + bottleneck + D


COUNTS = {  # 2 · L encoder and decoder layers, and L more sublayers that attend to the encoder
    'lora': ({'rank': 8}, 3 * L * 2 * (2 * D * 8)),
    'houlsby': ({'bottleneck': 200}, 5 * L * adapter(200)),
    'pfeiffer': ({'bottleneck': 48}, 2 * L * adapter(48)),
    'parallel': ({'bottleneck': 512}, 2 * L * adapter(512)),
    'prefix': ({'length': 200}, 3 * L * 2 * 200 * D),
    'prompt': ({'length': 20}, 20 * D),
    'bitfit': ({}, 0),
    'ia3': ({}, L * (2 * D + F) + L * (4 * D + F)),
    'mam': ({'length': 30, 'bottleneck': 512}, 3 * L * 2 * 30 * D + 2 * L * adapter(512)),
}
# Percent of all parameters, He et al. 2022 (arXiv 2110.04366, section 4), for these sizes.
PUBLISHED_SHARES = {'prefix': 3.6, 'mam': 6.7}


@pytest.mark.parametrize(
    'method',
    [
        pytest.param(name, marks=() if name in ('mam', 'houlsby', 'ia3') else pytest.mark.slow)
        for name in COUNTS
    ],
)
def test_numbers_of_parameters_follow_the_formulas(method):
    values, expected = COUNTS[method]
    base = architectures.build('bart_large')
    chosen = dataclasses.replace(base, tuning=tuning.build(method, values))
    model = Model(chosen, Compute(scan_layers=True), {'seq2seq': {}})  # traces one layer of each
    boxed = jax.eval_shape(model.init, jax.random.key(0), ROWS)
    sizes = {
        name: leaf.size for name, leaf in tree_paths.flatten(nn.unbox(boxed)['params']).items()
    }
    added = sum(size for name, size in sizes.items() if is_added(name))
    assert added == expected
    trained = sum(
        size
        for name, size in sizes.items()
        if not name.startswith('seq2seq/') and not is_added(name) and chosen.tuning.trains(name)
    )
    norms = 2 * L + 3 * L + 2  # of sublayers and embeddings
    biases = 12 * L * D + 2 * L * (F + D) + norms * D
    assert trained == {'houlsby': 2 * norms * D, 'bitfit': biases}.get(method, 0)
    if method in PUBLISHED_SHARES:
        own = sum(sizes.values()) - added
        assert 100 * added / own == pytest.approx(PUBLISHED_SHARES[method], abs=0.05)

"""Each tuning method on each architecture: what it adds, where, and what it leaves as it is."""

import dataclasses
import functools
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.models import architectures, tuning
from bert_jax.models.architecture import Compute
from bert_jax.models.architecture_parts import ConvolutionOptions
from bert_jax.models.encoders import build_encoder
from bert_jax.models.parameters import stack_layers
from bert_jax.models.rows import Rows
from bert_jax.models.tuning_method import ADDED, Tuning
from tests.random_parameters import random_parameters

VOCAB, LENGTH = 60, 16
SIZES = dict(
    vocab_size=VOCAB,
    hidden_size=16,
    num_layers=2,
    num_heads=2,
    intermediate_size=24,
    max_position_embeddings=LENGTH + 2,
    initializer_range=0.2,
)
ARCHITECTURES = {
    'bert': {},
    'roberta': {},
    'albert': {'embedding_size': 8},
    'electra': {'embedding_size': 8},
    'distilbert': {},
    'deberta': {'attention.buckets': None},
    'deberta_v2': {'attention.buckets': 6, 'convolution': ConvolutionOptions(3)},
    'modernbert': {'windows': (None, 4, 4), 'num_layers': 3},
    'mosaicbert': {},
}
START_BITWISE = ('lora', 'parallel', 'bitfit', 'ia3')
START_CLOSE = ('houlsby', 'pfeiffer')
SMALL = {'rank': 2, 'bottleneck': 3, 'length': 3}
# Every method with BERT, and every architecture with one method of each kind.
QUICK = [
    *(('bert', method) for method in tuning.METHODS),
    *((name, method) for name in ARCHITECTURES for method in ('lora', 'pfeiffer')),
]
COMPUTE = Compute()
# Unlike XLA's older emitters, which other tests use where a jaxlib still has them, these round a
# product the same whatever is added to it.
FUSION_EMITTERS = 'xla_cpu_use_fusion_emitters'
SAME_ROUNDING = {FUSION_EMITTERS: True} if FUSION_EMITTERS in os.environ['XLA_FLAGS'] else {}
IDS = np.random.default_rng(0).integers(4, VOCAB, (2, 12))
MASK = (np.arange(12) < np.array([[12], [9]])).astype(np.int32)


def pairs(methods):
    """The pairs of architecture and method of these methods; those not in QUICK are slow."""
    return [
        pytest.param(name, method, marks=() if (name, method) in QUICK else pytest.mark.slow)
        for name in ARCHITECTURES
        for method in methods
    ]


@functools.cache
def architecture(name):
    return architectures.build(name, **SIZES | ARCHITECTURES[name])


def small(method, **values):
    names = tuning.settings(method)
    return tuning.build(method, {key: SMALL[key] for key in SMALL if key in names} | values)


def tuned(name, method, **values):
    return dataclasses.replace(architecture(name), tuning=small(method, **values))


def encode(architecture, params, ids, mask, compute=COMPUTE, **packing):
    encoder, rows = build_encoder(architecture, compute), Rows(ids, mask, **packing)
    apply = lambda params: encoder.apply({'params': params}, rows)  # noqa: E731
    return jax.jit(apply, compiler_options=SAME_ROUNDING)(params)


def random(architecture, **options):
    encoder = build_encoder(architecture, Compute())
    return random_parameters(encoder, Rows(IDS, MASK), **options)


def with_initial_additions(architecture, base):
    """`base` with added parameters as they are initialized."""
    encoder = build_encoder(architecture, Compute())
    params = nn.unbox(encoder.init(jax.random.key(1), Rows(IDS, MASK)))['params']
    base = tree_paths.flatten(base)
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: base.get(tree_paths.path_name(path), leaf), params
    )


@pytest.mark.parametrize(('name', 'method'), pairs([*START_BITWISE, *START_CLOSE]))
def test_training_starts_at_the_frozen_model(name, method):
    base = random(architecture(name))
    params = with_initial_additions(tuned(name, method), base)
    expected = encode(architecture(name), base, IDS, MASK).hidden_BTD[MASK > 0]
    found = encode(tuned(name, method), params, IDS, MASK).hidden_BTD[MASK > 0]
    if method in START_BITWISE:
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, atol=1e-2)
        assert np.any(found != expected)


@pytest.mark.parametrize(('name', 'method'), pairs(tuning.METHODS))
def test_every_added_parameter_changes_the_output(name, method):
    """Added parameters have a gradient in every layer, and padding changes nothing."""
    chosen, params = tuned(name, method), random(tuned(name, method))
    encoder = build_encoder(chosen, Compute())
    weights = np.random.default_rng(1).normal(size=(2, 12, chosen.hidden_size))

    @jax.jit
    def loss(params, ids):
        hidden_BTD = encoder.apply({'params': params}, Rows(ids, MASK)).hidden_BTD
        return jnp.sum(hidden_BTD * weights * MASK[:, :, None])

    gradients = tree_paths.flatten(jax.grad(loss)(params, jnp.asarray(IDS)))
    added = {path: leaf for path, leaf in gradients.items() if ADDED in path.split('/')}
    assert bool(added) == (method != 'bitfit')
    for path, leaf in added.items():
        assert np.any(np.abs(leaf) > 1e-6), path
    other = np.where(MASK > 0, IDS, 5)
    np.testing.assert_allclose(loss(params, other), loss(params, IDS), rtol=1e-5)


COUNTS = {  # of BERT-base, by the formulas of the papers
    'lora': ({'rank': 8}, 294_912),
    'pfeiffer': ({'bottleneck': 48}, 894_528),
    'houlsby': ({'bottleneck': 64}, 2_379_264),
    'parallel': ({'bottleneck': 384}, 7_091_712),
    'prefix': ({'length': 30}, 552_960),
    'prompt': ({'length': 20}, 15_360),
    'bitfit': ({}, 0),
    'ia3': ({}, 55_296),
    'mam': ({'length': 16, 'bottleneck': 16}, 294_912 + 304_320),
}
TRAINED_OF_BASE = {'houlsby': 38_400, 'bitfit': 101_376 + 768 + 768}


@pytest.mark.parametrize('method', tuning.METHODS)
def test_numbers_of_parameters_follow_the_formulas(method):
    values, number = COUNTS[method]
    base = architectures.build('bert_base')
    chosen = dataclasses.replace(base, tuning=tuning.build(method, values))
    encoder = build_encoder(chosen, Compute())
    boxed = jax.eval_shape(lambda: encoder.init(jax.random.key(0), Rows(IDS, MASK)))
    leaves = tree_paths.flatten(nn.unbox(boxed)['params'])
    added = {path: leaf for path, leaf in leaves.items() if ADDED in path.split('/')}
    assert sum(leaf.size for leaf in added.values()) == number
    trained = [
        leaf.size
        for path, leaf in leaves.items()
        if path not in added and chosen.tuning.trains(f'encoder/{path}')
    ]
    assert sum(trained) == TRAINED_OF_BASE.get(method, 0)


def test_a_prefix_is_a_gated_adapter():
    """(1 − λ) attention + λ softmax(q Pₖᵀ / √K) Pᵥ (He et al. 2022, equation 7)."""
    from bert_jax.models.attention import Attention, Context, LayerConstants
    from bert_jax.models.visibility import Visibility

    chosen = dataclasses.replace(tuned('bert', 'prefix'), attention_dropout=0.0)
    x_BTD = np.random.default_rng(0).normal(size=(2, 12, 16)).astype(np.float32)
    module = Attention(chosen, Compute())
    inputs = (x_BTD, LayerConstants(), Context(Visibility(MASK)), None)
    params = random_parameters(module, *inputs)
    found, _ = module.apply({'params': params}, *inputs)
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)

    query, key, value = (
        np.einsum('BTD,DHK->BTHK', x_BTD, params[name]['kernel']) + params[name]['bias']
        for name in ('query', 'key', 'value')
    )
    keys, values = params[ADDED]['keys'], params[ADDED]['values']
    scores = np.einsum('BTHK,BUHK->BHTU', query, key) / 8**0.5
    scores = np.where(MASK[:, None, None] > 0, scores, -np.inf)
    prefix_scores = np.einsum('BTHK,LHK->BHTL', query, keys) / 8**0.5
    mass, prefix_mass = (np.exp(x).sum(-1)[..., None] for x in (scores, prefix_scores))
    share = (prefix_mass / (mass + prefix_mass)).swapaxes(1, 2)
    attended = np.einsum('BHTU,BUHK->BTHK', np.exp(scores) / mass, value)
    adapted = np.einsum('BHTL,LHK->BTHK', np.exp(prefix_scores) / prefix_mass, values)
    output = params['output']
    mixed = (1 - share) * attended + share * adapted
    expected = np.einsum('BTHK,HKD->BTD', mixed, output['kernel']) + output['bias']
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(('name', 'method'), pairs(['prefix', 'prompt', 'mam']))
def test_packed_sequences_have_the_states_they_have_alone(name, method):
    chosen, params = tuned(name, method), random(tuned(name, method))
    ids, mask = np.zeros((1, LENGTH), int), np.zeros((1, LENGTH), np.int32)
    segments = np.full((1, LENGTH), 7)
    first, lengths = np.array([[0, 6, -1]]), [6, 8]
    alone = []
    for number, length in enumerate(lengths):
        at = first[0, number]
        ids[0, at : at + length] = IDS[number, :length]
        mask[0, at : at + length], segments[0, at : at + length] = 1, number
        own = np.zeros((1, LENGTH), int)
        own[0, :length] = IDS[number, :length]
        alone.append(encode(chosen, params, own, (np.arange(LENGTH) < length)[None].astype(int)))
    options = dict(segment_ids_BT=segments, first_positions_BS=first)
    packed = encode(chosen, params, ids, mask, **options)
    for number, length in enumerate(lengths):
        at = first[0, number]
        for state in ('hidden_BTD', 'decoded_BTD'):
            found = getattr(packed, state)[0, at : at + length]
            expected = getattr(alone[number], state)[0, :length]
            np.testing.assert_allclose(found, expected, atol=2e-5, rtol=1e-5)
        if packed.pooled_BD is not None:
            expected = alone[number].pooled_BD[0]
            np.testing.assert_allclose(packed.pooled_BD[0, number], expected, atol=2e-5)


@pytest.mark.parametrize('method', ['lora', 'prompt', 'mam', 'pfeiffer'])
def test_stacked_layers_compute_the_same(method):
    chosen, params = tuned('bert', method), random(tuned('bert', method))
    expected = encode(chosen, params, IDS, MASK).hidden_BTD
    compute = Compute(scan_layers=True)
    found = encode(chosen, stack_layers(params), IDS, MASK, compute).hidden_BTD
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_layers_that_share_parameters_share_additions_only_if_asked():
    chosen = tuned('albert', 'lora')
    params = random(chosen)
    down = params['layers_0']['attention']['query'][ADDED]['down']
    assert down.shape == (2, 16, 2)  # one for each of the two layers
    shared = tuned('albert', 'lora', per_layer=False)
    first = jax.tree.map(lambda leaf: leaf, params)
    flat = tree_paths.flatten(params)
    take = {path: leaf[0] if ADDED in path.split('/') else leaf for path, leaf in flat.items()}
    equal = {
        path: jnp.stack([leaf[0]] * 2) if ADDED in path.split('/') else leaf
        for path, leaf in flat.items()
    }
    put = lambda arrays: jax.tree_util.tree_map_with_path(  # noqa: E731
        lambda path, _: arrays[tree_paths.path_name(path)], first
    )
    expected = encode(shared, put(take), IDS, MASK).hidden_BTD
    np.testing.assert_allclose(
        encode(chosen, put(equal), IDS, MASK).hidden_BTD, expected, atol=1e-6
    )
    assert np.abs(encode(chosen, params, IDS, MASK).hidden_BTD - expected).max() > 1e-3


def test_a_new_method_is_one_class_and_one_line(monkeypatch):
    """A method that adds a constant to what feed-forward returns."""
    from bert_jax.models.tuning.modules import BlockModule

    class Shift(BlockModule):
        @nn.compact
        def __call__(self, sublayer):
            shift_D = self.added('shift', nn.initializers.zeros, (16,), ('embed',))
            return sublayer.output_BTD + shift_D * (sublayer.name == 'feedforward')

    @dataclasses.dataclass(frozen=True)
    class Toy(Tuning):
        method: str = 'toy'

        def block_module(self):
            return Shift

    monkeypatch.setitem(tuning.METHODS, 'toy', Toy)
    chosen = dataclasses.replace(architecture('bert'), tuning=tuning.build('toy', {}))
    base = random(architecture('bert'))
    params = with_initial_additions(chosen, base)
    expected = encode(architecture('bert'), base, IDS, MASK).hidden_BTD
    np.testing.assert_array_equal(encode(chosen, params, IDS, MASK).hidden_BTD, expected)
    params['layers_1'][ADDED]['shift'] += 1.0
    assert np.any(encode(chosen, params, IDS, MASK).hidden_BTD != expected)


@pytest.mark.parametrize(
    ('method', 'values', 'message'),
    [
        ('lor', {}, 'transfer.method'),
        ('lora', {'targets': ('queries',)}, 'choose from query, key'),
        ('bitfit', {'biases': 'some'}, "transfer.biases is 'some'"),
    ],
)
def test_wrong_settings_are_one_clear_line(method, values, message):
    with pytest.raises(UserError, match=message):
        tuning.build(method, values)

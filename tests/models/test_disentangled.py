"""Disentangled attention: distance buckets, invariances, dropout, memory and meshes."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from bert_jax.errors import UserError
from bert_jax.models import architectures, disentangled
from bert_jax.models.architecture import Compute
from bert_jax.models.architecture_parts import ConvolutionOptions
from bert_jax.models.attention import Context, LayerConstants
from bert_jax.models.disentangled import (
    DisentangledAttention,
    distance_rows,
    distance_scores,
    log_buckets,
)
from bert_jax.models.encoders import build_encoder
from bert_jax.models.rows import Rows
from bert_jax.models.visibility import Visibility
from tests import jaxprs
from tests.random_parameters import random_parameters

LENGTH = 9
RULES = (('batch', ('data', 'fsdp')), ('vocab', 'tensor'), ('heads', 'tensor'), ('embed', 'fsdp'))


def make(**sizes):
    small = dict(
        vocab_size=50,
        hidden_size=16,
        num_layers=2,
        num_heads=2,
        intermediate_size=24,
        max_position_embeddings=24,
        buckets=6,
        initializer_range=0.2,
        convolution=ConvolutionOptions(3),
        positions='mask_decoder',
    )
    parts = {name: f'attention.{name}' for name in ('buckets', 'max_distance', 'terms')}
    sizes = {parts.get(name, name): value for name, value in (small | sizes).items()}
    return architectures.build('deberta_v2', **sizes)


def init(architecture):
    encoder = build_encoder(architecture, Compute())
    ids = jnp.ones((1, 1), jnp.int32)
    return encoder, {'params': random_parameters(encoder, Rows(ids, ids))}


@pytest.fixture(scope='module')
def model():
    """A compiled function (ids, mask, seeds) → output of an encoder with all components."""
    encoder, variables = init(make())
    run = jax.jit(lambda ids, mask, seeds: encoder.apply(variables, Rows(ids, mask), seeds))
    return run


def make_ids(rows=3, length=LENGTH):
    return np.random.default_rng(0).integers(1, 50, (rows, length)).astype(np.int32)


def test_buckets_agree_with_values_computed_by_hand():
    """Eight buckets up to distance 30: 4 single ones, then 4 + ⌈3 log(d / 4) / log(29 / 4)⌉."""
    distances = np.array([0, 1, 4, 5, 7, 8, 14, 15, 16, 28, 29, -4, -5, -29])
    expected = [0, 1, 4, 5, 5, 6, 6, 7, 7, 7, 7, -4, -5, -7]
    assert log_buckets(distances, 8, 30).tolist() == expected


def test_published_buckets_are_antisymmetric_increasing_and_complete():
    buckets = log_buckets(np.arange(-511, 512), 256, 512)
    assert (buckets == -buckets[::-1]).all()
    assert set(np.diff(buckets)) == {0, 1}
    assert buckets[-1] == 255
    assert (buckets[511 - 128 : 512 + 128] == np.arange(-128, 129)).all()


def test_each_distance_has_its_own_bucket_if_there_are_enough():
    architecture = make(buckets=256, max_position_embeddings=100)
    assert distance_rows(architecture, np.arange(-99, 100)).tolist() == [*range(157, 356)]


def test_rows_are_clipped_to_the_table():
    architecture = make(buckets=None, max_distance=3)
    assert distance_rows(architecture, np.arange(-5, 6)).tolist() == [
        *(0, 0, 0, 1, 2, 3, 4, 5, 5, 5, 5)
    ]


def test_padding_on_either_side_changes_nothing(model):
    """States do not depend on absolute positions, except those of the mask decoder."""
    ids = make_ids()
    whole = model(ids, np.ones_like(ids), None)
    for left, right in (0, 5), (4, 0), (3, 2):
        around = ((0, 0), (left, right))
        padded = model(np.pad(ids, around, constant_values=7), np.pad(ids > 0, around), None)
        real = slice(left, left + LENGTH)
        np.testing.assert_allclose(padded.hidden_BTD[:, real], whole.hidden_BTD, atol=2e-5)
        same_place = np.allclose(padded.decoded_BTD[:, real], whole.decoded_BTD, atol=2e-5)
        assert same_place == (left == 0)


def test_dropout_depends_only_on_the_example(model):
    """Not on the rest of the batch, so micro-batches and meshes have the same masks."""
    ids, seeds = make_ids(), np.array([3, 4, 5], np.uint32)
    mask = np.ones_like(ids)
    whole, evaluated = model(ids, mask, seeds), model(ids, mask, None)
    single = model(ids[1:2], mask[1:2], seeds[1:2])
    np.testing.assert_allclose(single.decoded_BTD[0], whole.decoded_BTD[1], atol=1e-5)
    assert not np.allclose(whole.hidden_BTD, evaluated.hidden_BTD, atol=0.1)
    same = model(ids[:1].repeat(2, 0), mask[:2], seeds[:2])
    assert not np.allclose(same.hidden_BTD[0], same.hidden_BTD[1], atol=0.1)


def test_distance_vectors_are_dropped_out():
    """Without other dropout in attention, scores still differ between seeds and examples."""
    architecture = make(hidden_dropout=0.5, attention_dropout=0.0)
    attention = DisentangledAttention(architecture, Compute())
    rng = np.random.default_rng(0)
    x_BTD = rng.standard_normal((1, 4, 16), np.float32).repeat(2, 0)
    rows_TU = np.arange(4)[:, None] - np.arange(4) + 3
    context = Context(
        Visibility(jnp.ones((2, 4), jnp.int32)),
        relative_RD=rng.standard_normal((7, 16), np.float32),
        rows_TU=rows_TU,
    )
    inputs = (x_BTD, LayerConstants())
    params = attention.init(jax.random.key(0), *inputs, context, None)
    seeds = np.array([1, 2], np.uint32)

    def attend(context, seeds):
        return attention.apply(params, *inputs, context, seeds)[0]

    dropped, kept = attend(context, seeds), attend(context, None)
    assert (abs(dropped - kept).max((1, 2)) > 0.05).all()
    assert abs(dropped[0] - dropped[1]).max() > 0.05
    zeros = context._replace(relative_RD=jnp.zeros((7, 16)))
    np.testing.assert_allclose(attend(zeros, seeds), attend(zeros, None), atol=1e-6)


def test_no_array_has_a_vector_for_each_pair_of_positions():
    """The largest array, forward and backward, has one number for each query and distance."""
    architecture = make(max_position_embeddings=512, buckets=256, convolution=None)
    encoder = build_encoder(architecture, Compute())
    rows, length = 2, 400
    ids = jnp.ones((rows, length), jnp.int32)
    params = nn.unbox(jax.eval_shape(encoder.init, jax.random.key(0), Rows(ids, ids)))

    def loss(params):
        return encoder.apply(params, Rows(ids, ids)).decoded_BTD.sum()

    sizes = [
        math.prod(shape) for shape in jaxprs.shapes(jax.make_jaxpr(jax.grad(loss))(params).jaxpr)
    ]
    first, last = log_buckets(np.array([1 - length, length - 1]), 256, 512)
    assert max(sizes) == rows * architecture.num_heads * length * (last - first + 1)


@pytest.mark.parametrize('num_tables', [1, 2])
@pytest.mark.parametrize('are_keys', [False, True])
def test_one_hot_rows_select_the_same_scores_as_a_gather(monkeypatch, are_keys, num_tables):
    """Values and gradients of the products on accelerators, without a gather or scatter."""
    rng = np.random.default_rng(0)
    states_BTHK = rng.standard_normal((2, 5, 3, 4), np.float32)
    vectors_XRHK = rng.standard_normal((num_tables, 6, 3, 4), np.float32)
    weights_BHTU = rng.standard_normal((2, 3, 5, 5), np.float32)
    rows_TU = np.clip(np.arange(5)[:, None] - np.arange(5) + 3, 0, 5)

    def loss(*operands):
        scores = distance_scores(*operands, rows_TU, are_keys, jnp.float32)
        return (scores**2 * weights_BHTU).sum()

    def on(platform):
        monkeypatch.setattr(disentangled.partitioning, 'platform', lambda: platform)
        return jax.make_jaxpr(jax.value_and_grad(loss, (0, 1)))(states_BTHK, vectors_XRHK)

    gathers, products = on('cpu'), on('tpu')
    assert {'gather', 'scatter-add'} <= jaxprs.primitives(gathers.jaxpr)
    assert not {'gather', 'scatter-add'} & jaxprs.primitives(products.jaxpr)
    expected, ours = (
        jax.core.eval_jaxpr(closed.jaxpr, closed.consts, states_BTHK, vectors_XRHK)
        for closed in (gathers, products)
    )
    for mine, theirs in zip(ours, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.eight_devices
def test_a_mesh_and_one_device_agree():
    architecture = make(num_layers=1, positions='none')
    encoder, params = init(architecture)
    ids = make_ids(rows=8, length=12)
    mask = (np.arange(12) < np.arange(5, 13)[:, None]).astype(np.int32)
    seeds = np.arange(8, dtype=np.uint32)

    def loss(params, ids, mask, seeds):
        hidden_BTD = encoder.apply(params, Rows(ids, mask), seeds).hidden_BTD
        return (hidden_BTD**3 * mask[..., None]).sum()

    step = jax.value_and_grad(loss)
    expected = jax.jit(step)(params, ids, mask, seeds)
    mesh = jax.make_mesh((2, 2, 2), ('data', 'fsdp', 'tensor'), axis_types=(AxisType.Auto,) * 3)
    boxed = jax.eval_shape(encoder.init, jax.random.key(0), Rows(ids, mask))
    specs = nn.get_partition_spec(boxed)
    shardings = nn.logical_to_mesh_sharding(specs, mesh, RULES)
    relative = shardings['params']['relative_positions']['embedding'].spec
    assert relative == PartitionSpec(None, 'fsdp')
    by_batch = NamedSharding(mesh, PartitionSpec(('data', 'fsdp')))
    with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
        sharded = jax.jit(step, in_shardings=(shardings, *[by_batch] * 3))
        ours = sharded(jax.device_put(params, shardings), ids, mask, seeds)
    for mine, theirs in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        scale = max(1, np.abs(theirs).max())
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5 * scale)


@pytest.mark.parametrize(
    ('sizes', 'message'),
    [
        (dict(terms=('c2p',)), r"attention.terms are \('c2p',\); known: content_to_pos"),
        (dict(terms=()), r'attention.terms are \(\); known: .* at least one'),
        (dict(buckets=10, max_distance=6), 'attention.buckets is 10; .* less than .* - 1 = 5'),
        (dict(buckets=1), 'attention.buckets is 1; half of it must be at least 1'),
        ({'attention.theta': 1.0}, 'attention.theta is 1.0, but Disentangled.* has no theta'),
        ({'norms.placement': 'pre'}, 'positions mask_decoder needs norms.placement post'),
        ({'convolution.width': 4}, 'convolution.width is 4, must be odd'),
        ({'convolution.activation': 'relu6'}, "unknown activation 'relu6'"),
    ],
)
def test_invalid_values_are_errors(sizes, message):
    with pytest.raises(UserError, match=message):
        make(**sizes)


def test_a_convolution_needs_masked_embeddings():
    with pytest.raises(UserError, match='convolution needs embedding_mask'):
        architectures.build('bert', convolution=ConvolutionOptions(3))

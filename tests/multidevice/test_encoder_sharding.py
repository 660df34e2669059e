"""The encoder computes the same on a 2 × 2 × 2 mesh of fake devices as on one device."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from bert_jax.models import architectures, kernels, pallas_attention
from bert_jax.models.architecture import Compute
from bert_jax.models.encoders import build_encoder
from bert_jax.models.heads.prediction import MaskedLanguageModelHead
from bert_jax.models.partitioning import constrain
from bert_jax.models.rows import Rows, gather_positions
from bert_jax.training import sharding

pytestmark = pytest.mark.eight_devices

RULES = (
    ('batch', ('data', 'fsdp')),
    ('vocab', 'tensor'),
    ('heads', 'tensor'),
    ('mlp', 'tensor'),
    ('embed', 'fsdp'),
)
ARCHITECTURE = architectures.build(
    'bert',
    vocab_size=100,
    hidden_size=32,
    num_layers=2,
    num_heads=4,
    intermediate_size=48,
    initializer_range=0.2,
)


def make_mesh():
    return jax.make_mesh((2, 2, 2), ('data', 'fsdp', 'tensor'), axis_types=(AxisType.Auto,) * 3)


@pytest.mark.slow  # test_invariance.py trains on the same mesh, also with stacked layers
@pytest.mark.parametrize('scan_layers', [False, True])
def test_loss_and_gradients_equal_those_on_one_device(scan_layers):
    compute = Compute(scan_layers=scan_layers)
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 100, (8, 12)).astype(np.int32)
    mask = (np.arange(12) < rng.integers(1, 13, (8, 1))).astype(np.int32)
    positions = rng.integers(0, 12, (8, 3)).astype(np.int32)
    seeds = rng.integers(0, 2**32, 8, np.uint32)
    encoder = build_encoder(ARCHITECTURE, compute)
    head = MaskedLanguageModelHead(ARCHITECTURE, compute)
    hidden, table = jnp.zeros((1, 1, 32)), jnp.zeros((ARCHITECTURE.padded_vocab_size, 32))
    boxed = {
        'encoder': encoder.init(jax.random.key(0), Rows(ids, mask))['params'],
        'head': head.init(jax.random.key(1), hidden, table, method='predict')['params'],
    }
    params = nn.unbox(boxed)

    def loss(params, ids, mask, positions, seeds):
        output = encoder.apply({'params': params['encoder']}, Rows(ids, mask), seeds)
        hidden_BPD = gather_positions(output.hidden_BTD, positions)
        logits_BPV = head.apply(
            {'params': params['head']},
            hidden_BPD,
            params['encoder']['embeddings']['token'],
            method='predict',
        )
        return -jax.nn.log_softmax(logits_BPV)[..., 5].mean() + output.pooled_BD.sum()

    step = jax.value_and_grad(loss)
    expected = jax.jit(step)(params, ids, mask, positions, seeds)

    mesh = make_mesh()
    shardings = nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, RULES)
    embedding_spec = shardings['encoder']['embeddings']['token'].spec
    assert embedding_spec == PartitionSpec('tensor', 'fsdp')
    by_batch = NamedSharding(mesh, PartitionSpec(('data', 'fsdp')))
    with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
        sharded = jax.jit(step, in_shardings=(shardings, *[by_batch] * 4))
        ours = sharded(jax.device_put(params, shardings), ids, mask, positions, seeds)
    for mine, theirs in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        scale = max(1, np.abs(theirs).max())
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5 * scale)


def test_heads_of_keys_and_values_may_be_too_few_to_be_sharded():
    sizes = dict(hidden_size=32, num_layers=1, num_heads=4, kv_heads=1, intermediate_size=48)
    architecture = architectures.build('eurobert', vocab_size=100, initializer_range=0.2, **sizes)
    encoder = build_encoder(architecture, Compute())
    ids = np.random.default_rng(0).integers(0, 100, (8, 12)).astype(np.int32)
    rows = Rows(ids, np.ones_like(ids))
    boxed = encoder.init(jax.random.key(0), rows)
    params = nn.unbox(boxed)
    expected = encoder.apply(params, rows).hidden_BTD
    mesh = make_mesh()
    shardings = sharding.param_shardings(boxed, mesh, RULES)
    key = shardings['params']['layers_0']['attention']['key']['kernel'].spec
    assert 'tensor' not in key
    with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
        found = jax.jit(encoder.apply)(jax.device_put(params, shardings), rows).hidden_BTD
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_constraints_take_effect_only_under_a_mesh_with_rules():
    x = jnp.zeros((8, 4, 6))
    names = ('batch', 'length', 'mlp')
    assert jax.jit(lambda x: constrain(x, names))(x).sharding.is_fully_replicated
    with jax.set_mesh(make_mesh()):
        assert jax.jit(lambda x: constrain(x, names))(x).sharding.is_fully_replicated
        with nn.logical_axis_rules(RULES):
            constrained = jax.jit(lambda x: constrain(x, names) + 1)(x)
    assert constrained.sharding.spec == PartitionSpec(('data', 'fsdp'), None, 'tensor')


def test_an_attention_kernel_runs_on_every_device_for_its_rows_and_heads(monkeypatch):
    """With the dropout masks of one device. The row that initializes parameters is not sharded."""
    monkeypatch.setitem(kernels.PLATFORMS, 'flash', 'cpu')
    monkeypatch.setattr(pallas_attention, 'INTERPRET', True)
    sizes = {'max_position_embeddings': 128, 'attention_dropout': 0.2}
    architecture = dataclasses.replace(ARCHITECTURE, num_layers=1, **sizes)
    ids = np.random.default_rng(0).integers(0, 100, (4, 128)).astype(np.int32)
    mask = (np.arange(128) < np.array([[128], [100], [60], [1]])).astype(np.int32)

    def states(params, kernel):
        encoder = build_encoder(architecture, Compute(attention_kernel=kernel))
        output = jax.jit(encoder.apply)(params, Rows(ids, mask), np.arange(4, dtype=np.uint32))
        return output.hidden_BTD * mask[:, :, None]

    with jax.set_mesh(make_mesh()), nn.logical_axis_rules(RULES):
        encoder = build_encoder(architecture, Compute(attention_kernel='flash'))
        params = nn.unbox(jax.jit(encoder.init)(jax.random.key(0), Rows(ids[:1], mask[:1])))
        ours = np.asarray(states(params, 'flash'))
    expected = np.asarray(states(jax.device_get(params), 'xla'))
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize('scan_layers', [False, True])
def test_sharding_rules_may_name_every_axis_of_activations(scan_layers, monkeypatch):
    used = set()
    monkeypatch.setattr(nn, 'with_logical_constraint', lambda x, names: used.update(names) or x)
    ids = jnp.zeros((2, 8), jnp.int32)
    model = build_encoder(ARCHITECTURE, Compute(scan_layers=scan_layers))
    jax.eval_shape(model.init, jax.random.key(0), Rows(ids, ids))
    head = MaskedLanguageModelHead(ARCHITECTURE, Compute())
    hidden, table = jnp.zeros((2, 3, 32)), jnp.zeros((ARCHITECTURE.padded_vocab_size, 32))
    jax.eval_shape(functools.partial(head.init, method='predict'), jax.random.key(0), hidden, table)
    assert {'batch', 'heads', 'mlp', 'vocab'} < used
    assert used - {None} <= {*sharding.ACTIVATION_AXES, 'positions'}

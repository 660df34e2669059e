"""Frozen parameters stay bitwise equal, and every layer has the right learning rate."""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from ml_collections import ConfigDict

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.encoders import build_encoder
from bert_jax.models.rows import Rows
from bert_jax.training import optimizers, sharding, transfer
from bert_jax.training.state import TrainState, abstract_state, initial_state
from bert_jax.training.step import make_train_step
from bert_jax.training.transfer import Transfer
from tests.training import synthetic, toy

HEADS = {'sequence_classification/head/kernel', 'encoder/pooler/kernel'}
EMBEDDINGS = {'encoder/embeddings/token'}


def layer(number):
    return {f'encoder/layers_{number}/{leaf}' for leaf in ('kernel', 'bias')}


def settings(**changes):
    defaults = dict(
        trainable='all',
        layer_decay=1.0,
        faithful_layer_decay=False,
        unfreeze_every_steps=0,
        unfreeze_every_fraction=0.0,
    )
    return ConfigDict(defaults | changes)


def with_fragile_values(params):
    """Insert values that an update of 0 would change: −0 and a subnormal number."""

    def put(leaf):
        flat = jnp.ravel(leaf).at[:2].set(jnp.array([-0.0, 1e-40]))
        return flat.reshape(leaf.shape)

    return jax.tree.map(put, params)


def train(chosen, steps, tmp_path, stacked=False):
    """Return the parameters by name before the first step and after each one, unstacked."""
    config = toy.config(tmp_path)
    task = toy.Toy(config, stacked)
    optimizer = chosen.scale_updates(optimizers.build(config.optimizer, lambda step: 0.03))
    mesh = jax.make_mesh((1,) * 3, sharding.AXES, devices=jax.devices()[:1])
    with jax.set_mesh(mesh), nn.logical_axis_rules(config.sharding_rules):
        abstract = abstract_state(task, optimizer, mesh, config.sharding_rules, chosen)
        state = initial_state(task, optimizer, abstract, 0, chosen)
        params = with_fragile_values(toy.parameters())
        state = state._replace(params=toy.stack(params) if stacked else params)
        step = jax.jit(make_train_step(task, optimizer, transfer=chosen))
        found = [state.params]
        for number in range(steps):
            batch = task.stages[0].source.batch(number, np.arange(8))
            state, metrics = step(state, batch, jax.random.key(0))
            found.append(state.params)
        shapes = lambda tree: jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)  # noqa: E731
        assert shapes(state) == shapes(abstract)
        assert int(metrics['skipped']) == 0
    return [tree_paths.flatten(unstacked(jax.device_get(params))) for params in found]


def unstacked(params):
    encoder = dict(params['encoder'])
    stack = encoder.pop('layers', None)
    for number in range(toy.LAYERS if stack else 0):
        encoder[f'layers_{number}'] = jax.tree.map(lambda leaf, n=number: leaf[n], stack)
    return params | {'encoder': encoder}


def changed(before, after):
    """Names of the parameters that are not bitwise equal."""
    return {name for name in before if before[name].tobytes() != after[name].tobytes()}


@pytest.mark.parametrize(
    ('trainable', 'stacked', 'expected'),
    [
        ('heads', False, HEADS),
        ('heads', True, HEADS),
        ('last:1', False, HEADS | layer(2)),
        ('last:1', True, HEADS | layer(2)),
        ('last:3', False, HEADS | layer(2) | layer(1) | layer(0)),
        ('all', False, HEADS | layer(2) | layer(1) | layer(0) | EMBEDDINGS),
    ],
)
def test_parameters_that_are_not_trained_stay_bitwise_equal(trainable, expected, stacked, tmp_path):
    found = train(Transfer(trainable), 3, tmp_path, stacked)
    assert changed(found[0], found[-1]) == expected


def test_stacked_layers_are_trained_like_separate_ones(tmp_path):
    chosen = Transfer('last:2', layer_decay=0.5, unfreeze_every_steps=1)
    one, other = (train(chosen, 4, tmp_path, stacked)[-1] for stacked in (False, True))
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_parameters_that_are_not_trained_have_no_moments(tmp_path):
    params = toy.parameters()
    optimizer = optimizers.build(toy.config(tmp_path).optimizer, lambda step: 0.03)
    state = optimizer.init(Transfer('heads').select(params))
    moments = [leaf for leaf in jax.tree.leaves(state) if leaf.ndim]
    assert len(moments) == 2 * len(HEADS)


def test_layers_are_unfrozen_one_by_one(tmp_path):
    found = train(Transfer(unfreeze_every_steps=2), 9, tmp_path)
    seen = [changed(before, after) for before, after in zip(found, found[1:], strict=False)]
    assert seen[:2] == [HEADS] * 2
    assert seen[2:4] == [HEADS | layer(2)] * 2
    assert seen[4:6] == [HEADS | layer(2) | layer(1)] * 2
    assert seen[6:8] == [HEADS | layer(2) | layer(1) | layer(0)] * 2
    assert seen[8] == HEADS | layer(2) | layer(1) | layer(0) | EMBEDDINGS


@pytest.mark.parametrize(('faithful', 'extra'), [(False, 0), (True, 1)])
def test_every_layer_is_updated_as_by_optax_with_its_own_learning_rate(faithful, extra, tmp_path):
    """Compare two updates with one optax.adamw per parameter."""
    rate, share = 0.1, 0.8
    distances = {
        'sequence_classification/head/kernel': 0,
        'encoder/pooler/kernel': 0,
        'encoder/embeddings/token': 4,
    }
    distances |= {name: 3 - number for number in range(3) for name in layer(number)}
    params, draws = toy.parameters(), [toy.parameters(1), toy.parameters(2)]
    config = toy.config(tmp_path).optimizer
    config.clip_norm = 0.0
    chosen = Transfer(layer_decay=share, faithful_layer_decay=faithful)
    optimizer = chosen.scale_updates(optimizers.build(config, lambda step: rate))
    ours, state = params, optimizer.init(params)
    for grads in draws:
        updates, state = optimizer.update(grads, state, ours)
        ours = optax.apply_updates(ours, updates)
    ours, expected = tree_paths.flatten(ours), tree_paths.flatten(params)
    for name, distance in distances.items():
        own_rate = rate * share ** (distance + extra * (distance > 0))
        decay = 0.0 if name.endswith('bias') else config.weight_decay
        slow = optax.adamw(own_rate, config.beta1, config.beta2, config.eps, weight_decay=decay)
        theirs, own_state = expected[name], slow.init(expected[name])
        for grads in draws:
            updates, own_state = slow.update(tree_paths.flatten(grads)[name], own_state, theirs)
            theirs = theirs + updates
        np.testing.assert_allclose(ours[name], theirs, rtol=1e-5, atol=1e-6, err_msg=name)
    assert distances.keys() == ours.keys()


def test_frozen_layers_have_no_backward_pass():
    """Count the FLOPs of a step of the real model before XLA optimizes it.

    Freezing the embeddings and the lower of two layers saves their whole backward pass.
    """
    task = synthetic.SyntheticTask()

    def flops(trainable):
        chosen = Transfer(trainable)
        optimizer = optimizers.build(synthetic.OPTIMIZER, lambda step: 1e-3)

        def state(key):
            params = sharding.unbox(task.init(key))
            zero = jnp.zeros((), jnp.int32)
            return TrainState(zero, zero, zero, params, optimizer.init(chosen.select(params)))

        abstract = jax.eval_shape(state, jax.random.key(0))
        step = jax.jit(make_train_step(task, optimizer, transfer=chosen))
        return step.lower(abstract, synthetic.batch(0), jax.random.key(0)).cost_analysis()['flops']

    everything, last, heads = flops('all'), flops('last:1'), flops('heads')
    assert heads < last < everything
    # The weights of one layer, without biases, for 16 rows of 24 positions: 16 features, 32 hidden.
    backward = 2 * 2 * 16 * 24 * (4 * 16 * 16 + 2 * 16 * 32)
    assert everything - last > backward
    assert last - heads > backward


@pytest.mark.parametrize('name', sorted(architectures.BUILDERS))
def test_every_parameter_of_every_architecture_has_a_distance(name):
    sizes = dict(
        hidden_size=64,
        num_heads=2,
        kv_heads=None,
        num_layers=2,
        intermediate_size=64,
        vocab_size=50,
    )
    free = architectures.find(name).free_fields
    sizes = {size: sizes[size] for size in sizes if size in free}
    encoder = build_encoder(architectures.build(name, **sizes), Compute())
    ids = jnp.zeros((1, 4), jnp.int32)
    params = sharding.unbox(
        jax.eval_shape(encoder.init, jax.random.key(0), Rows(ids, ids))['params']
    )
    kept = tree_paths.flatten(Transfer('heads').select({'encoder': params}))
    assert all(found.startswith('encoder/pooler/') for found in kept)


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (dict(trainable='last'), "transfer.trainable is 'last'; use 'all', 'heads', or 'last:2'"),
        (dict(trainable='last:0'), "transfer.trainable is 'last:0'"),
        (dict(unfreeze_every_steps=5, unfreeze_every_fraction=0.1), 'set one of them to 0'),
        (dict(unfreeze_every_steps=5, trainable='heads'), 'nothing to unfreeze'),
        (dict(layer_decay=0.9, trainable='heads'), 'trains no layers'),
        (dict(faithful_layer_decay=True), 'but transfer.layer_decay is 1'),
    ],
)
def test_invalid_settings_are_errors(changes, message):
    with pytest.raises(UserError, match=re.escape(message)):
        transfer.build(settings(**changes), 100)


def test_unfreezing_can_be_given_as_a_fraction_of_the_run():
    assert transfer.build(settings(unfreeze_every_fraction=0.2), 100).unfreeze_every_steps == 20


@pytest.mark.parametrize('stacked', [False, True])
def test_training_more_layers_than_there_are_is_an_error(stacked):
    params = toy.stack(toy.parameters()) if stacked else toy.parameters()
    with pytest.raises(UserError, match=r"'last:4', but there are 3 layers \(shared layers count"):
        Transfer('last:4').select(params)


def test_the_log_lists_what_is_trained():
    chosen = Transfer('last:2', layer_decay=0.5, unfreeze_every_steps=10)
    params = toy.parameters()
    for own in (params, toy.stack(params)):
        assert chosen.num_trained(own) == 60
        counts, rates, steps = chosen.describe(own)
        assert counts == '60 of 104 parameters are trained (last:2)'
        assert rates == 'learning rate × 0.5 from layer to layer, × 0.125 in layer 0'
        assert steps.endswith('heads first, then a layer every 10 steps, the last one at step 20')
    assert Transfer().describe(params) == []
    assert Transfer().num_trained(params) == 104

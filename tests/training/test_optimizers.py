"""Optimizers: what is decayed, clipping, stacked layers, dtypes and mistakes."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from ml_collections import ConfigDict

from bert_jax import errors
from bert_jax.training import optimizers

NAMES = ['bert_adam', 'adamw', 'lamb', 'stable_adamw']


def build(name, rate=0.1, **changes):
    config = dict(
        name=name,
        beta1=0.9,
        beta2=0.999,
        eps=1e-6,
        weight_decay=0.01,
        clip_norm=1.0,
        decay_exclude=('(^|/)bias$', '_norm/scale$'),
    )
    return optimizers.build(ConfigDict(config | changes), lambda step: jnp.float32(rate))


def parameters(num_layers=3, seed=0):
    draw = np.random.default_rng(seed).normal
    layer = lambda: {  # noqa: E731
        'dense': {'kernel': draw(size=(4, 5)), 'bias': draw(size=5)},
        'output_norm': {'scale': draw(size=5), 'bias': draw(size=5)},
    }
    layers = [layer() for _ in range(num_layers)]
    return jax.tree.map(
        jnp.float32,
        {
            'embeddings': {'tokens': draw(size=(7, 4)), 'bias_table': draw(size=(3, 4))},
            'layers': jax.tree.map(lambda *arrays: np.stack(arrays), *layers),
        },
    )


def one_update(optimizer, params, grads):
    updates, _ = jax.jit(optimizer.update)(grads, optimizer.init(params), params)
    return updates


@pytest.mark.parametrize('name', NAMES)
def test_only_excluded_names_are_not_decayed_whatever_their_rank(name):
    params, grads = parameters(), parameters(seed=1)
    decayed = one_update(build(name), params, grads)
    plain = one_update(build(name, weight_decay=0.0), params, grads)
    differs = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), decayed, plain)
    assert differs == {
        'embeddings': {'tokens': True, 'bias_table': True},
        'layers': {
            'dense': {'kernel': True, 'bias': False},
            'output_norm': {'scale': False, 'bias': False},
        },
    }


def test_decay_is_multiplied_by_the_rate_and_not_by_the_moments():
    params = parameters()
    zero = jax.tree.map(jnp.zeros_like, params)
    updates = one_update(build('bert_adam', rate=0.5, weight_decay=0.02), params, zero)
    tokens = params['embeddings']['tokens']
    np.testing.assert_allclose(updates['embeddings']['tokens'], -0.5 * 0.02 * tokens, rtol=1e-6)


def test_a_pattern_that_matches_nothing_is_an_error():
    with pytest.raises(errors.UserError, match=r"'layer_nrom' matches no parameter.*embeddings/"):
        optimizers.check_decay_exclude(('bias$', 'layer_nrom'), parameters())


def test_no_pattern_decays_everything():
    assert all(jax.tree.leaves(optimizers.decay_mask(parameters(), ())))


def test_an_unknown_name_lists_the_known():
    with pytest.raises(errors.UserError, match='adamw, bert_adam, lamb'):
        build('adma')


@pytest.mark.parametrize(('scale', 'expected'), [(0.1, 0.1), (1.0, 1.0), (40.0, 1.0)])
def test_clipping_bounds_the_norm_over_all_parameters(scale, expected):
    params = parameters()
    unit = jax.tree.map(lambda g: g / optax.tree.norm(params), params)
    grads = jax.tree.map(lambda g: g * scale, unit)
    clipped, _ = optimizers.clip_by_global_norm(1.0).update(grads, optax.EmptyState())
    assert float(optax.tree.norm(clipped)) == pytest.approx(expected, rel=1e-6)
    kernel = lambda tree: tree['layers']['dense']['kernel']  # noqa: E731
    np.testing.assert_allclose(kernel(clipped), kernel(unit) * expected, rtol=1e-5)


@pytest.mark.parametrize('shapes', [[(3, 4), (5,), ()], [(300, 300), (7,)], [(300, 300)]])
def test_the_global_norm_is_that_of_all_entries(shapes):
    rng = np.random.default_rng(0)
    grads = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    everything = np.concatenate([np.ravel(grad).astype(np.float64) for grad in grads])
    norm = float(optimizers.global_norm(list(map(jnp.asarray, grads))))
    assert norm == pytest.approx(np.linalg.norm(everything), rel=1e-6)


def test_the_global_norm_sums_small_arrays_together():
    grads = [jnp.ones(4), jnp.ones((2, 3)), jnp.ones((300, 300)), jnp.ones((400, 300))]
    lowered = jax.jit(optimizers.global_norm).lower(grads)
    assert lowered.as_text().count('stablehlo.reduce') == 3


def test_no_clipping_on_request():
    params, grads = parameters(), parameters(seed=1)
    clipped, free = build('bert_adam'), build('bert_adam', clip_norm=0.0)
    huge = jax.tree.map(lambda g: g * 100, grads)
    assert not _equal(one_update(clipped, params, huge), one_update(free, params, huge))
    tiny = jax.tree.map(lambda g: g * 1e-3, grads)
    assert _equal(one_update(clipped, params, tiny), one_update(free, params, tiny))


def test_a_known_norm_is_not_taken_again():
    optimizer, params, grads = build('bert_adam'), parameters(), parameters(seed=1)
    state, norm = optimizer.init(params), optimizers.global_norm(grads)

    def update(norm):
        return optimizer.update(grads, state, params, norm=norm)[0]

    assert _equal(update(norm), update(None))
    assert not _equal(update(2 * norm), update(None))
    assert 'reduce' not in jax.jit(update).lower(norm).as_text()


@pytest.mark.parametrize('name', NAMES)
def test_stacked_layers_are_updated_like_separate_ones(name):
    params, grads = parameters(num_layers=3), parameters(num_layers=3, seed=1)

    def separate(tree):
        pick = lambda i: jax.tree.map(lambda array: array[i], tree['layers'])  # noqa: E731
        return {'embeddings': tree['embeddings'], **{f'layer_{i}': pick(i) for i in range(3)}}

    stacked = one_update(build(name), params, grads)
    expected = one_update(build(name), separate(params), separate(grads))
    for a, b in zip(jax.tree.leaves(separate(stacked)), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-8)


def test_lamb_leaves_zero_parameters_and_zero_updates_alone():
    params = {'zero': {'bias': jnp.zeros(3)}, 'still_norm': {'scale': jnp.ones(3)}}
    grads = {'zero': {'bias': jnp.ones(3)}, 'still_norm': {'scale': jnp.zeros(3)}}
    updates = one_update(build('lamb', rate=0.1), params, grads)
    np.testing.assert_allclose(updates['zero']['bias'], -0.1, rtol=1e-5)
    np.testing.assert_array_equal(updates['still_norm']['scale'], 0)


@pytest.mark.parametrize('name', NAMES)
def test_state_and_updates_are_float32(name):
    params = parameters()
    optimizer = build(name)
    updates, state = optimizer.update(params, optimizer.init(params), params)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(updates)} == {'float32'}
    assert {leaf.dtype.name for leaf in jax.tree.leaves(state)} == {'float32', 'int32'}


@pytest.mark.parametrize('name', NAMES)
def test_a_bad_gradient_leaves_no_trace(name):
    """Nor does it count as one: warmup and bias correction go on where they were."""
    params, optimizer = parameters(), build(name)
    bad = jax.tree.map(lambda array: array * jnp.nan, params)
    update = jax.jit(optimizer.update)
    first = optimizer.init(params)
    _, before = update(parameters(seed=1), first, params, good=True)
    _, after = update(bad, before, params, good=False)
    assert _equal(before, after)
    assert not _equal(before, first)


def test_the_rate_is_that_of_the_good_updates_so_far():
    scaling = optimizers.scale_by_learning_rate(lambda count: count + 1.0)
    state, rates = scaling.init(jnp.ones(1)), []
    for good in (True, False, False, True, True):
        update, state = scaling.update(jnp.ones(1), state, good=good)
        rates.append(-float(update[0]))
    assert rates == [1, 2, 2, 2, 3]


def test_arrays_of_one_shape_are_lowered_once():
    params = {f'kernel_{i}': jnp.ones((3, 4)) for i in range(5)} | {'bias': jnp.ones(4)}
    optimizer = build('adamw')
    lowered = jax.jit(optimizer.update).lower(params, optimizer.init(params), params)
    assert len(re.findall(r'func private @direction', lowered.as_text())) == 2


def _equal(a, b):
    return all(
        np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )

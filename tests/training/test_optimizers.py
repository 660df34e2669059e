"""Weight decay, clipping, stacked layers, skipped steps and dtypes of the optimizers."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from ml_collections import ConfigDict

from bert_jax import errors
from bert_jax.training import optimizers

NAMES = ['bert_adam', 'adamw', 'lamb', 'albert_lamb', 'stable_adamw', 'muon']


def build(name, rate=0.1, **changes):
    config = dict(
        name=name,
        beta1=0.9,
        beta2=0.999,
        eps=1e-6,
        weight_decay=0.01,
        clip_norm=1.0,
        decay_exclude=('(^|/)bias$', '_norm/scale$'),
        muon_momentum=0.95,
        muon_rate=1.0,
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
        np.float32,
        {
            'embeddings': {'tokens': draw(size=(7, 4)), 'bias_table': draw(size=(3, 4))},
            'layers': jax.tree.map(lambda *arrays: np.stack(arrays), *layers),
        },
    )


def one_update(optimizer, params, grads):
    updates, _ = jax.jit(optimizer.update)(grads, optimizer.init(params), params)
    return updates


@pytest.mark.parametrize('name', NAMES)
def test_all_parameters_but_the_excluded_ones_are_decayed(name):
    params, grads = parameters(), parameters(seed=1)
    decayed = one_update(build(name), params, grads)
    undecayed = one_update(build(name, weight_decay=0.0), params, grads)
    is_decayed = jax.tree.map(lambda a, b: bool(np.any(a != b)), decayed, undecayed)
    assert is_decayed == {
        'embeddings': {'tokens': True, 'bias_table': True},
        'layers': {
            'dense': {'kernel': True, 'bias': False},
            'output_norm': {'scale': False, 'bias': False},
        },
    }


def test_weight_decay_is_multiplied_by_the_learning_rate_only():
    params = parameters()
    zero = jax.tree.map(np.zeros_like, params)
    updates = one_update(build('bert_adam', rate=0.5, weight_decay=0.02), params, zero)
    tokens = params['embeddings']['tokens']
    np.testing.assert_allclose(updates['embeddings']['tokens'], -0.5 * 0.02 * tokens, rtol=1e-6)


def test_a_pattern_that_matches_no_parameter_is_an_error():
    with pytest.raises(
        errors.UserError, match=r"'layer_nrom' in .* matches no parameter.*embeddings/"
    ):
        optimizers.check_decay_exclude(('bias$', 'layer_nrom'), parameters())
    optimizers.check_decay_exclude(('bias', 'norm'), {'kernel': np.zeros(2)})  # of the recipes


def test_a_pattern_that_is_not_a_regular_expression_is_an_error():
    with pytest.raises(errors.UserError, match=r"has '\(', an invalid regular expression"):
        build('adamw', decay_exclude=('(',))


def test_without_patterns_everything_is_decayed():
    assert all(jax.tree.leaves(optimizers.decay_mask(parameters(), ())))


@pytest.mark.parametrize(('scale', 'expected'), [(0.1, 0.1), (1.0, 1.0), (40.0, 1.0)])
def test_clipping_limits_the_global_norm(scale, expected):
    params = parameters()
    norm = numpy_norm(params)
    unit = jax.tree.map(lambda grad: grad / norm, params)
    grads = jax.tree.map(lambda grad: grad * scale, unit)
    clip = jax.jit(optimizers.clip_by_global_norm(1.0).update)
    clipped, _ = clip(grads, optax.EmptyState())
    assert numpy_norm(clipped) == pytest.approx(expected, rel=1e-6)
    kernel = lambda tree: tree['layers']['dense']['kernel']  # noqa: E731
    np.testing.assert_allclose(kernel(clipped), kernel(unit) * expected, rtol=1e-5)


@pytest.mark.parametrize('shapes', [[(3, 4), (5,), ()], [(300, 300), (7,)], [(300, 300)]])
def test_the_global_norm_covers_all_entries(shapes):
    rng = np.random.default_rng(0)
    grads = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    norm = float(jax.jit(optimizers.global_norm)(grads))
    assert norm == pytest.approx(numpy_norm(grads), rel=1e-6)


def test_the_global_norm_sums_small_arrays_as_one():
    grads = [np.ones(shape, np.float32) for shape in ((4,), (2, 3), (300, 300), (400, 300))]
    lowered = jax.jit(optimizers.global_norm).lower(grads)
    assert lowered.as_text().count('stablehlo.reduce') == 3


def test_a_clip_norm_of_0_disables_clipping():
    params, grads = parameters(), parameters(seed=1)
    clipped, unclipped = build('bert_adam'), build('bert_adam', clip_norm=0.0)
    huge = jax.tree.map(lambda g: g * 100, grads)
    assert not _equal(one_update(clipped, params, huge), one_update(unclipped, params, huge))
    tiny = jax.tree.map(lambda g: g * 1e-3, grads)
    assert _equal(one_update(clipped, params, tiny), one_update(unclipped, params, tiny))


def test_a_known_norm_is_not_computed_again():
    optimizer, params, grads = build('bert_adam'), parameters(), parameters(seed=1)
    state, norm = optimizer.init(params), jax.jit(optimizers.global_norm)(grads)

    @jax.jit
    def update(norm):
        return optimizer.update(grads, state, params, norm=norm)[0]

    assert _equal(update(norm), update(None))
    assert not _equal(update(2 * norm), update(None))
    assert 'reduce' not in update.lower(norm).as_text()


@pytest.mark.parametrize('name', NAMES)
def test_stacked_layers_are_updated_like_separate_layers(name):
    params, grads = parameters(num_layers=3), parameters(num_layers=3, seed=1)

    def separate(tree):
        pick = lambda i: jax.tree.map(lambda array: array[i], tree['layers'])  # noqa: E731
        return {'embeddings': tree['embeddings'], **{f'layers_{i}': pick(i) for i in range(3)}}

    stacked = one_update(build(name), params, grads)
    expected = one_update(build(name), separate(params), separate(grads))
    for a, b in zip(jax.tree.leaves(separate(stacked)), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6 if name == 'muon' else 1e-8)


def test_albert_lamb_moves_biases_that_are_still_zero_or_small():
    """With a trust ratio a bias near 0 would move by its own norm, so hardly at all."""
    small, ones = np.full(3, 1e-6, np.float32), np.ones(3, np.float32)
    updates = one_update(build('albert_lamb', rate=0.1), {'bias': small}, {'bias': ones})
    assert abs(updates['bias']).min() > 0.1
    assert (
        abs(one_update(build('lamb', rate=0.1), {'bias': small}, {'bias': ones})['bias']).max()
        < 1e-6
    )


def test_lamb_does_not_scale_updates_of_zero_parameters_or_zero_updates():
    zeros, ones = np.zeros(3, np.float32), np.ones(3, np.float32)
    params = {'zero': {'bias': zeros}, 'constant_norm': {'scale': ones}}
    grads = {'zero': {'bias': ones}, 'constant_norm': {'scale': zeros}}
    updates = one_update(build('lamb', rate=0.1), params, grads)
    np.testing.assert_allclose(updates['zero']['bias'], -0.1, rtol=1e-5)
    np.testing.assert_array_equal(updates['constant_norm']['scale'], 0)


@pytest.mark.parametrize('name', NAMES)
def test_state_and_updates_are_float32(name):
    params = parameters()
    optimizer = build(name)
    state = optimizer.init(params)
    updates, state = jax.eval_shape(optimizer.update, params, state, params)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(updates)} == {'float32'}
    assert {leaf.dtype.name for leaf in jax.tree.leaves(state)} == {'float32', 'int32'}


@pytest.mark.parametrize('name', NAMES)
def test_a_rejected_gradient_changes_nothing_but_the_step_of_the_schedule(name):
    """It does not count as a step of the bias correction."""
    params, optimizer = parameters(), build(name)
    bad = jax.tree.map(lambda array: array * np.float32(np.nan), params)
    update = jax.jit(optimizer.update)
    first = optimizer.init(params)
    _, before = update(parameters(seed=1), first, params, accept=True)
    _, after = update(bad, before, params, accept=False)
    assert _equal(before[:-1], after[:-1])
    assert not _equal(before[:-1], first[:-1])
    assert [int(state[-1].count) for state in (first, before, after)] == [0, 1, 2]


def test_arrays_of_the_same_shape_are_lowered_once():
    kernel, bias = np.ones((3, 4), np.float32), np.ones(4, np.float32)
    params = {f'kernel_{i}': kernel for i in range(5)} | {'bias': bias}
    optimizer = build('adamw')
    lowered = jax.jit(optimizer.update).lower(params, optimizer.init(params), params)
    assert len(re.findall(r'func private @direction', lowered.as_text())) == 2


def numpy_norm(tree):
    return np.sqrt(sum(np.sum(np.square(np.float64(leaf))) for leaf in jax.tree.leaves(tree)))


def _equal(a, b):
    return all(
        np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


ENTRIES = {
    'lion': lambda decay, _, config: [optax.scale_by_lion(config.beta1, config.beta2), decay],
    'adam': lambda decay, _, config: [optax.scale_by_adam(config.beta1, config.beta2)],
    'masked': lambda decay, is_decayed, config: [optax.masked(optax.trace(0.9), is_decayed)],
    'stateless': lambda decay, _, config: [optax.stateless(lambda grads, params: grads)],
}


@pytest.mark.parametrize('name', [*ENTRIES, *NAMES])
def test_a_skipped_step_leaves_the_moments_of_every_entry_unchanged(name, monkeypatch):
    for entry, directions in ENTRIES.items():
        monkeypatch.setitem(optimizers.DIRECTIONS, entry, directions)
    optimizer, params, grads = build(name), parameters(), parameters(seed=1)
    broken = jax.tree.map(lambda grad: grad * np.nan, grads)
    update = jax.jit(optimizer.update)
    state = before = optimizer.init(params)
    _, state = update(broken, state, params, accept=jnp.array(False), norm=jnp.array(jnp.nan))
    assert _equal(state[:-1], before[:-1])  # the last state counts the steps of the schedule
    updates, _ = update(grads, state, params, accept=jnp.array(True))
    expected, _ = update(grads, before, params, accept=jnp.array(True))
    assert _equal(updates, expected)

"""Muon: its update, the parameters it applies to, and runs with it."""

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.training import muon, optimizers, sharding
from tests.training import synthetic

CONFIG = ConfigDict(
    dict(
        name='muon',
        beta1=0.9,
        beta2=0.98,
        eps=1e-8,
        weight_decay=0.1,
        decay_exclude=('bias', 'norm'),
        clip_norm=0.0,
        muon_momentum=0.95,
        muon_rate=2.0,
    )
)
RATE, STEPS = 0.3, 4
# Name → shape, and the shape as matrices [N, in, out]; None: Adam.
SHAPES = {
    'encoder/layers_0/attention/query/kernel': ((6, 2, 5), (1, 6, 10)),
    'encoder/layers_0/attention/output/kernel': ((2, 5, 6), (1, 10, 6)),
    'encoder/layers_0/attention/query/bias': ((2, 5), None),
    'encoder/layers_0/feedforward/output/kernel': ((7, 6), (1, 7, 6)),
    'encoder/layers_0/norm/scale': ((6,), None),
    'encoder/embeddings/token': ((11, 6), None),
    'encoder/layers/feedforward/output/kernel': ((3, 7, 6), (3, 7, 6)),
    'encoder/layers/attention/key/kernel': ((3, 6, 2, 5), (3, 6, 10)),
    'encoder/layers/attention/output/kernel': ((3, 2, 5, 6), (3, 10, 6)),
    'encoder/layers/norm/scale': ((3, 6), None),
    'encoder/layers_0/tuning/query/kernel': ((6, 2), None),
    'mlm/head/transform/kernel': ((6, 6), None),
}


def draw(seed):
    rng = np.random.default_rng(seed)
    return {name: np.float32(rng.normal(size=shape)) for name, (shape, _) in SHAPES.items()}


def nest(flat):
    tree = {}
    for name, array in flat.items():
        *folders, leaf = name.split('/')
        inner = tree
        for folder in folders:
            inner = inner.setdefault(folder, {})
        inner[leaf] = array
    return tree


def orthogonalized(matrix):
    """Five Newton-Schulz iterations in float64 (github.com/KellerJordan/Muon)."""
    x = matrix / (np.linalg.norm(matrix) + 1e-8)
    if is_tall := x.shape[0] > x.shape[1]:
        x = x.T
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if is_tall else x


def expected(grads):
    """The parameters of SHAPES after all gradients, one array and one matrix at a time."""
    params = {name: np.float64(array) for name, array in draw(100).items()}
    for name, (shape, as_matrices) in SHAPES.items():
        mean, square = np.zeros(shape), np.zeros(shape)
        for t, grad in enumerate((np.float64(one[name]) for one in grads), start=1):
            if as_matrices:
                mean = 0.95 * mean + 0.05 * grad
                ahead = 0.95 * mean / (1 - 0.95 ** (t + 1)) + 0.05 * grad / (1 - 0.95**t)
                matrices = [orthogonalized(one) for one in ahead.reshape(as_matrices)]
                update = 2.0 * 0.2 * np.sqrt(max(as_matrices[1:])) * np.stack(matrices)
                update = update.reshape(shape)
            else:
                mean, square = 0.9 * mean + 0.1 * grad, 0.98 * square + 0.02 * grad**2
                update = mean / (1 - 0.9**t) / (np.sqrt(square / (1 - 0.98**t)) + 1e-8)
            if not any(word in name for word in ('bias', 'norm')):
                update = update + 0.1 * params[name]
            params[name] = params[name] - RATE * update
    return params


def test_the_update_is_that_of_the_formulas():
    optimizer = optimizers.build(CONFIG, lambda _: RATE)
    params, grads = nest(draw(100)), [draw(seed) for seed in range(STEPS)]
    state = optimizer.init(params)
    for grad in grads:
        updates, state = jax.jit(optimizer.update)(nest(grad), state, params)
        params = jax.tree.map(np.add, params, updates)
    ours = tree_paths.flatten(params)
    for name, array in expected(grads).items():
        np.testing.assert_allclose(ours[name], array, rtol=2e-4, atol=2e-4, err_msg=name)


def test_the_two_parts_of_a_gated_kernel_are_two_matrices():
    for stack in (0, 1):
        path = f'encoder/layers{"" if stack else "_1"}/feedforward/input/kernel'
        found = muon.dimensions(path, 3 + stack)
        assert found == muon.MuonDimensionNumbers(stack, 2 + stack)


def test_every_kernel_of_a_layer_is_a_matrix_and_nothing_else_is():
    shapes = jax.eval_shape(synthetic.SyntheticTask().init, jax.random.key(0))
    params = tree_paths.flatten(sharding.unbox(shapes))
    kinds = {name: bool(muon.dimensions(name, leaf.ndim)) for name, leaf in params.items()}
    assert any(kinds.values())
    for name, is_matrix in kinds.items():
        assert is_matrix == ('/layers' in name and 'kernel' in name), name


def test_without_a_kernel_to_train_it_is_refused():
    optimizer = optimizers.build(CONFIG, lambda _: RATE)
    names = ('encoder/layers_0/tuning/query/kernel', 'mlm/head/transform/kernel')
    with pytest.raises(UserError, match='no kernel of a layer is trained'):
        optimizer.init(nest({name: draw(0)[name] for name in names}))

"""Several whole optimizer updates against PyTorch and NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from ml_collections import ConfigDict

from bert_jax.training import optimizers, schedules

STEPS, WARMUP, PEAK = 8, 3, 0.05
BETA1, BETA2, EPS, DECAY, CLIP = 0.9, 0.999, 1e-6, 0.01, 1.0
SHAPES = {
    'embeddings/tokens': (11, 6),
    'dense/kernel': (6, 4),
    'dense/bias': (4,),
    'layer_norm/scale': (4,),
    'layer_norm/bias': (4,),
}
DECAYED = {'embeddings/tokens', 'dense/kernel'}


def draw(seed, scale=1.0):
    rng = np.random.default_rng(seed)
    return {name: np.float32(scale * rng.normal(size=shape)) for name, shape in SHAPES.items()}


# Some gradients exceed the clip norm, some do not.
GRADIENTS = [draw(seed, scale) for seed, scale in enumerate([1, 0.01, 3, 0.05, 10, 1e-3, 1, 0.1])]


def nest(flat):
    tree = {}
    for name, array in flat.items():
        module, leaf = name.split('/')
        tree.setdefault(module, {})[leaf] = jnp.asarray(array)
    return tree


@functools.cache
def run_ours(name, clip_norm=CLIP, eps=EPS):
    """Return the parameters after STEPS updates, by flat name."""
    schedule = schedules.build(
        ConfigDict(
            dict(
                name='bert_linear',
                learning_rate=PEAK,
                warmup_steps=WARMUP,
                warmup_fraction=0.0,
                end_learning_rate=0.0,
                decay_steps=0,
            )
        ),
        STEPS,
    )
    optimizer = optimizers.build(
        ConfigDict(
            dict(
                name=name,
                beta1=BETA1,
                beta2=BETA2,
                eps=eps,
                weight_decay=DECAY,
                clip_norm=clip_norm,
                decay_exclude=('layer_norm', 'bias'),
            )
        ),
        schedule,
    )

    @jax.jit
    def step(params, state, grads):
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    params = nest(draw(100))
    state = optimizer.init(params)
    for grads in GRADIENTS:
        params, state = step(params, state, nest(grads))
    return {name: np.asarray(params[name.split('/')[0]][name.split('/')[1]]) for name in SHAPES}


def rate(step):
    """The learning rate of google-research/bert, optimization.py: warmup, then linear decay."""
    return PEAK * step / WARMUP if step < WARMUP else PEAK * (1 - step / STEPS)


def clip(grads):
    norm = np.sqrt(sum(np.sum(np.float64(grad) ** 2) for grad in grads.values()))
    return {name: grad * np.float32(CLIP / max(norm, CLIP)) for name, grad in grads.items()}


def test_bert_adam_equals_the_original_formulas_in_pytorch():
    params = {name: torch.tensor(array) for name, array in draw(100).items()}
    first = {name: torch.zeros_like(param) for name, param in params.items()}
    second = {name: torch.zeros_like(param) for name, param in params.items()}
    for step, grads in enumerate(GRADIENTS):
        for name, grad in clip(grads).items():
            grad = torch.tensor(grad)
            first[name] = BETA1 * first[name] + (1 - BETA1) * grad
            second[name] = BETA2 * second[name] + (1 - BETA2) * grad * grad
            update = first[name] / (torch.sqrt(second[name]) + EPS)
            if name in DECAYED:
                update = update + DECAY * params[name]
            params[name] = params[name] - rate(step) * update
    _assert_equal(run_ours('bert_adam'), {name: p.numpy() for name, p in params.items()})


def test_adamw_equals_pytorch():
    params = {name: torch.nn.Parameter(torch.tensor(a)) for name, a in draw(100).items()}
    optimizer = torch.optim.AdamW(
        [
            {'params': [params[name] for name in DECAYED], 'weight_decay': DECAY},
            {'params': [params[name] for name in set(SHAPES) - DECAYED], 'weight_decay': 0.0},
        ],
        betas=(BETA1, BETA2),
        eps=1e-8,
    )
    for step, grads in enumerate(GRADIENTS):
        for name, param in params.items():
            param.grad = torch.tensor(grads[name])
        for group in optimizer.param_groups:
            group['lr'] = rate(step)
        optimizer.step()
    ours = run_ours('adamw', clip_norm=0.0, eps=1e-8)
    _assert_equal(ours, {name: p.detach().numpy() for name, p in params.items()})


def test_lamb_equals_the_published_algorithm_in_numpy():
    """You et al. 2020 (arXiv 1904.00962), algorithm 2."""

    def direction_and_ratio(name, param, first, second, step):
        first, second = first / (1 - BETA1**step), second / (1 - BETA2**step)
        decay = DECAY * param if name in DECAYED else 0
        direction = first / (np.sqrt(second) + EPS) + decay
        return direction, np.linalg.norm(param) / np.linalg.norm(direction)

    _assert_equal(run_ours('lamb'), _run_lamb(direction_and_ratio))


def test_albert_lamb_equals_the_published_code_in_numpy():
    """google-research/albert, lamb_optimizer.py: excluded parameters have no trust ratio."""

    def direction_and_ratio(name, param, first, second, step):
        direction = first / (np.sqrt(second) + EPS)
        if name not in DECAYED:
            return direction, 1
        direction = direction + DECAY * param
        return direction, np.linalg.norm(param) / np.linalg.norm(direction)

    _assert_equal(run_ours('albert_lamb'), _run_lamb(direction_and_ratio))


def test_stable_adamw_equals_the_published_algorithm_in_numpy():
    """Wortsman et al. 2023 (arXiv 2304.13013), algorithm 2, whose means have bias correction."""
    params = {name: np.float64(array) for name, array in draw(100).items()}
    first = {name: 0.0 for name in params}
    second = {name: 0.0 for name in params}
    num_clipped = 0
    for step, grads in enumerate(GRADIENTS):
        t = step + 1
        beta1 = BETA1 * (1 - BETA1 ** (t - 1)) / (1 - BETA1**t)
        beta2 = BETA2 * (1 - BETA2 ** (t - 1)) / (1 - BETA2**t)
        for name, grad in clip(grads).items():
            first[name] = beta1 * first[name] + (1 - beta1) * grad
            second[name] = beta2 * second[name] + (1 - beta2) * np.float64(grad) ** 2
            rms = np.sqrt(np.mean(np.float64(grad) ** 2 / np.maximum(second[name], EPS**2)))
            num_clipped += rms > 1.2
            clipped_rate = rate(step) / max(1, rms)
            decay = DECAY if name in DECAYED else 0
            direction = first[name] / (np.sqrt(second[name]) + EPS)
            params[name] = (
                params[name] - clipped_rate * decay * params[name] - clipped_rate * direction
            )
    assert num_clipped
    _assert_equal(run_ours('stable_adamw'), params)


@pytest.mark.parametrize(
    ('a', 'b'),
    [('bert_adam', 'adamw'), ('adamw', 'lamb'), ('lamb', 'albert_lamb'), ('adamw', 'stable_adamw')],
)
def test_the_optimizers_differ(a, b):
    ours, theirs = run_ours(a), run_ours(b)
    assert not np.allclose(ours['dense/kernel'], theirs['dense/kernel'], atol=1e-3)


def _run_lamb(direction_and_ratio):
    """The parameters after all steps, in float64, one weight array at a time."""
    params = {name: np.float64(array) for name, array in draw(100).items()}
    first = {name: 0.0 for name in params}
    second = {name: 0.0 for name in params}
    for step, grads in enumerate(GRADIENTS):
        for name, grad in clip(grads).items():
            first[name] = BETA1 * first[name] + (1 - BETA1) * grad
            second[name] = BETA2 * second[name] + (1 - BETA2) * np.float64(grad) ** 2
            moments = (first[name], second[name])
            direction, ratio = direction_and_ratio(name, params[name], *moments, step + 1)
            params[name] = params[name] - rate(step) * ratio * direction
    return params


def _assert_equal(ours, theirs):
    for name in SHAPES:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-6, rtol=1e-6, err_msg=name)

"""Learning-rate schedules at every step, against their formulas."""

import math

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from bert_jax import errors
from bert_jax.training import schedules

TOTAL, WARMUP, PEAK = 50, 10, 1e-4


def settings(name, warmup=WARMUP, end=0.0, decay_steps=0, peak=PEAK, fraction=0.0):
    return ConfigDict(
        dict(
            name=name,
            learning_rate=peak,
            warmup_steps=warmup,
            warmup_fraction=fraction,
            end_learning_rate=end,
            decay_steps=decay_steps,
        )
    )


def rates(*args, steps=TOTAL + 5, **kwargs):
    schedule = jax.jit(schedules.build(settings(*args, **kwargs), TOTAL))
    return np.array([schedule(step) for step in range(steps)])


def expected_rates(decay, end=0.0):
    """Warmup, then `decay(step)`, then the end."""
    return [
        PEAK * step / WARMUP if step < WARMUP else end + (PEAK - end) * decay(min(step, TOTAL))
        for step in range(TOTAL + 5)
    ]


@pytest.mark.parametrize('end', [0.0, 2e-5])
@pytest.mark.parametrize(
    ('name', 'decay'),
    [
        ('bert_linear', lambda step: 1 - step / TOTAL),
        ('linear', lambda step: (TOTAL - step) / (TOTAL - WARMUP)),
        ('cosine', lambda step: (1 + math.cos(math.pi * (step - WARMUP) / (TOTAL - WARMUP))) / 2),
        ('sqrt', lambda step: 1 - math.sqrt((step - WARMUP) / (TOTAL - WARMUP))),
        ('constant', lambda step: 1.0),
    ],
)
def test_every_rate_equals_the_formula(name, decay, end):
    end = 0.0 if name == 'constant' else end
    np.testing.assert_allclose(
        rates(name, end=end), expected_rates(decay, end), rtol=1e-6, atol=1e-11
    )


@pytest.mark.parametrize(
    ('name', 'decay'),
    [
        ('linear', lambda step: (TOTAL - step) / 8),
        ('sqrt', lambda step: 1 - math.sqrt((step - TOTAL + 8) / 8)),
    ],
)
def test_with_decay_steps_the_rate_is_constant_before_the_decay(name, decay):
    trapezoid = expected_rates(lambda step: decay(step) if step > TOTAL - 8 else 1.0)
    np.testing.assert_allclose(rates(name, decay_steps=8), trapezoid, rtol=1e-6, atol=1e-11)


def test_the_published_schedule_drops_where_the_warmup_ends():
    published, linear = rates('bert_linear'), rates('linear')
    assert published[WARMUP] == pytest.approx(PEAK * (1 - WARMUP / TOTAL))
    assert published[WARMUP] < published[WARMUP - 1]
    assert linear[WARMUP] == pytest.approx(PEAK)


def test_the_slanted_triangle_is_that_of_the_paper():
    """Howard & Ruder 2018, section 3.2: T, cut_frac, ratio, and the rate at iteration t."""
    cut_frac, ratio = 0.1, 32
    cut = math.floor(TOTAL * cut_frac)

    def rate(t):
        p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / cut_frac - 1))
        return PEAK * (1 + p * (ratio - 1)) / ratio

    found = rates('slanted_triangular', warmup=None, fraction=cut_frac, end=1.0, steps=TOTAL + 1)
    np.testing.assert_allclose(found, [rate(t) for t in range(TOTAL + 1)], rtol=1e-6)


@pytest.mark.parametrize('name', ['bert_linear', 'linear', 'cosine', 'constant'])
def test_without_warmup_the_first_rate_is_the_peak(name):
    assert rates(name, warmup=0)[0] == pytest.approx(PEAK)


@pytest.mark.parametrize('name', ['bert_linear', 'linear', 'constant'])
def test_warmup_can_be_given_as_a_fraction_of_the_run(name):
    np.testing.assert_array_equal(rates(name, warmup=None, fraction=0.2), rates(name, warmup=10))


def test_a_million_steps_keep_their_precision():
    schedule = schedules.build(settings('bert_linear', warmup=10_000), 1_000_000)
    assert float(schedule(999_999)) == pytest.approx(PEAK * 1e-6, rel=0.05)
    assert float(schedule(500_000)) == pytest.approx(PEAK / 2, rel=1e-6)


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (dict(warmup=TOTAL), 'warmup_steps is 50'),
        (dict(end=1.0), 'end_learning_rate is 1.0'),
        (dict(decay_steps=TOTAL - WARMUP + 1), 'decay_steps is 41'),
    ],
)
def test_invalid_settings_are_errors(change, message):
    with pytest.raises(errors.UserError, match=message):
        schedules.build(settings(**({'name': 'linear'} | change)), TOTAL)

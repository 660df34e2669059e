"""Masking rate, batch size, sequence length and language shares that change over a run."""

import dataclasses

import jax
import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.models.rows import Rows
from bert_jax.objectives.masking import rate_at
from bert_jax.tasks import show_batch
from bert_jax.tasks.pretraining import builder
from bert_jax.tasks.pretraining.stage_settings import StageSettings, stage_settings
from bert_jax.training.course import TimedCourse
from bert_jax.training.task import first_batches
from configs import base
from tests.end_to_end import small
from tests.examples.test_language_mixture import drawn, mixture

FALLING = {'masking__rate': 0.5, 'masking__end_rate': 0.1, 'training__max_predictions': (8,)}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp('schedules')


def training(**values):
    config = base.get_config()
    config.training.update({'steps': (100,), 'sequence_length': (64,), 'batch_size': (32,)})
    config.training.update({'max_predictions': (10,), 'accumulation': (1,), **values})
    return config.training


def test_rates_equal_their_formulas():
    for progress in (0.0, 0.25, 0.6, 1.0):
        change = {
            'linear': 0.3 - 0.25 * progress,
            'cosine': 0.05 + 0.25 * (1 + np.cos(np.pi * progress)) / 2,
            'step': 0.3 if progress < 0.5 else 0.05,
        }
        for name, expected in change.items():
            assert rate_at(0.3, 0.05, name, progress) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize('scheme', ['tokens', 'whole_words', 'ngrams', 'spans', 'anchored_spans'])
def test_the_rate_falls_in_every_scheme_and_shapes_stay(folder, scheme):
    changes = small.ONE_STAGE | FALLING | {'masking__scheme': scheme}
    task = builder.build(small.config(folder, **changes))
    clean = Rows.of(task.stages[0].source.batch(0))
    keys_B = jax.random.split(jax.random.key(0), len(clean.input_ids_BT))
    corrupt = jax.jit(lambda keys, rows, progress: task.corruption.at(progress)(keys, rows))
    tokens = clean.attention_mask_BT.sum()
    for progress, expected in [(0.0, 0.5), (0.5, 0.3), (1.0, 0.1)]:
        rows = corrupt(keys_B, clean, progress)
        assert rows.targets.positions_BP.shape == (16, 8)
        assert rows.targets.weights_BP.sum() / tokens == pytest.approx(expected, abs=0.07)
    rows = task.corruption.at(1.0)(keys_B, clean)  # evaluation
    assert rows.targets.weights_BP.sum() / tokens == pytest.approx(0.1, abs=0.03)


def test_the_largest_rate_must_fit_into_the_predictions(folder):
    rising = {'masking__rate': 0.1, 'masking__end_rate': 0.5, 'training__max_predictions': (3,)}
    with pytest.raises(UserError, match=r'masking.rate=0.5 chooses 8 of 16 tokens'):
        builder.build(small.config(folder, **small.ONE_STAGE | rising))


def test_ramps_divide_a_run_into_stages():
    stages = stage_settings(training(batch_ramp=(0.25, 0.5), length_ramp=(0.5,)))
    found = [(one.steps, one.batch_size, one.sequence_length, one.continues) for one in stages]
    assert found == [(25, 16, 32, False), (25, 32, 32, True), (50, 32, 64, False)]
    assert [one.max_predictions for one in stages] == [5, 5, 10]


def test_without_ramps_stages_are_as_configured():
    assert stage_settings(training()) == [
        StageSettings(
            steps=100,
            sequence_length=64,
            batch_size=32,
            accumulation=1,
            max_predictions=10,
            part=0,
            continues=False,
        )
    ]


@pytest.mark.parametrize(
    ('values', 'message'),
    [
        ({'batch_ramp': (0.3,)}, 'batch_ramp and length_ramp have 0.3 and 1, which make 9.6 seq'),
        ({'length_ramp': (0.3,)}, 'length_ramp has 0.3, which makes 19.2 tokens of 64'),
    ],
)
def test_ramps_to_parts_of_a_sequence_are_refused(values, message):
    with pytest.raises(UserError, match=message):
        stage_settings(training(**values))


def test_a_stage_continues_with_the_next_examples(folder):
    """Growing batches read every example once, also in the batches that debug.batch shows."""
    ramp = {'training__steps': (8,), 'training__batch_ramp': (0.25, 0.5)}
    task = builder.build(small.config(folder, **small.ONE_STAGE | ramp))
    assert [stage.source.batch_size for stage in task.stages] == [4, 8, 16]
    assert [stage.tokens_per_step for stage in task.stages] == [64, 128, 256]
    read = []
    for step in range(1, 9):
        stage, number, before = show_batch.find(task.stages, step)
        assert before == step - 1
        read += stage.source.batch(number)['example_index'].tolist()
    # The first of 16 rows is example 32: 24 were read, and whole batches are counted.
    assert read == [*range(24), *range(32, 96)]


def test_by_time_the_first_batches_follow_from_where_the_stages_began(folder):
    ramp = {'training__steps': (8,), 'training__batch_ramp': (0.25, 0.5), 'training__minutes': 1.0}
    task = builder.build(small.config(folder, **small.ONE_STAGE | ramp))
    assert [stage.seconds for stage in task.stages] == [15, 15, 30]
    course = TimedCourse([15, 15, 30], [0, 7], 20.0, 20.0)  # as a checkpoint restores it
    assert first_batches(task.stages, course.starts) == [0, 4]
    again = [dataclasses.replace(stage, continues=False) for stage in task.stages]
    assert first_batches(again, course.starts) == [0, 0]


def test_each_language_continues_its_text_when_shares_change():
    sizes = {'gu': 7000, 'cy': 2200, 'et': 2001}
    first, second = (mixture(alpha, amounts=sizes) for alpha in (0.9, 0.1))
    seen = first.observed(1234)
    later = second.continuing(seen, 1234)
    language_N, number_N = np.concatenate([drawn(first, 0, 1234), drawn(later, 1234, 3000)], axis=1)
    for language in range(3):
        own = number_N[language_N == language]
        np.testing.assert_array_equal(own, np.arange(len(own)))
    shares = np.bincount(language_N[1234:]) / 1766
    np.testing.assert_allclose(shares, list(second.shares.values()), atol=0.02)


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({}, 'language_alphas is .0.7, 0.3., but the corpus has only the language'),
        ({'training__minutes': 1.0}, 'language_alphas needs the number of steps'),
    ],
)
def test_language_alphas_that_cannot_be_used_are_refused(folder, changes, message):
    alphas = {'data__language_alphas': (0.7, 0.3), **changes}
    with pytest.raises(UserError, match=message):
        builder.build(small.config(folder, **small.ONE_STAGE | alphas))

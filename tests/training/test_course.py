"""Runs by time: their stages, their schedule, and their end."""

import contextlib
import dataclasses
import json
from unittest import mock

import numpy as np
import pytest
from ml_collections import ConfigDict

from bert_jax.training import course, loop, schedules
from bert_jax.training.logging import Log
from bert_jax.training.run import Hooks
from bert_jax.training.task import StepCourse
from bert_jax.training.workdir import Workdir
from tests.training import toy

BUDGET = 2.0  # seconds


class TimedToy(toy.Toy):
    """A toy of two stages, which end after a third and the rest of BUDGET."""

    def __init__(self, config):
        super().__init__(config)
        (stage,) = self.stages
        self.stages = tuple(
            dataclasses.replace(stage, seconds=share * BUDGET) for share in (1 / 3, 2 / 3)
        )


class Clock:
    """A clock by which a step takes 17 to 23 ms, an evaluation 1 s."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1e-6  # as any clock, never the same twice
        return self.now

    def after_step(self, step):
        self.now += 0.017 + 0.002 * (step % 4)

    def after_evaluation(self, _):
        self.now += 1.0


def train(folder, clock, after_step=None):
    changes = dict(evaluation__every_steps=50, checkpoint__every_steps=20, logging__every_steps=3)
    made = toy.config(
        folder,
        schedule__name='linear',
        schedule__warmup_steps=None,
        schedule__warmup_fraction=0.25,
        **changes,
    )
    workdir = Workdir.of(made.workdir)
    hooks = Hooks(after_step or clock.after_step, clock.after_evaluation, clock=clock)
    with (
        mock.patch.object(Log, 'plot'),
        contextlib.closing(workdir),
    ):
        return loop.train(TimedToy(made), made, workdir, hooks)[1]


def records(folder):
    lines = (folder / 'metrics.jsonl').read_text().splitlines()
    return [one for one in map(json.loads, lines) if one['kind'] == 'train']


def test_a_run_by_time_ends_with_its_schedule(tmp_path):
    results = train(tmp_path, Clock())
    assert results['train_seconds'] == pytest.approx(BUDGET, rel=0.02)
    first, second = results['stage_steps']
    assert first + second == results['steps']
    assert first > 10
    assert second > 10
    rates = [record['learning_rate'] for record in records(tmp_path)]
    peak = max(rates)
    assert rates[0] < 0.2 * peak
    assert rates[-1] < 0.03 * peak
    assert peak == pytest.approx(results['learning_rate'], rel=0.1)


def test_an_interrupted_run_by_time_goes_on_with_the_time_that_is_left(tmp_path):
    class Killed(Exception):
        pass

    clock = Clock()

    def kill(step):
        clock.after_step(step)
        if step == 25:  # after the first checkpoint
            raise Killed

    with pytest.raises(Killed):
        train(tmp_path, clock, kill)
    clock.now += 10.0  # of the clock, not of the run
    before = len(records(tmp_path))
    results = train(tmp_path, clock)
    assert results['train_seconds'] == pytest.approx(BUDGET, rel=0.02)
    assert len(results['stage_steps']) == 2
    rates = [record['learning_rate'] for record in records(tmp_path)]
    assert rates[-1] < 0.03 * max(rates)
    assert len(rates) > before


@pytest.mark.parametrize('total_steps', [3, 4_000, 2_000_000])
def test_a_schedule_over_time_is_the_schedule_over_steps(total_steps):
    config = ConfigDict(
        dict(
            name='sqrt',
            learning_rate=1.0,
            end_learning_rate=0.1,
            warmup_steps=None,
            warmup_fraction=0.1,
            decay_steps=total_steps // 3,
        )
    )
    timed = schedules.build_timed(config, total_steps)
    for share in (0.0, 0.05, 0.1, 0.4, 0.7, 0.9, 1.0):
        start = 1 - (total_steps // 3) / total_steps
        decayed = 1 - np.sqrt(max(share - start, 0) / (1 - start))
        expected = share / 0.1 if share < 0.1 else 0.1 + 0.9 * decayed
        np.testing.assert_allclose(float(timed(np.float32(share))), expected, atol=2e-3)
    assert config.decay_steps == total_steps // 3


def test_stages_by_steps_are_where_their_numbers_say():
    by_steps = StepCourse([3, 4])
    assert by_steps.starts == [0, 3]
    assert [by_steps.is_over(0, step) for step in (2, 3)] == [False, True]
    assert [by_steps.is_over(1, step) for step in (3, 6, 7)] == [False, False, True]
    assert by_steps.begin(1, 5) == 3
    assert by_steps.position is None


def test_a_stage_by_time_has_at_least_a_step_and_remembers_where_it_began():
    timed = course.TimedCourse([1.0, 3.0], [], 0.0, 0.0)
    assert timed.begin(0, 0) == 0
    timed.pass_time(9.0)
    timed.pass_time(1.0)  # late
    assert not timed.is_over(0, 0)
    assert timed.is_over(0, 1)
    assert timed.begin(1, 5) == 5
    assert not timed.is_over(1, 5)
    assert timed.position == 1.0
    resumed = course.TimedCourse([1.0, 3.0], [0, 5], 2.0, 2.0)
    assert resumed.is_over(0, 8)
    assert resumed.begin(1, 8) == 5
    assert resumed.position == 0.5


def test_the_time_of_the_last_two_steps_is_that_of_usual_steps():
    timed = course.TimedCourse([10.0], [0], 0.0, 0.0)
    for seconds, expected in ((3.0, 3.0), (3.5, 3.5), (4.0, 5.0), (4.5, 5.5), (6.0, 7.0)):
        timed.pass_time(seconds)
        assert timed.seconds == expected

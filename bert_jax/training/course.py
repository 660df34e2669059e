"""How far a run is in its stages and in its schedule: by steps, or by the time of its steps."""

import dataclasses
import itertools
import statistics
from collections.abc import Sequence
from typing import Protocol

from bert_jax.training.task import Stage

_ENDLESS = 2**40  # number of batches of a stage that ends at a time


class Course(Protocol):
    """Where the stages of a run begin and end."""

    @property
    def starts(self) -> Sequence[int]:
        """The number of steps before each stage that has begun; by steps, before every stage."""

    @property
    def position(self) -> float | None:
        """The share of the time that has passed, in [0, 1]; None for a run by steps."""

    def begin(self, stage: int, step: int) -> int:
        """Begin or resume a stage after `step` steps; return the number of steps before it."""

    def num_batches(self, stage: int) -> int:
        """The number of batches of a stage, or more than it will need."""

    def is_in(self, stage: int, step: int) -> bool:
        """Whether a state after `step` steps is one of this stage, its end included."""

    def is_over(self, stage: int, step: int) -> bool:
        """Whether a stage has ended after `step` steps."""

    def pass_time(self, seconds: float) -> None:
        """Note that all steps before the last two took these seconds; 0 if that is not known yet.

        It is the same number on all hosts.
        """


def plan(stages: Sequence[Stage], starts: Sequence[int] = (), seconds: float = 0.0) -> Course:
    """Return the course of a run.

    Args:
        stages: its stages.
        starts: `Course.starts` of the checkpoint that it resumes from.
        seconds: the time of its steps so far.
    """
    if any(stage.seconds for stage in stages):
        budget = [stage.seconds for stage in stages]
        return TimedCourse(budget, list(starts), seconds, seconds)
    return StepCourse([stage.steps for stage in stages])


@dataclasses.dataclass(frozen=True)
class StepCourse:
    """Stages of given numbers of steps."""

    steps: Sequence[int]

    position = None

    @property
    def starts(self) -> Sequence[int]:
        return [0, *itertools.accumulate(self.steps[:-1])]

    def begin(self, stage: int, step: int) -> int:
        return self.starts[stage]

    def num_batches(self, stage: int) -> int:
        return self.steps[stage]

    def is_in(self, stage: int, step: int) -> bool:
        return step <= self.starts[stage] + self.steps[stage]

    def is_over(self, stage: int, step: int) -> bool:
        return step >= self.starts[stage] + self.steps[stage]

    def pass_time(self, seconds: float) -> None:
        """Nothing depends on the time."""


@dataclasses.dataclass
class TimedCourse:
    """Stages of given times; every stage has at least one step.

    Attributes:
        budget: seconds of each stage.
        starts: number of steps before each stage that has begun.
        seconds: time of the steps so far, that of the last two estimated.
        measured: time of the steps but the last two.
        recent: times of single steps before them.
    """

    budget: Sequence[float]
    starts: list[int]
    seconds: float
    measured: float
    recent: Sequence[float] = ()

    @property
    def position(self) -> float:
        return min(self.seconds / sum(self.budget), 1.0)

    def begin(self, stage: int, step: int) -> int:
        if stage == len(self.starts):
            self.starts.append(step)
        return self.starts[stage]

    def num_batches(self, stage: int) -> int:
        return _ENDLESS

    def is_in(self, stage: int, step: int) -> bool:
        return stage == len(self.starts) - 1

    def is_over(self, stage: int, step: int) -> bool:
        has_begun = stage < len(self.starts) and step > self.starts[stage]
        return has_begun and self.seconds >= sum(self.budget[: stage + 1])

    def pass_time(self, seconds: float) -> None:
        if seconds > self.measured:
            self.recent = [*self.recent[-4:], seconds - self.measured]
            self.measured = seconds
        self.seconds = self.measured
        if len(self.recent) > 2:  # the first step of a process may be slow
            self.seconds += 2 * statistics.median(self.recent)

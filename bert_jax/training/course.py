"""A run whose stages end after a time."""

import dataclasses
import statistics
from collections.abc import Sequence

_ENDLESS = 2**40  # number of batches of a stage that ends at a time


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

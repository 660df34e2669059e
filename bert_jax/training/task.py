"""The interface between the training loop and a task: stages, loss terms, evaluation, …"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import jax
import numpy as np

from bert_jax.averages import Terms
from bert_jax.examples.example_source import BatchSource
from bert_jax.loaded.record import RunRecord
from bert_jax.types import Batch, JsonRecord, Key, Params, Tree

if TYPE_CHECKING:  # a step needs no working directory
    from bert_jax.training.workdir import Workdir


@dataclasses.dataclass(frozen=True)
class Stage:
    """A number of steps on one source of batches, all of one shape.

    Attributes:
        source: the training batches.
        steps: number of steps, one batch each.
        accumulation: number of micro-batches that each batch is divided into.
        tokens_per_step: tokens that a step counts for the reported tokens per second.
        flops_per_step: floating-point operations of the model, forward and backward pass.
        evaluate_every: steps between evaluations; 0: `evaluation.every_steps` of the config.
        evaluate_at: further steps of the run after which to evaluate; 0 is before the first.
        seconds: time of the stage's steps, after which it ends instead of after `steps`; 0: none.
        continues: whether the stage reads the examples after those of the stage before, in batches
            that may have another number of rows. Otherwise it starts with batch 0 of its source.
    """

    source: BatchSource
    steps: int
    accumulation: int
    tokens_per_step: int
    flops_per_step: float
    evaluate_every: int = 0
    evaluate_at: frozenset[int] = frozenset()
    seconds: float = 0.0
    continues: bool = False


def first_batches(stages: Sequence[Stage], starts: Sequence[int]) -> list[int]:
    """Return the number of the first batch of each stage in its source.

    Args:
        stages: the stages of a run.
        starts: the number of steps before each stage; may have fewer values than there are stages.
    """
    numbers = [0]
    for before, stage, (start, end) in zip(
        stages, stages[1:], itertools.pairwise(starts), strict=False
    ):
        examples = (numbers[-1] + end - start) * before.source.batch_size
        numbers.append(-(-examples // stage.source.batch_size) if stage.continues else 0)
    return numbers


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


class InitialWeights(Protocol):
    """The weights that training starts from, if they do not all come from the initializer."""

    @property
    def params(self) -> Mapping[str, np.ndarray]:
        """float32 arrays by name; parameters that are missing here are initialized randomly."""

    @property
    def frozen(self) -> frozenset[str]:
        """Names in `params` that parameter-efficient tuning does not train; empty otherwise."""

    @property
    def lines(self) -> Sequence[str]:
        """Log lines: where the weights come from and how they were adapted."""

    @property
    def has_head(self) -> bool:
        """Whether `params` holds a trained head, so that evaluating before training is useful."""


class TaskMemory(Protocol):
    """Arrays that a task updates in each step in addition to the parameters."""

    def init(self) -> Tree:
        """Return the arrays before the first step, a pytree."""

    def recall(self, state: Tree) -> 'Task':
        """Return the task whose `terms` use the arrays; traced inside the step."""

    def update(
        self,
        state: Tree,
        terms: Terms,
        progress: jax.typing.ArrayLike,
        num_updates: jax.typing.ArrayLike,
    ) -> tuple[Tree, Terms]:
        """Return the arrays after a step, and the terms to report; traced inside the step.

        Args:
            state: the arrays before the step.
            terms: the terms of the task that `recall` returned, over the global batch.
            progress: as in `Task.terms`.
            num_updates: number of updates of the parameters, that of this step included. If the
                step is skipped, the arrays stay as they were.
        """


class Task(Protocol):
    """Something to train: pretraining with its objectives, or one fine-tuning problem."""

    @property
    def stages(self) -> Sequence[Stage]:
        """The stages of the run, in order."""

    @property
    def weights(self) -> Mapping[str, float]:
        """Weight of each loss term by name; terms without a weight are only logged."""

    @property
    def learning_rate(self) -> float:
        """The peak learning rate: `schedule.learning_rate`, or what the task chooses instead."""

    @property
    def start(self) -> InitialWeights:
        """The weights that training starts from."""

    @property
    def memory(self) -> TaskMemory | None:
        """What the task remembers from step to step; None: nothing."""

    @property
    def record(self) -> RunRecord:
        """What every checkpoint records, as it is before the first step."""

    def init(self, key: Key) -> Params:
        """Return the initial parameters, float32, boxed with their logical axis names."""

    def terms(
        self,
        params: Params,
        batch: Batch,
        key: Key,
        train: bool,
        progress: jax.typing.ArrayLike = 1.0,
    ) -> Terms:
        """Return the loss and metric terms of a batch or micro-batch; traced inside the step.

        Args:
            params: as `init` returns them, without boxes.
            batch: arrays of shape [rows, ...], some or all rows of a batch of a stage.
            key: key of the step. The result may depend on it and on the index of an example, but
                not on how the batch is divided into micro-batches or over devices.
            train: whether dropout is active.
            progress: share of the run that has passed before the step, a float32 scalar in [0, 1];
                1 in evaluation.
        """

    def evaluate(self, params: Params, stage: Stage) -> dict[str, float]:
        """Return the held-out metrics by name."""

    def lower_evaluation(self, params: Params, stage: Stage) -> jax.stages.Lowered | None:
        """Lower the step that `evaluate` runs, if any, before training starts.

        Args:
            params: shapes, dtypes and shardings of the parameters.
            stage: the stage; evaluation divides a batch into the same micro-batches as training.
        """

    def describe(self) -> Sequence[str]:
        """Return lines for the start of the log: what is trained, on which data, for how long."""

    def check(self, stored: RunRecord) -> None:
        """Raise UserError if a checkpoint with this record belongs to another task."""

    def readable_batch(self, stage: Stage, number: int, step: int) -> Iterator[JsonRecord]:
        """Yield the rows of a training batch as JSON-compatible, decoded text and labels.

        Args:
            stage: the stage.
            number: number of the batch in the source of the stage, from 0.
            step: number of completed steps before the batch; its random key is derived from them.
        """

    def references(self, held_out: Mapping[str, float]) -> Mapping[str, float]:
        """Return horizontal lines for the loss plot: label → value in nats.

        Args:
            held_out: the last held-out metrics.
        """

    def next_commands(self, params: Params) -> Sequence[str]:
        """Return command lines for a finished run with these parameters, to be printed."""

    def report(self, params: Params, results: JsonRecord, workdir: 'Workdir') -> None:
        """Write further files of a finished run, such as the model card.

        Args:
            params: the final or best parameters.
            results: as `loop.train` returns them.
            workdir: the folder of the run.
        """

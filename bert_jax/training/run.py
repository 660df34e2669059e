"""A run of the training loop: its plan, its start or resumption, and the state that changes."""

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import flax.linen as nn
import jax
import numpy as np
import optax

from bert_jax.errors import UserError
from bert_jax.loaded.checkpoint_files import Restored
from bert_jax.loaded.record import Base, BestEvaluation, RunRecord
from bert_jax.training import (
    devices,
    multihost,
    optimizers,
    schedules,
    sharding,
    trackers,
    transfer,
)
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.early_stopping import EarlyStopping
from bert_jax.training.interruption import RunningClock, StopSignal
from bert_jax.training.logging import Log
from bert_jax.training.schedules import Schedule
from bert_jax.training.state import TrainState, abstract_state, initial_state
from bert_jax.training.task import Course, Stage, StepCourse, Task
from bert_jax.training.transfer import Transfer, num_parameters
from bert_jax.training.workdir import Workdir
from bert_jax.types import Config, JsonRecord, Key, Params

if TYPE_CHECKING:
    from bert_jax.training.profiling import Profile

# Keys of `evaluation`: metrics from before and after a change of one of them are not comparable.
_COMPARED = ('best', 'examples')


class HeldOutEvaluation(NamedTuple):
    """An evaluation of a run in progress.

    Attributes:
        step: number of completed steps.
        metrics: held-out metrics by name.
        params: the parameters that were evaluated; the next step frees them.
    """

    step: int
    metrics: Mapping[str, float]
    params: Params


class Paused(Exception):
    """The run has reached `Hooks.pause_at`; everything is saved."""


class Hooks(NamedTuple):
    """Functions of a caller in Python. They observe a run; an exception ends it, resumable.

    Attributes:
        after_step: called with the number of completed steps after every step and its evaluation; a
            checkpoint may still be written in the background.
        after_evaluation: called with every evaluation, once its metrics are recorded.
        pause_at: step after which to evaluate, save and raise `Paused`; 0: none.
        clock: returns the time in seconds; None: a `RunningClock`.
    """

    after_step: Callable[[int], object] | None = None
    after_evaluation: Callable[[HeldOutEvaluation], object] | None = None
    pause_at: int = 0
    clock: Callable[[], float] | None = None


NO_HOOKS = Hooks()


@dataclasses.dataclass(frozen=True)
class Plan:
    """A run before its first step: everything that the config determines.

    Attributes:
        total_steps: number of steps of all stages.
        abstract: shapes, dtypes and shardings of the state.
        is_timed: whether stages end after a time. Then `schedule` is a function of the share of
            the time that has passed, and `total_steps` is only a unit of the schedule's keys.
    """

    task: Task
    config: Config
    total_steps: int
    schedule: Schedule
    transfer: Transfer
    optimizer: optax.GradientTransformationExtraArgs
    abstract: TrainState
    is_timed: bool = False

    @classmethod
    @contextlib.contextmanager
    def of(cls, task: Task, config: Config) -> Iterator['Plan']:
        """Check the config and make the plan; the mesh is set within the block.

        Raises:
            UserError: a value of the config is not valid.
        """
        mesh, rules = sharding.make_mesh(config.mesh), config.sharding_rules
        sharding.check_rules(rules)
        for stage in task.stages:
            sharding.check_batch(stage.source.batch_size, stage.accumulation, mesh)
        total_steps = sum(stage.steps for stage in task.stages)
        schedule = schedules.build(config.schedule, total_steps, task.learning_rate)
        is_timed = any(stage.seconds for stage in task.stages)
        if is_timed:
            schedule = schedules.build_timed(config.schedule, total_steps, task.learning_rate)
        trained = transfer.build(config.transfer, total_steps, task.start.frozen)
        optimizer = trained.scale_updates(optimizers.build(config.optimizer, schedule))
        with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
            extras = (config.spike_factor, config.optimizer.ema)
            abstract = abstract_state(task, optimizer, mesh, rules, trained, *extras)
            optimizers.check_decay_exclude(config.optimizer.decay_exclude, abstract.params)
            yield cls(task, config, total_steps, schedule, trained, optimizer, abstract, is_timed)

    @functools.cached_property
    def rate(self) -> Schedule:
        """The schedule as one compiled program, instead of one for each of its operations."""
        return jax.jit(self.schedule)

    def record(self, seconds: float, is_evaluated: bool) -> RunRecord:
        """Return what a checkpoint records after so many seconds of training."""
        return dataclasses.replace(
            self.task.record,
            config=self.config.to_dict(),
            train_seconds=seconds,
            is_evaluated=is_evaluated,
        )

    def results(
        self,
        state: TrainState,
        held_out: Mapping[str, float],
        step: int,
        seconds: float,
        skipped: int,
        best_step: int | None = None,
        starts: Sequence[int] = (0,),
    ) -> JsonRecord:
        """Return the results of a finished run, the content of results.json.

        Args:
            state: the state with the resulting parameters.
            held_out: their metrics.
            step: number of steps of the run.
            seconds: time spent in them.
            skipped: number of steps that changed nothing.
            best_step: the step whose parameters were kept, if not the last.
            starts: number of steps before each stage.
        """
        ends = [*(min(start, step) for start in starts), step]
        stage_steps = [end - start for start, end in itertools.pairwise(ends)]
        tokens = sum(
            number * stage.tokens_per_step
            for number, stage in zip(stage_steps, self.task.stages, strict=False)
        )
        return {
            'steps': step,
            'stage_steps': stage_steps,
            'best_step': best_step,
            'tokens': tokens,
            'parameters': num_parameters(state.params),
            'trained_parameters': self.transfer.num_trained(state.params),
            'held_out': held_out,
            'train_seconds': round(seconds, 1),
            'tokens_per_second': round(tokens / max(seconds, 1e-9)),
            'learning_rate': self.task.learning_rate,
            'skipped_steps': skipped,
            'peak_memory_bytes': devices.peak_bytes(),
            'devices': devices.describe(),
        }

    def initial_state(self, seed: int | None = None) -> TrainState:
        """Return the state before the first step, for `seed` or else the seed of the config."""
        seed = self.config.seed if seed is None else seed
        return initial_state(self.task, self.optimizer, self.abstract, seed, self.transfer)

    def restore(self, checkpoints: Checkpoints, step: int | None = None) -> Restored | None:
        """Restore a checkpoint as `Checkpoints.restore`, with initial frozen parameters."""
        restored = checkpoints.restore(self.transfer.stored(self.abstract), step)
        if restored is not None and (own := int(restored.state.step)) != restored.step:
            raise UserError(
                f'checkpoint {checkpoints.directory / str(restored.step)} holds step {own}; rename '
                f'it to {own} or remove it'
            )
        if restored is None or not self.transfer.frozen:
            return restored
        params = self.transfer.merge(restored.state.params, self.initial_state().params)
        return restored._replace(state=restored.state._replace(params=params))


@dataclasses.dataclass
class Run:
    """A run in progress: the objects it works with, and what changes from step to step.

    Attributes:
        plan: what the config determines.
        key: random key of the run; the key of each step is derived from it.
        peak_flops: FLOP/s of all devices, the reference for MFU; None: MFU is not reported.
        state: parameters, optimizer state and counters after `step` steps.
        step: number of completed steps.
        seconds: time spent in training steps, in all processes of the run so far.
        is_evaluated: whether the evaluation that is due at `step`, if any, is done.
        held_out: metrics of the last evaluation.
        hooks: functions of the caller.
        course: its stages.
        clock: returns the time in seconds.
    """

    plan: Plan
    checkpoints: Checkpoints
    early_stopping: EarlyStopping
    log: Log
    stop: StopSignal
    profile: 'Profile | None'
    key: Key
    peak_flops: float | None
    state: TrainState
    step: int
    seconds: float
    is_evaluated: bool
    course: Course
    clock: Callable[[], float]
    held_out: dict[str, float] = dataclasses.field(default_factory=dict)
    hooks: Hooks = NO_HOOKS

    @property
    def learning_rate(self) -> float:
        """The learning rate of the last step."""
        position = self.course.position
        return float(self.plan.rate(self.step - 1 if position is None else position))

    def save(self, record: RunRecord) -> None:
        """Save the log now and the state in the background (`Checkpoints.save`)."""
        self.log.flush()
        self.checkpoints.save(self.step, self.plan.transfer.stored(self.state), record.to_json())


def check(config: Config, overwrite: bool = False) -> None:
    """Check what depends on neither the data nor the model, before they are read.

    Args:
        config: the config of the run.
        overwrite: whether the run in the working directory will be deleted; it is not checked then.

    Raises:
        UserError: a value of the config is not valid, or the working directory cannot be used.
    """
    EarlyStopping(config.evaluation)
    workdir = Workdir.of(config.workdir)
    _profile(config, workdir)
    trackers.check(config.logging)
    sharding.make_mesh(config.mesh)
    sharding.check_rules(config.sharding_rules)
    optimizers.build(config.optimizer, optax.constant_schedule(0.0))
    # Other hosts may come here after host 0 has claimed the folder.
    if jax.process_index() == 0 and not overwrite:
        workdir.check(config)


@contextlib.contextmanager
def start(task: Task, config: Config, workdir: Workdir, hooks: Hooks = NO_HOOKS) -> Iterator[Run]:
    """Claim the working directory and restore the last checkpoint, or initialize."""
    early_stopping = EarlyStopping(config.evaluation)
    profile = _profile(config, workdir)
    devices.warn_of_slow_dtype(config.compute.dtype)
    flops = devices.reference(config.compute.dtype)  # before set_mesh: it uses one device
    multihost.check_same('config', lambda: json.dumps(config.to_dict()))
    multihost.check_same('tokenizer, labels or corpus', lambda: json.dumps(task.record.to_json()))
    multihost.check_same('initial weights', lambda: _digest(task.start.params))
    with Plan.of(task, config) as plan:
        changes = multihost.run_on_host0(lambda: workdir.claim(config))
        folder = workdir.path
        checkpoints = Checkpoints.open(folder / 'checkpoints', config.checkpoint.keep)
        with contextlib.closing(checkpoints):
            metadata = checkpoints.metadata()
            if metadata is not None:
                stored = RunRecord.from_json(metadata, f'{checkpoints.directory}: metadata.json')
                task.check(stored)
                _check_base(stored.base, task.record.base, folder)
            restored = plan.restore(checkpoints)
            if restored is None:
                state = plan.initial_state()
                step, seconds, is_evaluated = 0, 0.0, True
                starts: list[int] = []
            else:
                state, step = restored.state, restored.step
                path = checkpoints.directory / str(step) / 'metadata.json'
                stored = RunRecord.from_json(restored.metadata, path)
                seconds, starts = stored.train_seconds, [*stored.stage_starts]
                if step > plan.total_steps and not plan.is_timed:
                    raise UserError(
                        f'the run in {folder} has done {step:,} steps, but the config asks for '
                        f'{plan.total_steps:,}; set training.steps or training.epochs to more'
                    )
                previous = stored.section('evaluation')
                if all(previous.get(key) == config.evaluation.get(key) for key in _COMPARED):
                    early_stopping.best = stored.best or BestEvaluation()
                is_evaluated = stored.is_evaluated
            multihost.run_on_host0(lambda: workdir.write_config(config))
            # At step 0 the initial weights are evaluated, again if a run died before it was saved.
            is_recorded = is_evaluated and step > 0
            total = None if plan.is_timed else plan.total_steps
            log = Log(workdir, config.logging, step, total, is_recorded)
            for change in changes:
                log.info(f'changed since the run was started: {change}')
            with contextlib.ExitStack() as stack:
                stack.enter_context(contextlib.closing(log))
                if profile is not None:
                    stack.enter_context(contextlib.closing(profile))
                stop = stack.enter_context(StopSignal())
                run = Run(
                    plan=plan,
                    checkpoints=checkpoints,
                    early_stopping=early_stopping,
                    log=log,
                    stop=stop,
                    profile=profile,
                    key=jax.random.key(config.seed),
                    peak_flops=flops,
                    state=state,
                    step=step,
                    seconds=seconds,
                    is_evaluated=is_evaluated,
                    hooks=hooks,
                    course=plan_course(task.stages, starts, seconds),
                    clock=hooks.clock or stack.enter_context(RunningClock()),
                )
                del state, restored  # the only reference is run.state, so that it can be freed
                yield run


def _profile(config: Config, workdir: Workdir) -> 'Profile | None':
    """Return the trace of `logging.profile_steps`; None without them."""
    if not config.logging.profile_steps:
        return None
    from bert_jax.training.profiling import Profile  # an option that few runs set

    return Profile(config.logging.profile_steps, workdir)


def plan_course(
    stages: Sequence[Stage], starts: Sequence[int] = (), seconds: float = 0.0
) -> Course:
    """Return the course of a run.

    Args:
        stages: its stages.
        starts: `Course.starts` of the checkpoint that it resumes from.
        seconds: the time of its steps so far.
    """
    if any(stage.seconds for stage in stages):
        budget = [stage.seconds for stage in stages]
        from bert_jax.training.course import TimedCourse  # an option that few runs set

        return TimedCourse(budget, list(starts), seconds, seconds)
    return StepCourse([stage.steps for stage in stages])


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    """The SHA-256 of arrays and their names."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(name.encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _check_base(before: Base | None, now: Base | None, folder: object) -> None:
    """Raise UserError if a run of parameter-efficient tuning would resume on another model."""
    if before and now and before.sha256 != now.sha256:
        raise UserError(
            f'{now.path} is not the model that the run in {folder} tunes: its sha256 is '
            f'{now.sha256[:12]}…, not {before.sha256[:12]}…; restore the model or choose '
            'another --config.workdir'
        )

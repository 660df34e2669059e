"""Trains all runs of a sweep of parameter-efficient tuning at once, over one frozen model.

A step of all runs is one compiled program: products with frozen weights are one product for all
runs, and trained parameters have a leading axis of runs.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax import progress
from bert_jax.examples.finetune_batches import BatchShape
from bert_jax.tasks.finetuning import builder
from bert_jax.tasks.finetuning.task import FineTuning
from bert_jax.training import runtime
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.run import Plan
from bert_jax.training.state import TrainState
from bert_jax.training.step import Metrics, make_train_step
from bert_jax.training.workdir import Workdir
from bert_jax.types import Batch, Config, JsonRecord, Key, Params, Tree

RunKey = TypeVar('RunKey', bound=Hashable)  # names a run


def train(
    configs: Mapping[RunKey, Config], user_keys: Collection[str] = ()
) -> dict[RunKey, JsonRecord]:
    """Train and evaluate all runs, and write the folder of each run.

    Up to rounding, each run has the same results as when trained alone. After an interruption,
    unfinished runs start again from step 0.

    Args:
        configs: key → config of a run; configs differ only in seed, learning rate, rank and
            workdir.
        user_keys: keys that the user set, which must have an effect.
    """
    built = [builder.build(config, user_keys) for config in configs.values()]
    tasks = dict(zip(configs, with_common_parts(built), strict=True))
    by_rank: dict[object, dict[RunKey, FineTuning]] = {}
    for key, task in tasks.items():
        by_rank.setdefault(task.config.transfer.get('rank'), {})[key] = task
    workdirs = {key: Workdir.of(config.workdir) for key, config in configs.items()}
    with contextlib.ExitStack() as stack:
        for key, config in configs.items():
            workdir = stack.enter_context(contextlib.closing(workdirs[key]))
            workdir.claim(config)
            workdir.write_config(config)
        groups = [Group.of(stack, list(by_key.values())) for by_key in by_rank.values()]
        frozen = groups[0].initial_params()
        states, seconds = _run(groups, frozen)
        results = {}
        for group, state, by_key in zip(groups, states, by_rank.values(), strict=True):
            for number, (key, task) in enumerate(by_key.items()):
                run_state = group.state_of(state, number, frozen)
                results[key] = _finish(group, task, workdirs[key], run_state, seconds)
    return results


@dataclasses.dataclass
class Group:
    """Runs whose trained parameters have the same shapes, trained by one vmapped step.

    Attributes:
        plan: the plan of the first run.
        optimizer: see `with_rate_factor`.
        tasks: the task of each run.
    """

    plan: Plan
    optimizer: optax.GradientTransformation
    tasks: list[FineTuning]

    @classmethod
    def of(cls, stack: contextlib.ExitStack, tasks: list[FineTuning]) -> 'Group':
        """Make the group; the mesh is set until `stack` closes."""
        plan = stack.enter_context(Plan.of(tasks[0], tasks[0].config))
        return cls(plan, with_rate_factor(plan.optimizer), tasks)

    def initial_params(self) -> Params:
        """Return all initial parameters of the first run."""
        return self.plan.initial_state(self.tasks[0].config.seed).params

    def initial_state(self) -> TrainState:
        """Return the stacked initial states of all runs, without frozen parameters."""
        states = [self._initial_state(task) for task in self.tasks]
        stacked: TrainState = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
        return stacked

    def _initial_state(self, task: FineTuning) -> TrainState:
        state = self.plan.transfer.stored(self.plan.initial_state(task.config.seed))
        factor = task.learning_rate / self.plan.task.learning_rate
        scaled: TrainState = state._replace(opt_state=(state.opt_state, jnp.float32(factor)))
        return scaled

    def step(
        self, states: TrainState, frozen: Params, batch: Batch, keys: Key
    ) -> tuple[TrainState, Metrics]:
        """Train every run for one step.

        Args:
            states: stacked states, see `initial_state`.
            frozen: all parameters; only the frozen ones are used.
            batch: arrays with a leading axis of runs.
            keys: a key for each run.
        """
        accumulation, transfer = self.plan.task.stages[0].accumulation, self.plan.transfer
        settings = (self.plan.task, self.optimizer, accumulation, transfer)
        extras = (self.plan.config.spike_factor, self.plan.config.optimizer.ema)
        train_step = make_train_step(*settings, *extras, self.plan.total_steps)

        def step(state: TrainState, batch: Batch, key: Key) -> tuple[TrainState, Metrics]:
            state = state._replace(params=transfer.merge(state.params, frozen))
            state, metrics = train_step(state, batch, key)
            return transfer.stored(state), metrics

        return jax.vmap(step)(states, batch, keys)

    def batch(self, number: int) -> Batch:
        """Return the batches of all runs at a step, stacked."""
        batches = [task.stages[0].source.batch(number) for task in self.tasks]
        return {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}

    def keys(self) -> Key:
        """Return the key of each run."""
        return jnp.stack([jax.random.key(task.config.seed) for task in self.tasks])

    def state_of(self, states: TrainState, number: int, frozen: Params) -> TrainState:
        """Return the state of one run, with all parameters and without the learning-rate factor."""
        state = jax.tree.map(lambda leaf: leaf[number], states)
        params = self.plan.transfer.merge(state.params, frozen)
        alone: TrainState = state._replace(params=params, opt_state=state.opt_state[0])
        return alone


def with_rate_factor(
    optimizer: optax.GradientTransformation,
) -> optax.GradientTransformationExtraArgs:
    """Return an optimizer whose updates are scaled by a factor, the second part of its state."""

    def update(
        gradients: Tree, state: tuple[Tree, jax.Array], params: Tree = None, **extra: object
    ) -> tuple[Tree, tuple[Tree, jax.Array]]:
        updates, inner = optimizer.update(gradients, state[0], params, **extra)
        return jax.tree.map(lambda update: update * state[1], updates), (inner, state[1])

    return optax.GradientTransformationExtraArgs(
        lambda params: (optimizer.init(params), jnp.ones(())), update
    )


def with_common_parts(tasks: Sequence[FineTuning]) -> list[FineTuning]:
    """Give all runs the weights of the first run, in memory once, and batches of one shape.

    Additional rows and slots are padding.
    """
    shape = BatchShape(*np.max([task.source.shape for task in tasks], axis=0).tolist())
    stages = [
        dataclasses.replace(task.stage, source=task.source.with_shape(shape)) for task in tasks
    ]
    return [
        dataclasses.replace(task, start=tasks[0].start, stage=stage)
        for task, stage in zip(tasks, stages, strict=True)
    ]


def make_steps(groups: list[Group]) -> Callable[..., tuple[list[TrainState], list[Metrics]]]:
    """Return a jitted function that trains all runs of all groups for one step.

    The function takes the states of the groups, all parameters (see `Group.step`), the batches and
    the keys of the groups; it returns the states and metrics of the groups.
    """

    def steps(
        states: list[TrainState], frozen: Params, batches: list[Batch], keys: list[Key]
    ) -> tuple[list[TrainState], list[Metrics]]:
        results = [
            group.step(state, frozen, batch, key)
            for group, state, batch, key in zip(groups, states, batches, keys, strict=True)
        ]
        return [state for state, _ in results], [metrics for _, metrics in results]

    return jax.jit(steps, donate_argnums=0, compiler_options=runtime.compiler_options())


def _run(groups: list[Group], frozen: Params) -> tuple[list[TrainState], float]:
    """Train all steps; return the final states of the groups and the seconds per run."""
    stage, num_runs = groups[0].tasks[0].stages[0], sum(len(group.tasks) for group in groups)
    steps = make_steps(groups)
    states, keys = [group.initial_state() for group in groups], [group.keys() for group in groups]
    tokens, start = num_runs * stage.tokens_per_step, time.monotonic()
    with progress.bar(total=stage.steps, unit='step') as bar:
        for number in range(stage.steps):
            batches = [group.batch(number) for group in groups]
            states, metrics = steps(states, frozen, batches, keys)
            loss = np.mean(np.concatenate([group_metrics['loss'] for group_metrics in metrics]))
            bar.update()
            rate = (number + 1) / (time.monotonic() - start)
            bar.set_postfix_str(f'mean loss={loss:.3f}, tokens/s={rate * tokens:,.0f}', False)
    return states, (time.monotonic() - start) / num_runs


def _finish(
    group: Group, task: FineTuning, workdir: Workdir, state: TrainState, seconds: float
) -> JsonRecord:
    """Save, evaluate and report a run; return its results."""
    (stage,) = task.stages
    plan = dataclasses.replace(group.plan, task=task, config=task.config)
    held_out = task.evaluate(state.evaluated_params, stage)
    results = plan.results(state, held_out, stage.steps, seconds, int(state.skipped))
    checkpoints = Checkpoints.open(workdir.path / 'checkpoints', task.config.checkpoint.keep)
    record = plan.record(seconds, is_evaluated=True)
    checkpoints.save(stage.steps, plan.transfer.stored(state), record.to_json())
    checkpoints.wait()
    checkpoints.close()
    task.report(state.evaluated_params, results, workdir)
    workdir.write_results(results)
    return results

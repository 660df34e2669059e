"""Trains the runs of a sweep of parameter-efficient tuning at once, over one frozen model.

A step of all runs is one compiled program: products with frozen weights are one product for all
runs, and what is trained has a leading axis K of runs.
"""

import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax import files, progress
from bert_jax.data.finetune_batches import BatchShape
from bert_jax.errors import UserError, writing_to
from bert_jax.tasks.finetuning import FineTuning
from bert_jax.training import loop, memory, runtime, workdir
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.run import Plan
from bert_jax.training.state import TrainState
from bert_jax.training.step import make_train_step
from bert_jax.training.transfer import Transfer
from bert_jax.types import Config

Results = dict[str, Any]  # the contents of a results.json


def check(config: Config) -> None:
    """Raise UserError for a config whose runs cannot be trained at once."""
    if config.transfer.get('method', 'full') == 'full':
        raise UserError(
            'sweep.vmap trains several runs over one frozen model; set transfer.method, such as '
            'lora, or sweep.vmap=False'
        )
    if config.evaluation.best or config.evaluation.patience:
        raise UserError(
            'with sweep.vmap all runs have the same steps and are evaluated at their end; '
            'leave evaluation.best and evaluation.patience out'
        )
    if jax.device_count() > 1:
        raise UserError(f'sweep.vmap runs on one device, not on {jax.device_count()}')


def train(configs: Mapping[Any, Config]) -> dict[Any, Results]:
    """Train all runs, evaluate them and write the folder of each.

    The runs have the results that they have alone, up to rounding. An interrupted sweep starts its
    unfinished runs again.

    Args:
        configs: of the runs, by any key; they differ in seed, learning rate and workdir only.
    """
    tasks = {key: FineTuning(config) for key, config in configs.items()}
    first = next(iter(tasks.values()))
    for task in tasks.values():
        task.start = first.start  # the frozen model is in memory once
    use_common_shape(list(tasks.values()))
    for config in configs.values():
        workdir.claim(config.workdir, config.to_dict())
        workdir.write_config(config.workdir, config.to_dict())
    rates = [config.schedule.learning_rate for config in configs.values()]
    with Plan.of(first, first.config) as plan:
        optimizer = with_rate_factor(plan.optimizer)
        states = [
            initial_state(plan, optimizer, config, rate / rates[0])
            for config, rate in zip(configs.values(), rates, strict=True)
        ]
        state, seconds = _run(plan, optimizer, states, list(tasks.values()))
        results = {}
        for number, (key, task) in enumerate(tasks.items()):
            own = jax.tree.map(
                lambda leaf, axis, i=number: leaf if axis is None else leaf[i],
                state,
                _axes(state, plan.transfer),
                is_leaf=lambda leaf: leaf is None,
            )
            results[key] = _finish(plan, task, own, seconds)
    return results


def with_rate_factor(optimizer: Any) -> optax.GradientTransformationExtraArgs:
    """The optimizer with its learning rate times a factor, the second part of its state."""

    def update(
        gradients: Any, state: tuple[Any, jax.Array], params: Any = None, **extra: Any
    ) -> tuple[Any, tuple[Any, jax.Array]]:
        updates, inner = optimizer.update(gradients, state[0], params, **extra)
        return jax.tree.map(lambda update: update * state[1], updates), (inner, state[1])

    return optax.GradientTransformationExtraArgs(
        lambda params: (optimizer.init(params), jnp.ones(())), update
    )


def use_common_shape(tasks: list[FineTuning]) -> None:
    """Give the batches of all runs one shape; more rows or slots are padding."""
    sources: Any = [task.stages[0].source for task in tasks]
    shape = BatchShape(*np.max([source.shape for source in sources], axis=0).tolist())
    for source in sources:
        source.shape, source.batch_size = shape, shape.rows


def initial_state(plan: Plan, optimizer: Any, config: Config, factor: float) -> TrainState:
    """The state of a run before its first step."""
    state = plan.initial_state(config.seed)
    _, ones = optimizer.init(plan.transfer.select(state.params))
    return state._replace(opt_state=(state.opt_state, ones * factor))


def _axes(state: TrainState, transfer: Transfer) -> TrainState:
    """0 for arrays with an axis of runs, None for frozen parameters."""
    trained = transfer.select(state.params)
    params = jax.tree.map(lambda _, own: None if own is None else 0, state.params, trained)
    own = jax.tree.map(lambda _: 0, state._replace(params={}))
    return own._replace(params=params)


def _stack(states: list[TrainState], transfer: Transfer) -> TrainState:
    """One state of all runs, with the frozen parameters of the first."""
    trained = [transfer.stored(state) for state in states]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *trained)
    return stacked._replace(params=transfer.merge(stacked.params, states[0].params))


def make_steps(
    plan: Plan, optimizer: Any, states: list[TrainState]
) -> tuple[Callable[..., tuple[TrainState, dict[str, Any]]], TrainState]:
    """The training step of several runs, and their state.

    The step takes their state, a batch whose arrays have a leading axis of runs, and their keys;
    metrics have that axis, too.

    Args:
        plan: of any of the runs.
        optimizer: as `with_rate_factor` returns it.
        states: of each run; frozen parameters are those of the first.
    """
    accumulation, transfer = plan.task.stages[0].accumulation, plan.transfer
    settings = (plan.task, optimizer, accumulation, transfer, plan.config.spike_factor)
    state = _stack(states, transfer)
    axes = _axes(state, transfer)
    steps = jax.jit(
        jax.vmap(make_train_step(*settings), in_axes=(axes, 0, 0), out_axes=(axes, 0)),
        donate_argnums=0,
        compiler_options=runtime.compiler_options(),
    )
    return steps, state


def _run(
    plan: Plan, optimizer: Any, states: list[TrainState], tasks: list[FineTuning]
) -> tuple[TrainState, float]:
    """Train all steps; the final state of all runs and the seconds that a run took of the time."""
    stage = tasks[0].stages[0]
    steps, state = make_steps(plan, optimizer, states)
    keys = jnp.stack([jax.random.key(task.config.seed) for task in tasks])
    tokens = sum(task.stages[0].tokens_per_step for task in tasks)
    bar = progress.bar(total=stage.steps, unit='step')
    with bar:
        for number in range(stage.steps):
            batches = [task.stages[0].source.batch(number) for task in tasks]
            batch = {name: np.stack([own[name] for own in batches]) for name in batches[0]}
            state, metrics = steps(state, batch, keys)
            loss = float(metrics['loss'].mean())
            bar.update()
            rate = bar.n / max(bar.format_dict['elapsed'], 1e-9)
            bar.set_postfix_str(f'mean loss={loss:.3f}, tokens/s={rate * tokens:,.0f}', False)
    return state, bar.format_dict['elapsed'] / len(tasks)


def _finish(plan: Plan, task: FineTuning, state: TrainState, seconds: float) -> Results:
    """Save, evaluate and report a run; return its results."""
    stage, folder = task.stages[0], pathlib.Path(task.config.workdir)
    state = state._replace(opt_state=state.opt_state[0])
    tokens = stage.tokens_per_step * stage.steps
    results = {
        'steps': stage.steps,
        'best_step': None,
        'tokens': tokens,
        'parameters': sum(leaf.size for leaf in jax.tree.leaves(state.params)),
        'held_out': task.evaluate(state.params, stage),
        'train_seconds': round(seconds, 1),
        'tokens_per_second': round(tokens / max(seconds, 1e-9)),
        'skipped_steps': int(state.skipped),
        'peak_memory_bytes': memory.peak_bytes(),
        'devices': loop.devices(),
    }
    metadata = {**task.metadata, 'config': task.config.to_dict(), 'train_seconds': seconds}
    checkpoints = Checkpoints(folder / 'checkpoints', task.config.checkpoint.keep)
    checkpoints.save(stage.steps, plan.transfer.stored(state), metadata)
    checkpoints.wait()
    checkpoints.close()
    task.report(state.params, results)
    with writing_to(folder):
        files.write_json(folder / 'results.json', results)
    return results

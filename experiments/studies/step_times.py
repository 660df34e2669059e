"""The time of a training step of each config of a study, measured in turns in one process.

The steps of all stages of all configs take turns, so that the load of the machine affects all of
them alike. A step includes making its batch. The time of a stage is the median of its ratios to the
first stage of the first config in the same turn, times the median time of that stage.
"""

import itertools
import pathlib
import statistics
from collections.abc import Callable, Mapping, Sequence

import jax
from ml_collections import ConfigDict

from bert_jax import progress
from bert_jax.files import read_json, write_json
from bert_jax.tasks.pretraining import builder
from bert_jax.training import batches
from bert_jax.training.run import Plan
from bert_jax.training.state import TrainState
from bert_jax.training.step import compile_train_step, make_train_step
from bert_jax.training.task import Stage, Task
from experiments.benchmarks import report

WARM_UP, TURNS = 2, 25


def measure(configs: Mapping[str, ConfigDict], path: pathlib.Path) -> dict[str, list[float]]:
    """Measure configs that the file lacks, beside the first config, and add them to the file.

    Args:
        configs: name → config, with any number of steps.
        path: of the file, JSON.

    Returns:
        Name → seconds of a step of each stage.
    """
    seconds = read_json(path) if path.exists() else {}
    missing = [name for name in configs if name not in seconds]
    if not missing:
        return seconds
    first = next(iter(configs))
    stages = {}
    names = list(dict.fromkeys([first, *missing]))
    # All tasks are built first, so that a bad config is refused before anything is compiled.
    tasks = {name: builder.build(configs[name]) for name in names}
    for name in progress.bar(iterable=names, desc='compiling', unit=' configs'):
        for number, step in enumerate(training_steps(tasks[name])):
            stages[name, number] = step
    times = report.take_turns(stages, WARM_UP + TURNS)
    base = times[first, 0][WARM_UP:]
    unit = seconds[first][0] if first in seconds else statistics.median(base)
    for name in missing:
        seconds[name] = [
            unit * _median_ratio(times[key][WARM_UP:], base) for key in stages if key[0] == name
        ]
    write_json(path, seconds, indent=1)
    return seconds


def _median_ratio(times: Sequence[float], base: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(times, base, strict=True))


def training_steps(task: Task) -> list[Callable[[], None]]:
    """Return for each stage a function that runs its next step, compiled as for training."""
    with Plan.of(task, task.config) as plan:
        states = [plan.initial_state()]
        return [_step(plan, stage, states) for stage in task.stages]


def _step(plan: Plan, stage: Stage, states: list[TrainState]) -> Callable[[], None]:
    """Return a function that replaces the only one of `states` by the state after a step."""
    extras = (plan.config.spike_factor, plan.config.optimizer.ema, plan.total_steps)
    train_step = make_train_step(
        plan.task, plan.optimizer, stage.accumulation, plan.transfer, *extras
    )
    compiled = compile_train_step(train_step, plan.abstract, batches.abstract(stage.source))
    numbers, key = itertools.count(), jax.random.key(0)

    def run() -> None:
        batch = jax.device_put(stage.source.batch(next(numbers)))
        states[0], metrics = compiled(states[0], batch, key)
        jax.block_until_ready(metrics)

    return run

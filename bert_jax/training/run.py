"""A run of the training loop: claimed, restored or initialized, and what changes in it."""

import contextlib
import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Iterator, Mapping

import flax.linen as nn
import jax
import numpy as np
import optax

from bert_jax.training import (
    multihost,
    optimizers,
    runtime,
    schedules,
    sharding,
    transfer,
    workdir,
)
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.early_stopping import BestEvaluation, EarlyStopping
from bert_jax.training.interruption import StopSignal
from bert_jax.training.logging import Log
from bert_jax.training.schedules import Schedule
from bert_jax.training.state import TrainState, abstract_state, initial_state
from bert_jax.training.task import Task
from bert_jax.training.transfer import Transfer
from bert_jax.types import Config, Key


@dataclasses.dataclass
class Run:
    """A run in progress: the objects it works with, and what changes from step to step.

    Attributes:
      abstract: shapes, dtypes and shardings of the state.
      key: random key of the run; that of each step is derived from it.
      peak_flops: FLOP/s of all devices, the reference for MFU.
      state: parameters, optimizer state and counters after `step` steps.
      step: number of completed steps.
      seconds: time spent in training steps, in all processes of the run so far.
      is_evaluated: whether the evaluation that is due at `step`, if any, is done.
      held_out: metrics of the last evaluation.
    """

    task: Task
    config: Config
    schedule: Schedule
    transfer: Transfer
    optimizer: optax.GradientTransformationExtraArgs
    checkpoints: Checkpoints
    early_stopping: EarlyStopping
    log: Log
    stop: StopSignal
    abstract: TrainState
    key: Key
    peak_flops: float
    state: TrainState
    step: int
    seconds: float
    is_evaluated: bool
    held_out: dict[str, float] = dataclasses.field(default_factory=dict)


@contextlib.contextmanager
def start(task: Task, config: Config) -> Iterator[Run]:
    """Claim the working directory and restore the last checkpoint, or initialize."""
    mesh = sharding.make_mesh(config.mesh)
    for stage in task.stages:
        sharding.check_batch(stage.source.batch_size, stage.accumulation, mesh)
    total_steps = sum(stage.steps for stage in task.stages)
    schedule = schedules.build(config.schedule, total_steps)
    trained = transfer.build(config.transfer, total_steps)
    optimizer = trained.scale_updates(optimizers.build(config.optimizer, schedule))
    early_stopping = EarlyStopping(config.evaluation)

    settings = config.to_dict()
    multihost.check_same('config', lambda: json.dumps(settings))
    multihost.check_same('tokenizer, labels or corpus', lambda: json.dumps(dict(task.metadata)))
    multihost.check_same('initial weights', lambda: _digest(task.start.params))
    multihost.run_on_host0(lambda: workdir.claim(config.workdir, settings))
    folder = pathlib.Path(config.workdir)
    peak_flops = runtime.peak_flops(config.compute.dtype)  # before set_mesh: it uses one device
    rules = config.sharding_rules
    checkpoints = Checkpoints(folder / 'checkpoints', config.checkpoint.keep)
    with jax.set_mesh(mesh), nn.logical_axis_rules(rules), contextlib.closing(checkpoints):
        abstract = abstract_state(task, optimizer, mesh, rules, trained, config.spike_factor)
        optimizers.check_decay_exclude(config.optimizer.decay_exclude, abstract.params)
        metadata = checkpoints.metadata()
        if metadata is not None:
            task.check(metadata)
        restored = checkpoints.restore(abstract)
        if restored is None:
            state = initial_state(task, optimizer, abstract, config.seed, trained)
            step, seconds, is_evaluated = 0, 0.0, True
        else:
            state, step, seconds = restored.state, restored.step, restored.metadata['train_seconds']
            early_stopping.best = BestEvaluation(**restored.metadata.get('best', {}))
            # Earlier versions evaluated before saving.
            is_evaluated = restored.metadata.get('is_evaluated', True)
        log = Log(folder, step, total_steps, jax.process_index() == 0, is_evaluated)
        with contextlib.closing(log), StopSignal() as stop:
            run = Run(
                task=task,
                config=config,
                schedule=schedule,
                transfer=trained,
                optimizer=optimizer,
                checkpoints=checkpoints,
                early_stopping=early_stopping,
                log=log,
                stop=stop,
                abstract=abstract,
                key=jax.random.key(config.seed),
                peak_flops=peak_flops,
                state=state,
                step=step,
                seconds=seconds,
                is_evaluated=is_evaluated,
            )
            del state, restored  # the only reference is run.state, so that it can be freed
            yield run


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of arrays and their names."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(name.encode())
        digest.update(array.tobytes())
    return digest.hexdigest()

"""Checks that a stage has something to predict: without a prediction, every loss is 0 / 0."""

import jax
import numpy as np

from bert_jax.averages import Terms
from bert_jax.errors import UserError
from bert_jax.training import batches, runtime, sharding
from bert_jax.training.step import step_key
from bert_jax.training.task import Stage, Task
from bert_jax.types import Batch, Key, Params

_ROWS = 1024  # evenly spaced rows of a stage that are tried
# The program runs once or a few times: machine code that is made quickly is enough.
_OPTIONS = {'cpu': {'xla_backend_optimization_level': '0'}}


def check(
    task: Task, params: Params, stage: Stage, first_batch: int, run_key: Key, threads: int
) -> None:
    """Check that every loss of a stage counts at least one prediction.

    The counts do not depend on the encoder, which the compiler therefore leaves out. Usually one
    batch is enough.

    Args:
        task: the task.
        params: its parameters; only their shapes matter.
        stage: the stage.
        first_batch: number of its first batch in its source.
        run_key: random key of the run.
        threads: threads that read batches.

    Raises:
        UserError: no row of a sample of the stage has a prediction for one of the losses.
    """

    def count(params: Params, batch: Batch, key: Key) -> dict[str, jax.Array]:
        # In training, because some losses exist only there: the auxiliary loss of prompts.
        terms: Terms = task.terms(params, batch, key, train=True)
        return {name: terms[name].count for name in task.weights}

    replicated = sharding.replicated(jax.sharding.get_mesh())
    options = runtime.known_options(_OPTIONS.get(jax.default_backend(), {}))
    counts = jax.jit(count, out_shardings=replicated, compiler_options=options)
    missing = set(task.weights)
    number = min(stage.steps, -(-_ROWS // stage.source.batch_size))
    for step in np.linspace(0, stage.steps - 1, number).astype(int).tolist():
        batch_number = first_batch + step
        (batch,) = batches.read(stage.source, batch_number, batch_number + 1, threads)
        found = jax.device_get(counts(params, batch, step_key(run_key, step)))
        missing -= {name for name, value in found.items() if value > 0}
        if not missing:
            return
    names = ', '.join(name for name in task.weights if name in missing)
    raise UserError(
        f'no row has a prediction for {names}, in {number:,} batches of {stage.source.batch_size} '
        'rows: there would be nothing to learn; --config.debug.batch=1 shows the rows and what '
        'they predict'
    )

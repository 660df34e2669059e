"""Checks that a stage has something to predict: without a prediction, every loss is 0 / 0."""

from collections.abc import Callable

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.interpreters.partial_eval import dce_jaxpr

from bert_jax.averages import Terms
from bert_jax.errors import UserError
from bert_jax.training import batches, runtime, sharding
from bert_jax.training.step import step_key
from bert_jax.training.task import Stage, Task
from bert_jax.types import Batch, Key, Params

_ROWS = 1024  # evenly spaced rows of a stage that are tried


def check(task: Task, params: Params, stage: Stage, first_batch: int, run_key: Key) -> None:
    """Check that every loss of a stage counts at least one prediction.

    Usually one batch is enough.

    Args:
        task: the task.
        params: its parameters; only their shapes matter.
        stage: the stage.
        first_batch: number of its first batch in its source.
        run_key: random key of the run.

    Raises:
        UserError: no row of a sample of the stage has a prediction for one of the losses.
    """
    missing = set(task.weights)
    number = min(stage.steps, -(-_ROWS // stage.source.batch_size))
    count: Callable[..., list[jax.Array]] | None = None
    for step in np.linspace(0, stage.steps - 1, number).astype(int).tolist():
        inputs = (params, batches.read_one(stage.source, first_batch + step))
        count = count or _counter(task, *inputs, run_key)
        counts = jax.device_get(count(*inputs, step_key(run_key, step)))
        missing -= {name for name, value in zip(task.weights, counts, strict=True) if value > 0}
        if not missing:
            return
    names = ', '.join(name for name in task.weights if name in missing)
    raise UserError(
        f'no row has a prediction for {names}, in {number:,} batches of {stage.source.batch_size} '
        'rows: there would be nothing to learn; --config.debug.batch=1 shows the rows and what '
        'they predict'
    )


def _counter(task: Task, *inputs: Params | Batch | Key) -> Callable[..., list[jax.Array]]:
    """Compile a function of parameters, batch and key that returns the count of every loss.

    Counts do not depend on the encoder. It is left out before the program is lowered, which would
    take longer than compiling the rest.
    """

    def count(params: Params, batch: Batch, key: Key) -> list[jax.Array]:
        # In training, because some losses exist only there: the auxiliary loss of prompts.
        terms: Terms = task.terms(params, batch, key, train=True)
        return [terms[name].count for name in task.weights]

    program = jax.make_jaxpr(count)(*inputs)
    needed, is_used = dce_jaxpr(program.jaxpr, [True] * len(task.weights))
    compiled = jax.jit(
        jaxpr_as_fun(ClosedJaxpr(needed, program.consts)),
        out_shardings=sharding.replicated(jax.sharding.get_mesh()),
        compiler_options=runtime.quick_compiler_options(),
    )

    def run(*inputs: Params | Batch | Key) -> list[jax.Array]:
        leaves = zip(jax.tree.leaves(inputs), is_used, strict=True)
        counts: list[jax.Array] = compiled(*(leaf for leaf, used in leaves if used))
        return counts

    return run

"""One training step: terms → loss → gradients → update, on any mesh, with micro-batches."""

import functools
from collections.abc import Callable, Mapping
from typing import TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec

from bert_jax import averages
from bert_jax.averages import Terms
from bert_jax.training import optimizers, runtime
from bert_jax.training.batches import AbstractBatch
from bert_jax.training.state import TrainState, moving_average
from bert_jax.training.task import Task
from bert_jax.training.transfer import TRAIN_ALL, Transfer
from bert_jax.types import Batch, Key, Params, Tree

DATA = 'data'  # the mesh axis along which parameters are replicated
_NORM_RATE = 0.02  # of the running mean of the gradient norm: about the last 50 steps

Sums = TypeVar('Sums')  # a pytree of sums over examples
Metrics = dict[str, Tree]
TrainStep = Callable[..., tuple[TrainState, Metrics]]  # (state, batch, key of the run[, position])
Gradients = tuple[jax.Array, Terms, Params]  # loss, terms, gradients of the trained parameters


def step_key(run_key: Key, step: jax.typing.ArrayLike) -> Key:
    """Return the random key of the step that follows `step` completed steps."""
    return jax.random.fold_in(run_key, step)


def make_train_step(
    task: Task,
    optimizer: optax.GradientTransformationExtraArgs,
    accumulation: int = 1,
    transfer: Transfer = TRAIN_ALL,
    spike_factor: float = 0.0,
    ema: float = 0.0,
    total_steps: int = 0,
) -> TrainStep:
    """Build the function `train_step(state, batch, run_key) → (state, metrics)`, uncompiled.

    The loss is Σ weight · sum / count, with counts over the whole global batch, so dividing the
    batch into micro-batches changes nothing but the memory that a step needs.

    A step whose loss or gradient is not finite leaves parameters and moments unchanged and is
    counted as skipped. If `spike_factor` is above 0, the same holds for a step whose gradient
    norm exceeds `spike_factor` times its running mean.

    Args:
        task: provides `terms` and their `weights`.
        optimizer: as `optimizers.build` returns it.
        accumulation: number of micro-batches.
        transfer: which parameters are trained. The others have no gradient and stay bitwise the
            same.
        spike_factor: see above.
        ema: decay of the moving average of the trained parameters, if the state has one.
        total_steps: steps of the run; `terms` gets the share that has passed. 0: `terms` gets 1. In
            a run with a position in the schedule, `terms` gets that position.

    Returns:
        The step. Its optional fourth argument is the position in the schedule, a float32 scalar, if
        that is not the number of the step. Its metrics are scalars: 'loss', 'gradient_norm' (before
        clipping), 'skipped' and 'skipped_in_row' (numbers of steps), and 'terms', the sum and count
        of every term by name.
    """

    def train_step(
        state: TrainState, batch: Batch, run_key: Key, position: jax.Array | None = None
    ) -> tuple[TrainState, Metrics]:
        key = step_key(run_key, state.step)
        progress = _progress(state.step, total_steps, position)
        loss, terms, gradients = _over_data_axis(compute)(
            state.params, batch, key, progress, state.memory
        )
        norm = optimizers.global_norm(gradients)
        accept, usual_norm = _decide(loss, norm, state.usual_norm, spike_factor)
        trained = transfer.select(state.params)
        updates, opt_state = optimizer.update(
            gradients, state.opt_state, trained, accept=accept, norm=norm, position=position
        )
        trained = jax.tree.map(
            lambda new, old, unfrozen: jnp.where(accept & unfrozen, new, old),
            optax.apply_updates(trained, updates),
            trained,
            transfer.unfrozen(trained, state.step),
        )
        step, skipped, average = state.step + 1, state.skipped + ~accept, state.average
        if average is not None:
            moved = moving_average(average, trained, step - skipped, ema)
            average = jax.tree.map(lambda new, old: jnp.where(accept, new, old), moved, average)
        memory = state.memory
        if memory is not None:
            assert task.memory is not None
            updated, terms = task.memory.update(memory, terms, progress, step - skipped)
            memory = jax.tree.map(lambda new, old: jnp.where(accept, new, old), updated, memory)
        state = TrainState(
            step=step,
            skipped=skipped,
            skipped_in_row=jnp.where(accept, 0, state.skipped_in_row + 1),
            params=transfer.merge(trained, state.params),
            opt_state=opt_state,
            usual_norm=usual_norm,
            average=average,
            memory=memory,
        )
        metrics = {
            'loss': loss,
            'gradient_norm': norm,
            'skipped': state.skipped,
            'skipped_in_row': state.skipped_in_row,
            'terms': terms,
        }
        return state, metrics

    def compute(
        params: Params, batch: Batch, key: Key, progress: jax.Array, memory: Tree
    ) -> Gradients:
        current = task
        if memory is not None:
            assert task.memory is not None
            current = task.memory.recall(memory)
        compute_terms = functools.partial(current.terms, key=key, train=True, progress=progress)
        if accumulation == 1:
            return compute_rows(compute_terms, params, batch, None)
        counts = sum_over_micro_batches(
            lambda micro: _counts(compute_terms(params, micro)),
            batch,
            accumulation,
        )
        counts = _sum_over_devices(counts)
        return sum_over_micro_batches(
            lambda micro: compute_rows(compute_terms, params, micro, counts), batch, accumulation
        )

    def compute_rows(
        compute_terms: Callable[[Params, Batch], Terms],
        params: Params,
        batch: Batch,
        counts: Mapping[str, jax.Array] | None,
    ) -> Gradients:
        """`counts`: counts of the whole global batch; None if `batch` is all of it."""

        def loss_of(trained: Params) -> tuple[jax.Array, Terms]:
            merged = transfer.merge(trained, params)
            terms = compute_terms(merged, batch)
            total = _sum_over_devices(_counts(terms)) if counts is None else counts
            return averages.loss(terms, task.weights, total), terms

        trained = transfer.select(params)
        (loss, terms), gradients = jax.value_and_grad(loss_of, has_aux=True)(trained)
        return loss, terms, gradients

    return train_step


def _progress(
    step: jax.typing.ArrayLike, total_steps: int, position: jax.Array | None
) -> jax.Array:
    """Return the share of the run that has passed, a float32 scalar in [0, 1]."""
    if position is not None or not total_steps:
        return jnp.asarray(1 if position is None else position, jnp.float32)
    share: jax.Array = jnp.minimum(jnp.float32(step) / total_steps, 1)
    return share


def compile_train_step(
    train_step: TrainStep,
    state: TrainState,
    batch: Batch | AbstractBatch,
    is_timed: bool = False,
) -> jax.stages.Compiled:
    """Compile a step ahead of time; see `lower_train_step`."""
    return lower_train_step(train_step, state, batch, is_timed).compile()


def lower_train_step(
    train_step: TrainStep,
    state: TrainState,
    batch: Batch | AbstractBatch,
    is_timed: bool = False,
) -> jax.stages.Lowered:
    """Trace and lower a step, donating the state: the new state reuses its memory.

    The key of the run is an argument of the compiled step, so that runs with other seeds find the
    step in the compilation cache.

    Args:
        train_step: as `make_train_step` returns it; traced in the current mesh.
        state, batch: arrays, or their shapes, dtypes and shardings. The new state is sharded like
            `state`.
        is_timed: whether the step has an argument `position`.
    """
    shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
    jitted = jax.jit(
        train_step,
        donate_argnums=0,
        out_shardings=(shardings, None),
        compiler_options=runtime.compiler_options(),
    )
    run_key = jax.eval_shape(lambda: jax.random.key(0))
    position = [jax.ShapeDtypeStruct((), jnp.float32)] * is_timed
    return jitted.lower(state, batch, run_key, *position)


def _decide(
    loss: jax.Array, norm: jax.Array, usual_norm: jax.Array | None, spike_factor: float
) -> tuple[jax.Array, jax.Array | None]:
    """Return whether to accept a step, a bool scalar, and the updated running mean of the norm."""
    # As a reduction: XLA would compute a simpler expression again in the update of each array.
    accept = jnp.isfinite(jnp.stack([loss, norm])).all()
    if usual_norm is None:
        return accept, None
    accept &= (usual_norm == 0) | (norm <= spike_factor * usual_norm)
    mean = jnp.where(usual_norm == 0, norm, usual_norm + _NORM_RATE * (norm - usual_norm))
    return accept, jnp.where(accept, mean, usual_norm)


def _over_data_axis(compute: Callable[..., Gradients]) -> Callable[..., Gradients]:
    """Compute the gradients on each device's rows, then sum all of them over the devices once.

    Applies to meshes with only a data axis; otherwise returns `compute`. Left alone, the compiler
    would sum the gradient of the tied embedding table twice, once for each of its uses, and every
    gradient once for each micro-batch.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.shape[DATA] == 1 or mesh.size > mesh.shape[DATA]:
        return compute

    def compute_local_rows(
        params: Params, batch: Batch, key: Key, progress: jax.Array, memory: Tree
    ) -> Gradients:
        with nn.logical_axis_rules(()):  # inside shard_map, arrays have no mesh axes to constrain
            own = compute(params, batch, key, progress, memory)
            total: Gradients = jax.lax.psum(own, DATA)
            return total

    rows, replicated = PartitionSpec(DATA), PartitionSpec()
    return jax.shard_map(
        compute_local_rows,
        in_specs=(replicated, rows, replicated, replicated, replicated),
        out_specs=replicated,
        check_vma=False,
    )


def _sum_over_devices(counts: Mapping[str, jax.Array]) -> Mapping[str, jax.Array]:
    """Sum over the data axis inside `_over_data_axis`; elsewhere counts are global already."""
    manual_axes = jax.sharding.get_abstract_mesh().manual_axes
    return jax.lax.psum(counts, DATA) if DATA in manual_axes else counts


def _counts(terms: Terms) -> Mapping[str, jax.Array]:
    return {name: jax.lax.stop_gradient(term.count) for name, term in terms.items()}


def all_rows(rows: Tree) -> tuple[Tree, int]:
    """Return the rows of all devices, and how many devices compute the same from them.

    For a loss that compares the rows of a batch. Inside `_over_data_axis`, each device sees only
    its own rows, so it gathers those of the others; the gradient of gathering is exact, a sum over
    the devices. Elsewhere arrays are global already.

    Args:
        rows: arrays [rows, …].
    """
    mesh = jax.sharding.get_abstract_mesh()
    if DATA not in mesh.manual_axes:
        return rows, 1
    gather = functools.partial(jax.lax.all_gather, axis_name=DATA, tiled=True)
    return jax.tree.map(gather, rows), mesh.shape[DATA]


def map_micro_batches(function: Callable[[Tree], Tree], batch: Tree, number: int) -> Tree:
    """Return function(batch), arrays [rows, …], computed for one micro-batch at a time.

    The backward pass computes each micro-batch again instead of keeping its intermediate values.
    """
    if number == 1:
        return function(batch)
    stacked = jax.tree.map(lambda leaf: _split(leaf, number), batch)
    return jax.tree.map(_join, jax.lax.map(jax.checkpoint(function), stacked))


def _join(leaf_MBX: jax.Array) -> jax.Array:
    """[parts, B / parts, …] → [B, …], the inverse of `_split`."""
    return jnp.swapaxes(leaf_MBX, 0, 1).reshape(-1, *leaf_MBX.shape[2:])


def _split(leaf_BX: jax.Array, parts: int) -> jax.Array:
    """[B, …] → [parts, B / parts, …]; each part takes rows of every device, so none is moved."""
    leaf = leaf_BX.reshape(leaf_BX.shape[0] // parts, parts, *leaf_BX.shape[1:])
    return jnp.swapaxes(leaf, 0, 1)


def sum_over_micro_batches(function: Callable[[Batch], Sums], batch: Batch, number: int) -> Sums:
    """Return Σ function(micro-batch) over `number` micro-batches, computed one at a time."""
    if number == 1:
        return function(batch)
    stacked = jax.tree.map(lambda leaf: _split(leaf, number), batch)
    zeros = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
        jax.eval_shape(function, jax.tree.map(lambda leaf: leaf[0], stacked)),
    )

    def add(total: Tree, micro: Tree) -> tuple[Tree, None]:
        return jax.tree.map(jnp.add, total, function(micro)), None

    sums: Sums = jax.lax.scan(add, zeros, stacked)[0]
    return sums

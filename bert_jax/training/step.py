"""One training step: terms → loss → gradients → update, the same whatever the mesh and the
micro-batch.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec

from bert_jax import averages
from bert_jax.training import optimizers
from bert_jax.training.state import TrainState
from bert_jax.training.transfer import TRAIN_ALL

_NORM_RATE = 0.02  # of the running mean of the gradient norm: about the last 50 steps
DATA = 'data'  # the mesh axis over which every device has all parameters


def step_key(run_key, step) -> jax.Array:
    """The key of the step before which there are `step`."""
    return jax.random.fold_in(run_key, step)


@dataclasses.dataclass(frozen=True)
class TrainStep:
    """`step(state, batch[, run_key]) → (state, metrics)`, or its two halves.

    No gradient is used before the norm of all is known, so they can be two programs, compiled
    beside each other in .7 of the time of one. The price is memory: gradients are results of the
    first, where they share less with activations (experiments/benchmarks/training_step.md).
    """

    gradients: Callable  # (params, step, batch[, run_key]) → (loss, terms, norm, gradients)
    update: Callable  # (state, loss, terms, norm, gradients) → (state, metrics)
    trained: Callable  # params → those that have gradients

    def __call__(self, state: TrainState, batch, *run_key) -> tuple[TrainState, dict[str, Any]]:
        return self.update(state, *self.gradients(state.params, state.step, batch, *run_key))


def make_train_step(
    task, optimizer, accumulation: int, seed: int, transfer=TRAIN_ALL, spike_factor: float = 0.0
) -> TrainStep:
    """The step of a task, for `jax.jit` as a whole or for program.compile_step; `optimizer` as
    training/optimizers.py makes them.

    The loss is Σ weight · sum / count with the counts of the whole global batch, so cutting the
    batch into `accumulation` micro-batches changes memory and nothing else. A step whose loss or
    gradient is not finite leaves parameters and optimizer as they were; so does, with a
    `spike_factor` above 0, one whose gradient norm is above so many times its running mean. What
    `transfer` does not train is no part of the gradient, and moves by no bit. `run_key` stands for
    that of `seed`.
    """
    seed_key = jax.random.key(seed)

    def of_rows(params, batch, counts, key):
        def loss(trained):
            terms = task.terms(transfer.merge(trained, params), batch, key, train=True)
            wanted = _over_devices(_counts(terms)) if counts is None else counts
            return averages.loss(terms, task.weights, wanted), terms

        (value, terms), grads = jax.value_and_grad(loss, has_aux=True)(transfer.select(params))
        return value, terms, grads

    def accumulated(params, batch, key):
        micro_batches = jax.tree.map(lambda leaf: _split(leaf, accumulation), batch)
        counts = _sum_over(
            lambda micro: _counts(task.terms(params, micro, key, train=True)), micro_batches
        )
        counts = _over_devices(counts)
        return _sum_over(lambda micro: of_rows(params, micro, counts, key), micro_batches)

    def whole(params, batch, key):
        if accumulation > 1:
            return accumulated(params, batch, key)
        return of_rows(params, batch, None, key)

    def gradients(params, step, batch, run_key=seed_key):
        loss, terms, grads = _reduced_once(whole)(params, batch, step_key(run_key, step))
        return loss, terms, optimizers.global_norm(grads), grads

    def update(state: TrainState, loss, terms, norm, grads):
        # As a reduction: anything simpler would be computed again in the update of each array.
        good = jnp.isfinite(jnp.stack([loss, norm])).all()
        usual_norm = state.usual_norm
        if spike_factor:
            good &= (usual_norm == 0) | (norm <= spike_factor * usual_norm)
            mean = usual_norm + _NORM_RATE * (norm - usual_norm)
            usual_norm = jnp.where(good, jnp.where(usual_norm == 0, norm, mean), usual_norm)
        trained = transfer.select(state.params)
        updates, opt_state = optimizer.update(
            grads, state.opt_state, trained, accept=good, norm=norm
        )
        trained = jax.tree.map(
            lambda new, old, moves: jnp.where(good & moves, new, old),
            optax.apply_updates(trained, updates),
            trained,
            transfer.unfrozen(trained, state.step),
        )
        state = TrainState(
            step=state.step + 1,
            skipped=state.skipped + ~good,
            skipped_in_row=jnp.where(good, 0, state.skipped_in_row + 1),
            params=transfer.merge(trained, state.params),
            opt_state=opt_state,
            usual_norm=usual_norm,
        )
        metrics = {
            'loss': loss,
            'gradient_norm': norm,
            'skipped': state.skipped,
            'skipped_in_row': state.skipped_in_row,
            'terms': terms,
        }
        return state, metrics

    return TrainStep(gradients, update, transfer.select)


def _reduced_once(whole):
    """`whole`, on a mesh of nothing but data: each device with its own rows, and one sum over the
    devices at the end, of loss, terms and gradients together.

    Left to the compiler, the gradient of a table that is used twice (embeddings, and the decoder
    tied to them) is summed over the devices twice, and every gradient in each micro-batch.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.shape[DATA] == 1 or mesh.size > mesh.shape[DATA]:
        return whole

    def own_rows(params, batch, key):
        with nn.logical_axis_rules(()):  # inside, nothing is laid out over the mesh any more
            return jax.lax.psum(whole(params, batch, key), DATA)

    rows, same = PartitionSpec(DATA), PartitionSpec()
    return jax.shard_map(own_rows, in_specs=(same, rows, same), out_specs=same, check_vma=False)


def _over_devices(counts):
    """The sums over those devices of _reduced_once; elsewhere the counts as they are."""
    manual = jax.sharding.get_abstract_mesh().manual_axes
    return jax.lax.psum(counts, DATA) if DATA in manual else counts


def _counts(terms):
    return {name: jax.lax.stop_gradient(term.count) for name, term in terms.items()}


def _split(leaf_BX, parts: int):
    """[B, …] → [parts, B / parts, …], rows dealt in turn so that each device keeps its own rows."""
    leaf = leaf_BX.reshape(leaf_BX.shape[0] // parts, parts, *leaf_BX.shape[1:])
    return jnp.swapaxes(leaf, 0, 1)


def _sum_over(function, stacked):
    """Σ function(slice) over the leading axis, one slice at a time."""
    zeros = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
        jax.eval_shape(function, jax.tree.map(lambda leaf: leaf[0], stacked)),
    )

    def add(total, micro):
        return jax.tree.map(jnp.add, total, function(micro)), None

    return jax.lax.scan(add, zeros, stacked)[0]

"""The training state: parameters, optimizer state and counters, and their shardings."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding

from bert_jax import tree_paths
from bert_jax.models import initial_values, layer_stack
from bert_jax.training import runtime, sharding
from bert_jax.training.task import Task
from bert_jax.training.transfer import TRAIN_ALL, Transfer
from bert_jax.types import Params, Tree


class TrainState(NamedTuple):
    """The state of training, saved in every checkpoint.

    Attributes:
        step: number of batches that were read, int32 scalar.
        skipped: number of skipped steps, int32 scalar. A skipped step changes only counters.
        skipped_in_row: number of skipped steps since the last accepted one, int32 scalar.
        params: nested dictionaries of float32 arrays.
        opt_state: the state of the optimizer, for the trained parameters only.
        usual_norm: running mean of the gradient norm, float32 scalar; None if spikes are not
            skipped.
        average: exponential moving average of the trained parameters (`moving_average`); None if
            `optimizer.ema` is 0.
        memory: what the task remembers from step to step (`TaskMemory`); None: nothing.
    """

    step: jax.Array
    skipped: jax.Array
    skipped_in_row: jax.Array
    params: Params
    opt_state: Tree
    usual_norm: jax.Array | None = None
    average: Params | None = None
    memory: Tree = None

    @property
    def evaluated_params(self) -> Params:
        """The parameters to evaluate and to use: their average if there is one."""
        if self.average is None:
            return self.params
        params: Params = jax.tree.map(
            lambda param, average: param if average is None else average, self.params, self.average
        )
        return params


def moving_average(
    average: Params, params: Params, num_updates: jax.typing.ArrayLike, decay: float
) -> Params:
    """Return d · average + (1 − d) · params, with d = min(decay, (1 + n) / (10 + n)) at update n.

    The first updates count more, so that the initial parameters are soon forgotten (as
    tf.train.ExponentialMovingAverage with num_updates, and MDLM).

    Args:
        average: the average before the update.
        params: the parameters after the update.
        num_updates: n, from 1.
        decay: `optimizer.ema`.
    """
    n = jnp.asarray(num_updates, jnp.float32)
    rate = 1 - jnp.minimum(decay, (1 + n) / (10 + n))
    moved: Params = jax.tree.map(lambda old, new: old + rate * (new - old), average, params)
    return moved


def abstract_state(
    task: Task,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    rules: Any,
    transfer: Transfer = TRAIN_ALL,
    spike_factor: float = 0.0,
    ema: float = 0.0,
) -> TrainState:
    """Return the shapes, dtypes and shardings of the state without computing anything.

    Args:
        task: provides the parameters with their logical axis names.
        optimizer: provides the optimizer state.
        mesh: the devices.
        rules: see `sharding.param_shardings`.
        transfer: which parameters are trained.
        spike_factor: above 0, the state has a running mean of the gradient norm.
        ema: above 0, the state has a moving average of the trained parameters.
    """
    boxed = layer_stack.abstract(task.init)
    params = sharding.unbox(boxed)
    shardings = sharding.param_shardings(boxed, mesh, rules)
    replicated = sharding.replicated(mesh)
    counter: Tree = jax.ShapeDtypeStruct((), jnp.int32, sharding=replicated)
    norm: Tree = jax.ShapeDtypeStruct((), jnp.float32, sharding=replicated)
    trained = transfer.select(params)
    init = functools.partial(jax.eval_shape, optimizer.init)
    of_trained = transfer.select(params, shardings)
    memory = jax.eval_shape(task.memory.init) if task.memory else None
    opt_state = optax.tree.map_params(
        init,
        _place,
        init(trained),
        of_trained,  # moments are sharded like their parameters
        transform_non_params=lambda leaf: _place(leaf, replicated),
        is_leaf=_is_masked,
    )
    return TrainState(
        step=counter,
        skipped=counter,
        skipped_in_row=counter,
        params=jax.tree.map(_place, params, shardings),
        opt_state=opt_state,
        usual_norm=norm if spike_factor else None,
        average=jax.tree.map(_place, trained, of_trained) if ema else None,
        memory=jax.tree.map(lambda leaf: _place(leaf, replicated), memory),
    )


def initial_state(
    task: Task,
    optimizer: optax.GradientTransformation,
    abstract: TrainState,
    seed: int,
    transfer: Transfer = TRAIN_ALL,
) -> TrainState:
    """Return the state before the first step.

    Parameters in `task.start.params` start with these values; the others are drawn from `seed`.
    """

    def without_params(params: Params) -> TrainState:
        zero = jnp.zeros((), jnp.int32)
        usual_norm = None if abstract.usual_norm is None else jnp.zeros((), jnp.float32)
        trained = transfer.select(params)
        # Copies: a step could not donate one buffer twice.
        average = None if abstract.average is None else jax.tree.map(jnp.copy, trained)
        opt_state = optimizer.init(trained)
        memory = task.memory.init() if task.memory else None
        return TrainState(zero, zero, zero, {}, opt_state, usual_norm, average, memory)

    wanted = tree_paths.flatten(abstract.params)
    arrays = dict(task.start.params)
    arrays |= initial_values.draw(task.init, seed, wanted.keys() - arrays.keys())
    leaves = [_on_devices(arrays[name], leaf.sharding) for name, leaf in wanted.items()]
    params: Params = jax.tree.unflatten(jax.tree.structure(abstract.params), leaves)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract._replace(params={}))
    make = jax.jit(
        without_params, out_shardings=shardings, compiler_options=runtime.compiler_options()
    )
    state: TrainState = make(params)
    return state._replace(params=params)


def _on_devices(array: np.ndarray, sharding: NamedSharding) -> jax.Array:
    """Place an array that every process holds."""
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def _is_masked(leaf: object) -> bool:
    """Whether a part of the optimizer does not hold a parameter."""
    return isinstance(leaf, optax.MaskedNode)


def _place(leaf: Tree, where: NamedSharding) -> Tree:
    """Return the shape and dtype of an array with its sharding."""
    if _is_masked(leaf):
        return leaf
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where)

"""Everything a run carries from step to step, and how it is laid out over the devices."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax import tree_paths
from bert_jax.training import runtime, sharding
from bert_jax.training.transfer import TRAIN_ALL


class TrainState(NamedTuple):
    """`step` counts batches read; a skipped step changes nothing but the three counters. int32
    scalars. `usual_norm`: running mean of the gradient norm, float32; only if spikes are skipped.
    """

    step: jax.Array
    skipped: jax.Array
    skipped_in_row: jax.Array
    params: Any
    opt_state: Any
    usual_norm: Any = None


def abstract_state(
    task, optimizer, mesh, rules, transfer=TRAIN_ALL, spike_factor: float = 0.0
) -> TrainState:
    """Shapes, dtypes and shardings of the state; nothing is computed."""
    boxed = jax.eval_shape(task.init, jax.random.key(0))
    params = sharding.unbox(boxed)
    shardings = sharding.param_shardings(boxed, mesh, rules)
    counter = jax.ShapeDtypeStruct((), jnp.int32, sharding=sharding.replicated(mesh))
    norm = jax.ShapeDtypeStruct((), jnp.float32, sharding=sharding.replicated(mesh))
    trained = transfer.select(params)
    opt_shardings = sharding.optimizer_shardings(
        optimizer, trained, transfer.select(params, shardings), mesh
    )
    return TrainState(
        step=counter,
        skipped=counter,
        skipped_in_row=counter,
        params=_with_shardings(params, shardings),
        opt_state=_with_shardings(jax.eval_shape(optimizer.init, trained), opt_shardings),
        usual_norm=norm if spike_factor else None,
    )


def initial_state(
    task, optimizer, abstract: TrainState, seed: int, transfer=TRAIN_ALL
) -> TrainState:
    """Step 0, every array made where it will live: the parameters in task.start.params as given
    there, the others initialized."""

    def init(key, given):
        params = jax.tree_util.tree_map_with_path(
            lambda path, leaf: given.get(tree_paths.path_name(path), leaf),
            sharding.unbox(task.init(key)),
        )
        zero = jnp.zeros((), jnp.int32)
        usual_norm = None if abstract.usual_norm is None else jnp.zeros((), jnp.float32)
        opt_state = optimizer.init(transfer.select(params))
        return TrainState(zero, zero, zero, params, opt_state, usual_norm)

    shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract)
    where = tree_paths.flatten(shardings.params)
    given = {name: jax.device_put(a, where[name]) for name, a in task.start.params.items()}
    make = jax.jit(init, out_shardings=shardings, compiler_options=runtime.compiler_options())
    return make(jax.random.key(seed), given)


def _with_shardings(abstract, shardings):
    return jax.tree.map(
        lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
        abstract,
        shardings,
    )

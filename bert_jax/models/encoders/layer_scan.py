"""One compiled loop over stacked layers whose attention windows repeat periodically."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from bert_jax.types import Tree


def scan_layers(
    apply_layer: Callable[[jax.Array, Tree, int | None], tuple[jax.Array, Tree]],
    x_BTD: jax.Array,
    inputs_L: Tree,
    windows: Sequence[int | None],
) -> tuple[jax.Array, Tree]:
    """Run layers in sequence, in a loop whose body is the shortest period of their windows.

    Windows are static, so the body of the loop holds all layers of a period. Layers after the last
    whole period follow the loop.

    Args:
        apply_layer: maps (states, inputs of a layer, window of the layer) to (states, outputs).
        x_BTD: states before the first layer.
        inputs_L: arrays with leading axis L.
        windows: of each layer.

    Returns:
        The states after the last layer, and the outputs with leading axis L.
    """
    period, num_layers = _period(windows), len(windows)
    looped = num_layers - num_layers % period

    def run_period(x_BTD: jax.Array, inputs: Tree) -> tuple[jax.Array, Tree]:
        """Run the layers of a period, or the fewer layers after the last whole period."""
        outputs = []
        for number in range(len(jax.tree.leaves(inputs)[0])):
            layer_inputs = jax.tree.map(lambda leaf, i=number: leaf[i], inputs)
            x_BTD, output = apply_layer(x_BTD, layer_inputs, windows[number])
            outputs.append(output)
        return x_BTD, jax.tree.map(lambda *leaves: jnp.stack(leaves), *outputs)

    def by_period(leaf_L: jax.Array) -> jax.Array:
        return leaf_L[:looped].reshape(-1, period, *leaf_L.shape[1:])

    x_BTD, outputs = jax.lax.scan(run_period, x_BTD, jax.tree.map(by_period, inputs_L))
    outputs_L = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), outputs)
    if looped < num_layers:
        x_BTD, rest = run_period(x_BTD, jax.tree.map(lambda leaf_L: leaf_L[looped:], inputs_L))
        outputs_L = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), outputs_L, rest)
    return x_BTD, outputs_L


def _period(windows: Sequence[int | None]) -> int:
    """The smallest p with windows[i] == windows[i + p] for every i."""
    return next(p for p in range(1, len(windows) + 1) if windows[p:] == windows[:-p])

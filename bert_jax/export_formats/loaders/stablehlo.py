"""Runs model.stablehlo with JAX, on a CPU, a GPU or a TPU."""

import jax
from safetensors.numpy import load_file


def load(folder, signature):
    """Return a function from inputs to outputs, by name; JAX compiles it once for each shape."""
    program = jax.export.deserialize((folder / 'model.stablehlo').read_bytes())
    weights = jax.device_put(load_file(folder / 'weights.safetensors'))
    function = jax.jit(program.call)
    return lambda inputs: jax.device_get(function(weights, inputs))

"""Runs model.stablehlo with JAX, on a CPU, a GPU or a TPU."""

import jax
import numpy as np
from safetensors.numpy import load_file


def load(folder, signature):
    """Return a function from inputs to outputs, by name; JAX compiles it once for each shape."""
    program = jax.export.deserialize((folder / 'model.stablehlo').read_bytes())
    weights = jax.device_put(load_file(folder / 'weights.safetensors'))
    function = jax.jit(program.call)
    if 'shape' not in signature:
        return lambda inputs: jax.device_get(function(weights, inputs))
    rows, length = signature['shape']

    def pad(name, array):
        """The array with the rows and tokens of the program."""
        fill = signature['pad_id'] if name == 'input_ids' else 0
        padded = np.full((rows, length, *array.shape[2:]), fill, np.int32)
        padded[: len(array), : array.shape[1]] = array
        return padded

    def compute(inputs):
        number, tokens = inputs['input_ids'].shape
        if tokens > length:
            raise ValueError(f'{tokens} tokens, but the program is for {length}')
        parts = []
        for first in range(0, number, rows):
            batch = {k: pad(k, array[first : first + rows]) for k, array in inputs.items()}
            parts.append(jax.device_get(function(weights, batch)))
        outputs = {k: np.concatenate([part[k] for part in parts])[:number] for k in parts[0]}
        is_per_token = {k: 'tokens' in text for k, text in signature['outputs'].items()}
        return {k: x[:, :tokens] if is_per_token[k] else x for k, x in outputs.items()}

    return compute

"""Runs model.tflite with LiteRT: one text at a time, padded to the length of a signature."""

import numpy as np
from ai_edge_litert.interpreter import Interpreter


def load(folder, signature):
    """Return a function from inputs to outputs, by name."""
    interpreter = Interpreter(str(folder / 'model.tflite'))
    runners = {n: interpreter.get_signature_runner(f'tokens_{n}') for n in signature['lengths']}

    def pad(array, length, value):
        padded = np.full((1, length, *array.shape[2:]), value, np.int32)
        padded[:, : array.shape[1]] = array
        return padded

    def compute_one(inputs):
        tokens = inputs['input_ids'].shape[1]
        length = min(n for n in runners if n >= tokens)
        padding = {name: signature['pad_id'] * (name == 'input_ids') for name in inputs}
        outputs = runners[length](**{k: pad(x, length, padding[k]) for k, x in inputs.items()})
        is_per_token = {k: 'tokens' in text for k, text in signature['outputs'].items()}
        return {k: x[:, :tokens] if is_per_token[k] else x for k, x in outputs.items()}

    def compute(inputs):
        rows = range(len(inputs['input_ids']))
        outputs = [compute_one({k: x[n : n + 1] for k, x in inputs.items()}) for n in rows]
        return {name: np.concatenate([row[name] for row in outputs]) for name in outputs[0]}

    compute.interpreter = interpreter  # owns the memory of the runners
    return compute

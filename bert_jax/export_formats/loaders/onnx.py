"""Runs onnx/model.onnx with ONNX Runtime, on any device that the installed package supports."""

import numpy as np
import onnxruntime


def load(folder, signature):
    """Return a function from inputs to outputs, by name."""
    providers = onnxruntime.get_available_providers()
    session = onnxruntime.InferenceSession(str(folder / 'onnx/model.onnx'), providers=providers)
    names = list(signature['outputs'])

    def compute(inputs):
        feed = {name: np.asarray(array, np.int64) for name, array in inputs.items()}
        return dict(zip(names, session.run(names, feed), strict=True))

    return compute

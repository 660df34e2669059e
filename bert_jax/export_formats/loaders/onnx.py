"""Runs model.onnx with ONNX Runtime, on a CPU or on what else is installed."""

import onnxruntime


def load(folder, signature):
    """The function from inputs to outputs, by name."""
    providers = onnxruntime.get_available_providers()
    session = onnxruntime.InferenceSession(str(folder / 'model.onnx'), providers=providers)
    names = list(signature['outputs'])
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))

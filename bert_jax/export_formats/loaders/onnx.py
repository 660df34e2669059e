"""Runs model.onnx with ONNX Runtime, on any device that the installed package supports."""

import onnxruntime


def load(folder, signature):
    """Return a function from inputs to outputs, by name."""
    providers = onnxruntime.get_available_providers()
    session = onnxruntime.InferenceSession(str(folder / 'model.onnx'), providers=providers)
    names = list(signature['outputs'])
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))

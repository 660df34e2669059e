"""OpenVINO, in float32: on CPUs with bfloat16 this is not its default."""

import openvino
import shared

path, signature, samples = shared.folder()
settings = {'INFERENCE_PRECISION_HINT': 'f32'}
model = openvino.Core().compile_model(path / 'onnx/model.onnx', 'CPU', settings)
outputs = model(shared.inputs(signature, samples))
shared.answer({name: outputs[name] for name in signature['outputs']})

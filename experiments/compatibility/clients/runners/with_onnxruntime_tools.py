"""ONNX Runtime's own tools: its optimizer of transformers, then dynamic quantization."""

import sys
import tempfile

import onnxruntime
import shared
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.transformers import optimizer

path, signature, samples = shared.folder()
file = str(path / 'onnx/model.onnx')
optimized = optimizer.optimize_model(file, 'bert', num_heads=2, hidden_size=64, opt_level=1)
with tempfile.NamedTemporaryFile(suffix='.onnx') as target:
    optimized.save_model_to_file(target.name)
    session = onnxruntime.InferenceSession(target.name, providers=['CPUExecutionProvider'])
    names = list(signature['outputs'])
    outputs = session.run(names, shared.inputs(signature, samples))
with tempfile.NamedTemporaryFile(suffix='.onnx') as target:
    quantize_dynamic(file, target.name, weight_type=QuantType.QInt8)
    onnxruntime.InferenceSession(target.name, providers=['CPUExecutionProvider'])
print(optimized.get_fused_operator_statistics(), file=sys.stderr)
shared.answer(dict(zip(names, outputs, strict=True)))

"""IREE: compiles model.mlirbc for this CPU, one text and rows of padding at a time."""

import iree.compiler
import iree.runtime
import numpy as np
import shared
from safetensors.numpy import load_file

path, signature, samples = shared.folder()
program = iree.compiler.compile_file(
    str(path / 'model.mlirbc'),
    target_backends=['llvm-cpu'],
    input_type='stablehlo',
    extra_args=['--iree-llvmcpu-target-cpu=host'],
)
module = iree.runtime.load_vm_flatbuffer(program, driver='local-task')
weights = load_file(path / 'weights.safetensors')
rows, length = signature['shape']
parts = []
for row in range(len(samples['input_ids'])):
    arguments = []
    for name in signature['arguments']:
        if name in weights:
            arguments.append(weights[name])
            continue
        given = samples[name][row : row + 1]
        fill = signature['pad_id'] if name == 'input_ids' else 0
        padded = np.full((rows, length, *given.shape[2:]), fill, np.int32)
        padded[:1, : given.shape[1]] = given
        arguments.append(padded)
    results = module.main(*arguments)
    results = [np.asarray(one) for one in (results if isinstance(results, tuple) else [results])]
    parts.append(dict(zip(sorted(signature['outputs']), results, strict=True)))
tokens = samples['input_ids'].shape[1]
is_per_token = {name: 'tokens' in text for name, text in signature['outputs'].items()}
shared.answer(
    {
        name: [part[name][0, :tokens] if is_per_token[name] else part[name][0] for part in parts]
        for name in parts[0]
    }
)

#!/usr/bin/env bash
# Orbax restores a checkpoint with a flipped bit without an error, and with another value.
#
# Versions: orbax-checkpoint 0.12.8, jax 0.10.2
# Behavior: the data files have no checksum that is compared when an array is read.
#           A damaged file is restored as data.
# Output:   12 flipped bits: 12 gave other values, 0 were refused
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --target "$folder/site" orbax-checkpoint==0.12.8 jax==0.10.2 jaxlib==0.10.2
PYTHONPATH="$folder/site" JAX_PLATFORMS=cpu python3 - "$folder" <<'PY'
import pathlib
import sys

import numpy as np
import orbax.checkpoint as ocp

folder = pathlib.Path(sys.argv[1])
array = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
checkpointer = ocp.StandardCheckpointer()
checkpointer.save(folder / 'checkpoint', {'array': array})
checkpointer.wait_until_finished()
largest = max((folder / 'checkpoint').rglob('*'), key=lambda p: p.is_file() and p.stat().st_size)
original, changed, refused = largest.read_bytes(), 0, 0
for place in np.linspace(len(original) * 0.2, len(original) * 0.8, 12).astype(int):
    damaged = bytearray(original)
    damaged[place] ^= 1
    largest.write_bytes(bytes(damaged))
    try:
        restored = checkpointer.restore(folder / 'checkpoint', {'array': array})['array']
        changed += not np.array_equal(restored, array)
    except Exception as error:
        refused += 1
        print('refused:', type(error).__name__)
print(f'12 flipped bits of {largest.name}: {changed} gave other values, {refused} were refused')
assert changed > 0
PY

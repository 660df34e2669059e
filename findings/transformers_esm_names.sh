#!/usr/bin/env bash
# transformers 5 writes ESM under weight names that the model does not have, one with a literal asterisk.
#
# Version:  transformers 5.23.0, torch 2.13.0
# Behavior: save_pretrained of an EsmModel reverses the renaming of old checkpoints, pattern included. Its file has
#           encoder.layer.*.attention.self.rotary_embeddings.inv_freq, and LayerNorm.gamma and .beta instead of .weight and .bias.
#           from_pretrained reads it; a reader that goes by the model's names does not.
# Output:   ['encoder.layer.*.attention.self.rotary_embeddings.inv_freq', 'encoder.layer.0.LayerNorm.beta', 'encoder.layer.0.LayerNorm.gamma']
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --target "$folder" transformers==5.23.0 torch==2.13.0
PYTHONPATH="$folder" python3 - "$folder" <<'PY'
import pathlib
import sys

from safetensors.numpy import load_file
from transformers import EsmConfig, EsmModel

folder = pathlib.Path(sys.argv[1]) / 'model'
sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
config = EsmConfig(vocab_size=33, pad_token_id=1, position_embedding_type='rotary', **sizes)
model = EsmModel(config)
model.save_pretrained(folder)
names = load_file(folder / 'model.safetensors').keys() - model.state_dict().keys()
print(sorted(name for name in names if 'attention.Layer' not in name))
assert 'encoder.layer.*.attention.self.rotary_embeddings.inv_freq' in names
assert 'encoder.layer.0.LayerNorm.gamma' in names
PY

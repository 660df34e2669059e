#!/usr/bin/env bash
# transformers 5 writes tie_word_embeddings=true for a T5 whose embeddings are not tied.
#
# Version:  transformers 5.23.0
# Behavior: T5Config(tie_word_embeddings=False) is saved as true; whether the output is scaled stands in another key
#           (scale_decoder_outputs). A reader that trusts tie_word_embeddings drops the weights of lm_head.
# Output:   tie_word_embeddings True, scale_decoder_outputs False
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --target "$folder" transformers==5.23.0
PYTHONPATH="$folder" python3 - "$folder" <<'PY'
import json
import pathlib
import sys

from transformers import T5Config

folder = pathlib.Path(sys.argv[1]) / 'model'
T5Config(feed_forward_proj='gated-gelu', tie_word_embeddings=False).save_pretrained(folder)
config = json.loads((folder / 'config.json').read_text())
print({name: config.get(name) for name in ('tie_word_embeddings', 'scale_decoder_outputs')})
assert config['tie_word_embeddings'] is True
assert config['scale_decoder_outputs'] is False
PY

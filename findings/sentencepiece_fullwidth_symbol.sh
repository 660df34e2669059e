#!/usr/bin/env bash
# sentencepiece reads ordinary text as a user-defined symbol, if it normalizes to the symbol's name.
#
# Version:  sentencepiece 0.2.3
# Behavior: normalization (nmt_nfkc) comes before the search for symbols, so fullwidth '＜mask＞' in a text becomes the id
#           of '<mask>', which may stand for the hidden word.
# Output:   the id of '<mask>' is among the ids of 'say ＜mask＞ aloud'
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --target "$folder" sentencepiece==0.2.3
PYTHONPATH="$folder" python3 - <<'PY'
import io

import sentencepiece

model = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(['say it aloud', 'a plain line'] * 20),
    model_writer=model,
    vocab_size=40,
    hard_vocab_limit=False,
    user_defined_symbols=['<mask>'],
    minloglevel=2,
)
processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
ids = processor.encode('say \uff1cmask\uff1e aloud')
print(ids, processor.piece_to_id('<mask>'))
assert processor.piece_to_id('<mask>') in ids
PY

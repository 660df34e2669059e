#!/usr/bin/env bash
# The tokenizers library normalizes decomposed text differently from the sentencepiece library, and drops accents.
#
# Versions: tokenizers 0.23.3, sentencepiece 0.2.3, protobuf 7.36.1
# Behavior: both apply the same character map of a SentencePiece model (nmt_nfkc). For composed text (NFC) they agree. Of
#           decomposed text (NFD), sentencepiece composes Korean syllables and Vietnamese letters with two marks;
#           tokenizers leaves the parts of the syllables and loses one of the two marks.
# Output:   NFD of 'Việt': tokenizers 'Vi\u1eb9t' (without the circumflex), sentencepiece 'Vi\u1ec7t'
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --target "$folder" tokenizers==0.23.3 sentencepiece==0.2.3 protobuf==7.36.1
PYTHONPATH="$folder" python3 - "$folder" <<'PY'
import io
import unicodedata

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import normalizers

model = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(['한국어 문장', 'tiếng Việt', 'a plain line'] * 20),
    model_writer=model,
    vocab_size=40,
    hard_vocab_limit=False,
    minloglevel=2,
)
proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
precompiled = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
equal = {}
for text in ('한국어', 'Việt'):
    for form in ('NFC', 'NFD'):
        written = unicodedata.normalize(form, text)
        one, other = precompiled.normalize_str(written), processor.normalize(written).lstrip('\u2581')
        print(form, text, '| tokenizers', ascii(one), '| sentencepiece', ascii(other))
        equal[text, form] = one == other
assert all(equal[text, 'NFC'] for text in ('한국어', 'Việt'))
assert not any(equal[text, 'NFD'] for text in ('한국어', 'Việt'))
PY

#!/usr/bin/env bash
# Training WordPiece with tokenizers twice on the same text gives two vocabularies.
#
# Version:  tokenizers 0.23.3
# Behavior: the trainer numbers the characters with the prefix '##' in the order of a hash table that each process seeds
#           at random. The numbers decide ties between merges, so the pieces can differ too. With the '##' characters
#           among the special tokens all runs agree.
# Output:   several orders in eight processes; one with special tokens
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --target "$folder" tokenizers==0.23.3
cat >"$folder/train.py" <<'PY'
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

text = 'the quick brown fox jumps over the lazy dog while seven wizards mix jars of quartz'
inner = sorted({f'##{letter}' for word in text.split() for letter in word[1:]})
tokenizer = Tokenizer(models.WordPiece(unk_token='[UNK]'))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
special = ['[UNK]', *inner] if sys.argv[1] == 'listed' else ['[UNK]']
trainer = trainers.WordPieceTrainer(vocab_size=70, special_tokens=special, show_progress=False)
tokenizer.train_from_iterator([text], trainer)
vocabulary = tokenizer.get_vocab()
print(*sorted(vocabulary, key=vocabulary.get))
PY
orders() { for _ in 1 2 3 4 5 6 7 8; do PYTHONPATH="$folder" python3 "$folder/train.py" "$1"; done | sort -u | wc -l; }
unlisted=$(orders unlisted) listed=$(orders listed)
echo "vocabularies of eight processes: $unlisted; with listed '##' characters: $listed"
[ "$unlisted" -gt 1 ] && [ "$listed" -eq 1 ]

#!/usr/bin/env bash
# rouge-score gives 0 to texts that are equal, if they have no letters a to z.
#
# Version:  rouge-score 0.1.2
# Behavior: the tokenizer replaces every character but a-z and 0-9 by a space. Russian, Greek and Chinese references
#           have no tokens, so each prediction scores 0; letters with accents split words ('café' and 'caf' are equal).
# Output:   ru 0, el 0, zh 0, en 1.0; 'café' against 'caf' 1.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --target "$folder" rouge-score==0.1.2
PYTHONPATH="$folder" python3 - <<'PY'
from rouge_score.rouge_scorer import RougeScorer

texts = {
    'ru': 'Собака спит у двери',
    'el': 'Ο σκύλος κοιμάται',
    'zh': '狗睡在门边',
    'en': 'The dog sleeps by the door',
}
scorer = RougeScorer(['rougeL'])
scores = {name: scorer.score(text, text)['rougeL'].fmeasure for name, text in texts.items()}
accent = scorer.score('café', 'caf')['rougeL'].fmeasure
print(scores, accent)
assert scores == {'ru': 0.0, 'el': 0.0, 'zh': 0.0, 'en': 1.0}
assert accent == 1.0
PY

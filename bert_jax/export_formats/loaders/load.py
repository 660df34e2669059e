"""Runs the model in this folder without bert_jax: `pip install -r requirements.txt`.

On the command line, `python load.py` compares the outputs of three samples with bert_jax.
In Python, `load.run(['A text.', …])` returns the outputs; it calls `load.encode`, then
`load.compute`. signature.json describes inputs and outputs.
"""

import json
import pathlib
import unicodedata
import warnings

import numpy as np
import runtime
import tokenizers

FOLDER = pathlib.Path(__file__).resolve().parent
SIGNATURE = json.loads((FOLDER / 'signature.json').read_text(encoding='utf-8'))
tokenizer = tokenizers.Tokenizer.from_file(str(FOLDER / 'tokenizer.json'))
tokenizer.enable_padding(pad_id=SIGNATURE['pad_id'], pad_token=SIGNATURE['pad_token'])
tokenizer.enable_truncation(SIGNATURE['max_length'])
compute = runtime.load(FOLDER, SIGNATURE)


def encode(texts):
    """Inputs of `compute` for texts, or (text, text) pairs: int32 arrays [texts, tokens]."""
    prompt = SIGNATURE['prompt']
    if SIGNATURE['unicode_form']:  # the tokenizers library drops characters of other forms
        texts = [compose(t) if isinstance(t, str) else tuple(map(compose, t)) for t in texts]
    rows = tokenizer.encode_batch([prompt + t if isinstance(t, str) else tuple(t) for t in texts])
    if any(row.overflowing for row in rows):
        warnings.warn(f'texts are truncated to {SIGNATURE["max_length"]} tokens', stacklevel=2)
    inputs = {
        'input_ids': [row.ids for row in rows],
        'attention_mask': [row.attention_mask for row in rows],
        'token_type_ids': [row.type_ids for row in rows],
    }
    return {k: np.array(inputs[k], np.int32) for k in SIGNATURE['inputs'] if k in inputs}


def compose(text):
    """The text in the Unicode normalization form of the tokenizer."""
    return unicodedata.normalize(SIGNATURE['unicode_form'], text)


def run(texts):
    """Outputs by name, for texts or (text, text) pairs; token outputs are [texts, tokens, …]."""
    return compute(encode(texts))


def check():
    """Return (largest difference, largest that rounding explains, output) for each output.

    They are differences from bert_jax in the units of the output; the worst output is the last.
    """
    samples = np.load(FOLDER / 'samples.npz')
    inputs = {name: samples[name] for name in SIGNATURE['inputs']}
    for name, array in (encode(SIGNATURE['texts']) if SIGNATURE['texts'] else {}).items():
        assert np.array_equal(array, inputs[name]), f'the tokenizer gives other {name}'
    outputs, found = compute(inputs), []
    for name in SIGNATURE['outputs']:
        expected = samples[f'expected_{name}']  # NaN at padding
        known = np.isfinite(expected)
        difference = np.abs(np.asarray(outputs[name], np.float32) - expected)[known].max()
        found.append((float(difference), SIGNATURE['tolerance'][name], name))
    return sorted(found, key=lambda row: row[0] / row[1])


if __name__ == '__main__':
    *_, (difference, tolerance, name) = check()
    line = f'{difference:.2g} in {name}; rounding explains {tolerance:.2g}'
    print(f'largest difference from bert_jax: {line}')
    assert difference <= tolerance, line

"""Tokens that BART always writes, and lengths of texts, in folders as transformers reads them."""

import dataclasses
import json

import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.interop import huggingface, huggingface_export
from bert_jax.loaded.record import Usage
from tests.interop import published


def forced(folder):
    decoder = huggingface.load(folder).architecture.decoder
    return decoder.forced_first, decoder.forced_last


def test_the_folder_says_which_tokens_bart_always_writes(tmp_path):
    """generation_config.json counts, and without it config.json, as in transformers."""
    folder = published.folder(tmp_path / 'bart', 'BartForConditionalGeneration')
    path, other = folder / 'config.json', folder / 'generation_config.json'
    config = json.loads(path.read_text())
    for generation, keys, expected in (
        ({'eos_token_id': 2}, {'forced_bos_token_id': 0}, (False, False)),
        ({'forced_bos_token_id': 0, 'forced_eos_token_id': 2}, {}, (True, True)),
        (None, {}, (False, True)),  # the default of BartConfig
        (None, {'forced_eos_token_id': None}, (False, False)),
        (None, {'force_bos_token_to_be_generated': True}, (True, True)),
    ):
        other.unlink(missing_ok=True)
        if generation is not None:
            other.write_text(json.dumps(generation))
        kept = {name: value for name, value in config.items() if not name.startswith('forced')}
        path.write_text(json.dumps(kept | keys))
        assert forced(folder) == expected
    other.write_text(json.dumps({'forced_bos_token_id': 5}))
    with pytest.raises(UserError, match='forced_bos_token_id is 5, but bos_token_id is 0'):
        huggingface.load(folder)


@pytest.mark.parametrize('first', [True, False])
def test_an_export_has_the_forced_tokens_and_the_lengths_of_the_run(tmp_path, first):
    import transformers

    folder = published.folder(tmp_path / 'bart', 'BartForConditionalGeneration')
    model = huggingface.load(folder)
    decoder = dataclasses.replace(model.architecture.decoder, forced_first=first)
    problem = dict(
        target_tokens=14, min_new_tokens=0, beams=3, length_penalty=2.0, no_repeat_ngrams=0
    )
    model = dataclasses.replace(
        model,
        architecture=dataclasses.replace(model.architecture, decoder=decoder),
        usage=Usage(task='generation', config={'problem': problem, 'training': {}}),
    )
    huggingface_export.save(model, tmp_path / 'exported')
    assert forced(tmp_path / 'exported') == (first, True)
    theirs = transformers.BartForConditionalGeneration.from_pretrained(tmp_path / 'exported')
    chosen = theirs.generation_config
    assert (chosen.max_new_tokens, chosen.num_beams, chosen.length_penalty) == (14, 3, 2.0)
    tokenizer = model.tokenizer
    assert chosen.forced_bos_token_id == (tokenizer.cls_id if first else None)
    assert chosen.forced_eos_token_id == tokenizer.sep_id
    import torch

    written = theirs.generate(torch.tensor(np.array([[0, 7, 9, 2]])), min_new_tokens=14)
    assert written.shape[1] == 1 + 14

"""The commands that are shown at the end of pretraining."""

import types

import pytest

from bert_jax.tasks import next_commands

TOKENIZER = types.SimpleNamespace(vocab=['[MASK]'], mask_id=0)


@pytest.mark.parametrize('fills_masks', [True, False])
def test_examples_are_english_only_for_text_that_may_be_english(fills_masks):
    for languages in ({'en'}, {'und'}, {'de', 'en'}):
        query, tune, _ = next_commands.after_pretraining('r', TOKENIZER, fills_masks, languages)
        assert ('[MASK]' in query) == fills_masks
        assert 'sample_sentiment' in tune
    commands = next_commands.after_pretraining('r', TOKENIZER, fills_masks, {'de', 'fr'})
    assert not any('MASK' in line or 'printf' in line or 'sentiment' in line for line in commands)
    assert any('export' in line for line in commands)

"""The commands that are shown at the end of pretraining."""

import types

import pytest

from bert_jax.models.tuning.lora import Lora
from bert_jax.models.tuning.mam import Mam
from bert_jax.tasks import next_commands
from bert_jax.tasks.pretraining import Pretraining

TOKENIZER = types.SimpleNamespace(vocab=['[MASK]'], mask_id=0)


@pytest.mark.parametrize('fills_masks', [True, False])
def test_examples_are_english_only_for_text_that_may_be_english(fills_masks):
    for languages in ({'en'}, {'und'}, {'de', 'en'}):
        query, tune = next_commands.after_pretraining('r', TOKENIZER, fills_masks, languages)
        assert ('[MASK]' in query) == fills_masks
        assert 'sample_sentiment' in tune
    commands = next_commands.after_pretraining('r', TOKENIZER, fills_masks, {'de', 'fr'})
    assert not any('MASK' in line or 'printf' in line or 'sentiment' in line for line in commands)


def test_only_models_that_can_be_exported_are_exported():
    """A tuned model is exported after its added parameters are merged, if they can be."""
    commands = {
        name: next_commands.export('r', method)
        for name, method in (('full', None), ('lora', Lora()), ('mam', Mam()))
    }
    assert commands['full'] == ['python -m bert_jax.export --model=r --output=r_exported']
    assert commands['lora'] == [f'{commands["full"][0]} --merge']
    assert commands['mam'] == []


@pytest.mark.parametrize('family', ['bert', None])
def test_pretraining_prints_an_export_if_transformers_has_the_family(family):
    split = types.SimpleNamespace(languages={'de'})
    corpus = types.SimpleNamespace(tokenizer=TOKENIZER, split=lambda name: split)
    architecture = types.SimpleNamespace(tuning=None)
    task = types.SimpleNamespace(
        config=types.SimpleNamespace(workdir='r'),
        corpus=corpus,
        model=types.SimpleNamespace(heads={'mlm'}),
        start=types.SimpleNamespace(family=family, architecture=architecture),
    )
    commands = Pretraining.next_commands(task)
    assert any('bert_jax.export' in command for command in commands) == (family == 'bert')

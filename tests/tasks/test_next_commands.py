"""The commands that are shown at the end of a run."""

import types

import pytest

from bert_jax.models import architectures
from bert_jax.models.tuning.lora import Lora
from bert_jax.models.tuning.mam import Mam
from bert_jax.tasks import next_commands
from bert_jax.tasks.initialization import InitialModel

TOKENIZER = types.SimpleNamespace(vocab=['[MASK]'], mask_id=0)
RECORD = types.SimpleNamespace(is_causal=False, has_prefix=False)


@pytest.mark.parametrize(
    ('heads', 'task'),
    [
        (('mlm', 'nsp'), 'fill_mask'),
        (('clm',), 'generate'),
        (('seq2seq',), 'generate'),
        (('rtd',), 'embed'),
    ],
)
def test_examples_are_english_only_for_text_that_may_be_english(heads, task):
    for languages in ({'en'}, {'und'}, {'de', 'en'}):
        query, tune = next_commands.after_pretraining('r', TOKENIZER, heads, languages)
        assert f'--task={task} ' in query
        assert 'sample_sentiment' in tune
    commands = next_commands.after_pretraining('r', TOKENIZER, heads, {'de', 'fr'})
    assert not any('MASK' in line or 'printf' in line or 'sentiment' in line for line in commands)


def exports(family='bert', parts=('encoder', 'sequence_classification'), **changes):
    start = InitialModel(family, architectures.build(family or 'bert', **changes), {}, [])
    return next_commands.export('r', start, RECORD, parts)


def test_only_models_that_can_be_exported_are_exported():
    """A tuned model is exported after its added parameters are merged, if they can be."""
    command = 'python -m bert_jax.export --model=r --output=r_exported'
    assert exports() == [command]
    assert exports(tuning=Lora()) == [f'{command} --merge']
    assert exports(tuning=Mam()) == []
    assert exports(family=None) == []


def test_an_export_that_leaves_out_a_head_or_reads_other_states_is_not_proposed():
    assert exports(parts=('encoder', 'spans')) == []
    assert exports(parts=('encoder', 'mlm', 'nsp'))
    assert exports(parts=('encoder', 'mlm', 'nsp'), pair_pooling='first') == []
    assert exports(head_states='mix') == []
    assert exports(pooler=False) == []

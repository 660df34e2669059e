"""What programs other than transformers look for in the folders that we write."""

import json

import numpy as np
import pytest

from bert_jax.interop import huggingface, huggingface_export
from tests.inference import small_gpt2
from tests.interop import published
from tests.page import pages


def read(folder, name):
    return json.loads((folder / f'{name}.json').read_text())


@pytest.mark.parametrize(
    ('name', 'key', 'value'),
    [
        ('BertModel', 'position_embedding_type', 'absolute'),
        ('RobertaModel', 'position_embedding_type', 'absolute'),
        ('BartModel', 'normalize_before', False),
        ('MBartModel', 'normalize_before', True),
    ],
)
def test_keys_that_ctranslate2_reads_are_written(name, key, value, tmp_path):
    folder = published.folder(tmp_path / 'in', name, pad_token_id=0)
    huggingface_export.save(huggingface.load(folder), tmp_path / 'out')
    assert read(tmp_path / 'out', 'config')[key] == value
    huggingface.load(tmp_path / 'out')


@pytest.mark.parametrize('name', ['RobertaModel', 'BartModel'])
def test_the_tokens_whose_ids_are_in_the_config_are_named(name, tmp_path):
    model = huggingface.load(published.folder(tmp_path / 'in', name, pad_token_id=0))
    huggingface_export.save(model, tmp_path / 'out')
    config, names = read(tmp_path / 'out', 'config'), read(tmp_path / 'out', 'tokenizer_config')
    for role in ('bos', 'eos', 'pad'):
        assert model.tokenizer.vocab[config[f'{role}_token_id']] == names[f'{role}_token']
    again = huggingface.load(tmp_path / 'out')
    assert again.tokenizer.fingerprint == model.tokenizer.fingerprint


def test_gpt2_names_its_unknown_token_and_keeps_its_tokenizer(tmp_path):
    model = huggingface.load(small_gpt2.folder(tmp_path))
    huggingface_export.save(model, tmp_path / 'out')
    names = read(tmp_path / 'out', 'tokenizer_config')
    assert names['unk_token'] == names['bos_token'] == names['eos_token'] == '<|endoftext|>'
    assert huggingface.load(tmp_path / 'out').tokenizer.fingerprint == model.tokenizer.fingerprint


@pytest.mark.parametrize('name', ['BartForConditionalGeneration', 'T5ForConditionalGeneration'])
def test_an_encoder_decoder_writes_texts_as_long_as_the_model_allows(name, tmp_path):
    import transformers

    model = huggingface.load(published.folder(tmp_path / 'in', name, pad_token_id=0))
    huggingface_export.save(model, tmp_path / 'out')
    theirs = getattr(transformers, name).from_pretrained(tmp_path / 'out')
    assert theirs.generation_config.max_length == model.architecture.max_length != 20
    assert theirs.generation_config.eos_token_id == model.tokenizer.sep_id


def test_a_model_that_writes_nothing_has_no_generation_config(tmp_path):
    huggingface_export.save(huggingface.load(published.folder(tmp_path / 'in')), tmp_path / 'out')
    assert not (tmp_path / 'out/generation_config.json').exists()


def test_the_only_token_type_becomes_a_part_of_the_positions(tmp_path):
    """The same function, whose row of types a program may drop; keras-hub does."""
    model = pages.random_model('roberta', pages.tokenizer('bytebpe'))
    _, lines = huggingface_export.save(model, tmp_path / 'out')
    assert 'the vector of the only token type is added to the vectors of the positions' in lines
    written = huggingface.load(tmp_path / 'out')
    embeddings = written.params['encoder']['embeddings']
    assert np.ptp(model.params['encoder']['embeddings']['type']) > 0
    assert not embeddings['type'].any()
    ours, theirs = (published.ours(one)['mlm_logits'] for one in (model, written))
    np.testing.assert_allclose(theirs, ours, atol=1e-4)
    _, lines = huggingface_export.save(written, tmp_path / 'again')
    assert not any('token type' in line for line in lines)

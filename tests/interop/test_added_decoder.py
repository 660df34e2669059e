"""A decoder that starts from an encoder: its weights, its folder, and what is refused."""

import json
import shutil

import jax
import numpy as np
import pytest
from transformers import EncoderDecoderModel

from bert_jax import tokenizers, tree_paths
from bert_jax.errors import UserError
from bert_jax.interop import added_decoder, huggingface, huggingface_export
from bert_jax.loaded import loaded_model
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.models import architectures
from bert_jax.tasks import initialization
from configs import finetune

SIZES = dict(
    hidden_size=16,
    num_layers=2,
    num_heads=2,
    intermediate_size=24,
    max_position_embeddings=40,
)
TEXTS = ['the quick brown fox jumps over the lazy dog and cats like milk'] * 20


def make(name: str = 'bert', heads: tuple[str, ...] = ('mlm', 'nsp')) -> LoadedModel:
    tokenizer = tokenizers.train('wordpiece:60' if name == 'bert' else 'bytebpe:300', TEXTS)
    architecture = architectures.build(name, **SIZES, vocab_size=tokenizer.vocab_size)
    if name == 'roberta':
        architecture = architecture.changed({'positions.first': tokenizer.pad_id + 1})
    params, _ = loaded_model.fill({}, architecture, heads)
    params = jax.tree.map(lambda leaf: np.asarray(10 * leaf), params)
    return LoadedModel(name, architecture, params, tokenizer)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp('encoder') / 'bert'
    huggingface_export.save(make(), path)
    return path


@pytest.fixture(scope='module')
def pair(folder):
    path = folder.parent / 'bert2bert'
    huggingface_export.save(added_decoder.add(huggingface.load(folder)), path)
    return path


def initialize(folder, **changes):
    """The initial model of a fine-tuning run for generation."""
    config = finetune.get_config('generation')
    config.update({'init_from': str(folder), 'init_decoder': 'encoder'} | changes)
    model = initialization.load_weights(config)
    return initialization.initialize(config, model, model.tokenizer, ('seq2seq',))


def test_a_run_starts_with_the_weights_of_the_encoder_twice(folder, capsys):
    start, encoder = initialize(folder), tree_paths.flatten(huggingface.load(folder).params)
    new = {name for name in start.params if name.startswith('decoder/')}
    assert start.architecture.decoder.num_layers == 2
    for name, array in encoder.items():
        part, _, rest = name.partition('/')
        if part == 'encoder':
            np.testing.assert_array_equal(start.params[name], array)
        if part == 'encoder' and not rest.startswith('pooler'):
            np.testing.assert_array_equal(start.params[f'decoder/{rest}'], array)
            new.remove(f'decoder/{rest}')
        if part == 'mlm':
            np.testing.assert_array_equal(start.params[f'seq2seq/{rest}'], array)
    assert not new  # cross-attention is not in `params`, so the run initializes it with its seed
    line = 'decoder: weights copied from the encoder; newly initialized: cross-attention'
    assert line in start.lines
    assert 'dropped: nsp, which cannot be trained beside a decoder' in capsys.readouterr().err


def test_an_encoder_without_a_prediction_head_starts_a_decoder():
    added = added_decoder.add(make(heads=()))
    assert added.heads == ('seq2seq',)
    line = added_decoder.describe(added)
    assert line.endswith('newly initialized: cross-attention and the prediction head')


@pytest.mark.parametrize('name', ['bert', pytest.param('roberta', marks=pytest.mark.slow)])
def test_a_pair_is_a_folder_of_transformers(name, tmp_path):
    """Every array is read by transformers, and returns with the same bytes."""
    added = added_decoder.add(make(name, ('mlm',)))
    written, lines = huggingface_export.save(added, tmp_path / 'pair')
    assert lines == ['encoder/pooler is newly initialized: EncoderDecoderModel has a pooler'] * (
        name == 'roberta'
    )
    _, report = EncoderDecoderModel.from_pretrained(tmp_path / 'pair', output_loading_info=True)
    assert not any(report.values())
    config = json.loads((tmp_path / 'pair/config.json').read_text())
    assert config['decoder_start_token_id'] == added.tokenizer.cls_id
    assert config['decoder']['add_cross_attention']
    back = huggingface.load(tmp_path / 'pair')
    assert back.family == added.family == f'{name}2{name}'
    expected, found = (tree_paths.flatten(model.params) for model in (written, back))
    assert expected.keys() == found.keys()
    for key, array in expected.items():
        np.testing.assert_array_equal(found[key], array, err_msg=key)


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'decoder': {'hidden_size': 32}}, 'hidden_size is 16 in the encoder and 32'),
        ({'decoder': {'add_cross_attention': False}}, 'decoder.add_cross_attention must be true'),
        ({'decoder': {'model_type': 'gpt2'}}, "decoder.model_type is 'gpt2'"),
        ({'encoder': {'model_type': 'vit'}}, "encoder.model_type is 'vit'; known: bert, roberta"),
        ({'decoder_start_token_id': 7}, 'decoder_start_token_id is 7, but only targets'),
    ],
)
def test_other_pairs_are_refused(changes, message, pair, tmp_path):
    shutil.copytree(pair, tmp_path / 'pair')
    path = tmp_path / 'pair/config.json'
    config = json.loads(path.read_text())
    for name, change in changes.items():
        config[name] = config[name] | change if isinstance(change, dict) else change
    path.write_text(json.dumps(config))
    with pytest.raises(UserError, match=message):
        huggingface.load(tmp_path / 'pair')


@pytest.mark.parametrize(
    ('name', 'changes', 'message'),
    [
        ('bert', {'is_causal': True}, 'is causal'),
        ('bart', {}, 'has a decoder already'),
        ('deberta', {}, 'is a deberta model; supported: bert, roberta'),
    ],
)
def test_other_models_get_no_decoder(name, changes, message):
    sizes = SIZES | ({'decoder.num_layers': 1} if name == 'bart' else {})
    model = LoadedModel(name, architectures.build(name, **sizes), {}, **changes)
    with pytest.raises(UserError, match=message):
        added_decoder.add(model)

"""Defects of a Hugging Face folder are reported in one line."""

import json
import shutil

import numpy as np
import pytest

import bert_jax
from bert_jax.errors import UserError
from bert_jax.interop import huggingface, huggingface_export, loading
from bert_jax.tasks import initialization
from bert_jax.tokenizers import Tokenizer
from configs import base
from tests.interop import published
from tests.interop.published import put


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return published.folder(tmp_path_factory.mktemp('published') / 'bert')


@pytest.fixture
def copy(folder, tmp_path):
    """A copy of the folder that a test may damage."""
    return shutil.copytree(folder, tmp_path / 'bert')


def drop(name):
    return lambda weights: weights.pop(name)


def rename(name):
    return lambda weights: weights.update({f'{name}_old': weights.pop(name)})


def spoil(weights):
    weights['cls.predictions.bias'][7] = np.nan


TOKEN = 'bert.embeddings.word_embeddings.weight'
QUERY = 'bert.encoder.layer.1.attention.self.query.weight'
DECODER = 'cls.predictions.decoder.weight'
# Kind of damage → (change of the weights, part of the message).
DAMAGED = {
    'missing': (drop(QUERY), f'lacks the weights {QUERY}'),
    'missing head': (drop('cls.seq_relationship.bias'), 'nsp/head/dense/bias'),
    'renamed': (rename(QUERY), f'no place for the weights {QUERY}_old .and lacks {QUERY}'),
    'left over': (put('classifier.weight', np.ones((2, 20), 'f4')), 'classifier.weight'),
    'a layer more': (
        put('bert.encoder.layer.2.output.dense.bias', np.ones(20, 'f4')),
        'layer.2.output.dense.bias',
    ),
    'NaN': (spoil, 'cls.predictions.bias contains NaN'),
    'shape': (
        put(TOKEN, np.ones((130, 20), 'f4')),
        r'\[130, 20\], but the config implies \[131, 20\]',
    ),
    'integers': (put(QUERY, np.ones((20, 20), np.int8)), 'is int8'),
    'positions': (
        put('bert.embeddings.position_ids', np.ones((1, 19), int)),
        'position_ids',
    ),
    'untied': (put(DECODER, np.ones((131, 20), 'f4')), f'{DECODER} differs from {TOKEN}'),
}


@pytest.mark.parametrize('name', DAMAGED)
def test_a_damaged_weight_is_named(name, copy):
    change, word = DAMAGED[name]
    published.edit(copy, change)
    with pytest.raises(UserError, match=word) as caught:
        huggingface.load(copy)
    assert '\n' not in str(caught.value)


def test_truncated_and_missing_weight_files_are_reported(copy):
    file = copy / 'model.safetensors'
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(UserError, match=r'model.safetensors is damaged'):
        huggingface.load(copy)
    file.unlink()
    with pytest.raises(UserError, match='has no weights'):
        huggingface.load(copy)


# Kind of change → (changes to config.json, part of the message).
CONFIGS = {
    'model_type': (
        {'model_type': 'llama'},
        "'llama' is not supported; the nearest that is: modernbert-decoder, .*known: .*bert",
    ),
    'activation': ({'hidden_act': 'quick_gelu'}, "hidden_act is 'quick_gelu'; known: gelu"),
    'positions': ({'position_embedding_type': 'relative_key'}, "'relative_key'; only 'absolute'"),
    'encoder with decoder': ({'is_encoder_decoder': True}, 'is_encoder_decoder is True; only'),
    'untied': ({'tie_word_embeddings': False}, 'lacks the weights cls.predictions.decoder.weight'),
    'code': ({'auto_map': {'AutoModel': 'x.X'}}, 'auto_map is .*; only None is supported'),
    'class': ({'model_type': None, 'architectures': ['X']}, 'no model_type, and architectures'),
    'number of labels': ({'num_labels': -1}, 'num_labels is -1'),
    'heads': ({'num_attention_heads': 3}, 'not divisible by num_heads 3'),
    'layers': ({'num_hidden_layers': 3}, 'lacks the weights bert.encoder.layer.2'),
    'no number': ({'hidden_size': '20'}, "hidden_size is '20'"),
    'labels': ({'id2label': {'0': 'a', '2': 'b'}}, 'id2label has the keys'),
}


@pytest.mark.parametrize('name', CONFIGS)
def test_an_unsupported_config_is_refused(name, copy):
    change, word = CONFIGS[name]
    config = json.loads((copy / 'config.json').read_text()) | change
    (copy / 'config.json').write_text(json.dumps(config))
    with pytest.raises(UserError, match=word):
        huggingface.load(copy)


def test_an_invalid_or_missing_config_is_reported(copy):
    (copy / 'config.json').write_text('{')
    with pytest.raises(UserError, match='config.json is not valid JSON'):
        huggingface.load(copy)
    (copy / 'config.json').unlink()
    with pytest.raises(UserError, match='config.json: No such file'):
        huggingface.load(copy)


def test_a_vocabulary_larger_than_the_embedding_is_refused(copy):
    with open(copy / 'vocab.txt', 'a') as file:
        file.write('surplus\n')
    with pytest.raises(UserError, match='132 tokens, but the model has embeddings for 131'):
        huggingface.load(copy)


def test_a_vocabulary_much_smaller_than_the_embedding_is_refused(tmp_path):
    """Embeddings may be padded to a multiple of 1024."""
    path = published.folder(tmp_path, 'BertModel', vocab_size=1154)
    assert huggingface.load(path).tokenizer.vocab_size == 131
    path = published.folder(tmp_path / 'larger', 'BertModel', vocab_size=1155)
    with pytest.raises(UserError, match='131 tokens, but the model has embeddings for 1155'):
        huggingface.load(path)


def test_a_target_that_starts_with_another_token_is_refused(tmp_path):
    path = published.folder(tmp_path, 'BartModel', decoder_start_token_id=2)
    with pytest.raises(UserError, match=r'is 2, but only targets that start with \[SEP\] \(3\)'):
        huggingface.load(path)


def test_a_run_needs_a_tokenizer_with_the_padding_of_the_positions(tmp_path):
    """Such a run was trained to its end, and then could not be exported."""
    path = published.folder(tmp_path / 'in', 'RobertaForMaskedLM', pad_token_id=0)
    config = base.get_config()
    config.init_from = str(path)
    config.model.architecture = None
    loaded = initialization.load_weights(config)
    assert initialization.initialize(config, loaded, loaded.tokenizer, ('mlm',)).params
    settings = json.loads(loaded.tokenizer.to_json())
    settings = json.dumps(settings).replace('[PAD]', '[X]').replace('[UNK]', '[PAD]')
    other = Tokenizer(settings.replace('[X]', '[UNK]'))
    with pytest.raises(UserError, match=f'{path}: the padding token has the id 1 in the tokenizer'):
        initialization.initialize(config, loaded, other, ('mlm',))


def test_position_offsets_must_match_the_padding_of_the_tokenizer(tmp_path):
    path = published.folder(tmp_path / 'in', 'RobertaForMaskedLM', pad_token_id=1)
    with pytest.raises(
        UserError, match='padding token has the id 0 in the tokenizer.*for the id 1'
    ):
        huggingface.load(path)
    path = published.folder(tmp_path / 'fit', 'RobertaForMaskedLM', pad_token_id=0)
    loaded = huggingface.load(path)
    huggingface_export.save(loaded, tmp_path / 'out')
    config = json.loads((tmp_path / 'out/config.json').read_text())
    assert (config['pad_token_id'], config['bos_token_id'], config['eos_token_id']) == (0, 2, 3)
    settings = json.loads((tmp_path / 'out/tokenizer_config.json').read_text())
    assert settings['model_max_length'] == 18


def without_class(path, **changes):
    """Change the config of a folder so that it names no fitting class."""
    config = json.loads((path / 'config.json').read_text())
    (path / 'config.json').write_text(json.dumps({**config, 'architectures': None, **changes}))
    return path


SEQUENCE = 'sequence_classification'
# Class of the weights → (changes to config.json, or to the folder, and the head that is found).
UNDECLARED = {
    'tags': ('BertForTokenClassification', {}, 'token_classification'),  # without a pooler
    'wrong': (
        'BertForSequenceClassification',
        {'architectures': ['BertForMaskedLM'], 'problem_type': 'single_label_classification'},
        SEQUENCE,
    ),
    'names': (
        'ElectraForTokenClassification',
        {'architectures': ['ElectraModel'], 'id2label': {'0': 'O', '1': 'B-X', '2': 'I-X'}},
        'token_classification',
    ),
    'distilbert': ('DistilBertForSequenceClassification', {'problem_type': 'regression'}, SEQUENCE),
    'reader': ('AlbertForQuestionAnswering', {}, 'question_answering'),
}


@pytest.mark.parametrize('name', UNDECLARED)
def test_heads_that_the_config_does_not_declare_are_found(name, tmp_path):
    """As AutoModelFor… of transformers opens such folders."""
    published_class, changes, head = UNDECLARED[name]
    labels = {'num_labels': 3} if 'Classification' in published_class else {}
    path = published.folder(tmp_path / 'model', published_class, **labels)
    expected = huggingface.load(path)
    found = huggingface.load(without_class(path, **changes), (), ('^encoder/pooler/',))
    assert found.heads == expected.heads == (head,)
    heads = ({head: model.params[head]} for model in (found, expected))
    published.assert_same_bits(*heads)


def test_weights_of_several_possible_heads_are_refused(tmp_path):
    path = published.folder(tmp_path / 'model', 'BertForSequenceClassification', num_labels=3)
    with pytest.raises(
        UserError,
        match='classifier.weight may belong to several classes.*'
        'BertForSequenceClassification or BertForTokenClassification',
    ):
        huggingface.load(without_class(path, architectures=['BertForMaskedLM']))


def test_a_head_without_its_pooler_is_refused(tmp_path):
    path = published.folder(tmp_path / 'model', 'BertForSequenceClassification')

    def drop(weights):
        for name in ('weight', 'bias'):
            del weights[f'bert.pooler.dense.{name}']

    published.edit(path, drop)
    with pytest.raises(UserError, match='lacks the weights bert.pooler.dense.bias'):
        bert_jax.load(path)


def test_a_folder_with_a_part_of_a_model_says_what_it_lacks(tmp_path):
    path = published.folder(tmp_path / 'models/model', 'BertModel')
    with pytest.raises(UserError, match='models has no model, but has folders with one: model'):
        loading.load_any(tmp_path / 'models')
    (path / 'config.json').unlink()
    with pytest.raises(UserError, match='model has model.safetensors, but no config.json'):
        loading.load_any(path)

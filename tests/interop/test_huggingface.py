"""Published folders in and out: the same numbers, the same bits, and every defect named."""

import json
import shutil

import jax
import ml_dtypes
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

from bert_jax.errors import UserError
from bert_jax.interop import huggingface, pretrained
from bert_jax.models.architecture import Compute
from tests.interop import published

CLASSES = {
    'BertModel': (),
    'BertForPreTraining': ('mlm', 'nsp'),
    'BertForMaskedLM': ('mlm',),
    'BertForNextSentencePrediction': ('nsp',),
}


def ours(model) -> dict[str, np.ndarray]:
    ids, mask, types = published.batch(model.architecture.vocab_size)
    return jax.device_get(
        pretrained.outputs(model.architecture, Compute(), model.params, ids, mask, types)
    )


def agree(left: dict, right: dict, tolerance: float = 1e-5):
    assert left.keys() == right.keys()
    for name in left:
        bound = tolerance * max(1, np.abs(right[name]).max())
        np.testing.assert_allclose(left[name], right[name], rtol=0, atol=bound, err_msg=name)


def assert_same_bits(left: dict, right: dict):
    left, right = pretrained.by_name(left), pretrained.by_name(right)
    assert left.keys() == right.keys()
    for name in left:
        assert left[name].tobytes() == right[name].tobytes(), name


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return published.folder(tmp_path_factory.mktemp('published') / 'bert')


@pytest.fixture
def copy(folder, tmp_path):
    """The folder, to be damaged."""
    return shutil.copytree(folder, tmp_path / 'bert')


@pytest.mark.parametrize('name', CLASSES)
def test_in_and_out_again(name, tmp_path):
    path = published.folder(tmp_path / 'in', name, hidden_act='gelu_new', type_vocab_size=3)
    loaded = huggingface.load(path)
    assert loaded.heads == CLASSES[name]
    agree(
        ours(loaded),
        published.outputs(published.model(name, hidden_act='gelu_new', type_vocab_size=3)),
    )

    huggingface.save(loaded, tmp_path / 'out')
    again = huggingface.load(tmp_path / 'out')
    assert again.architecture == loaded.architecture
    assert again.tokenizer.fingerprint == loaded.tokenizer.fingerprint
    assert_same_bits(again.params, loaded.params)

    theirs, report = getattr(transformers, name).from_pretrained(
        tmp_path / 'out', output_loading_info=True
    )
    assert not any(report[key] for key in ('missing_keys', 'unexpected_keys', 'mismatched_keys'))
    agree(ours(loaded), published.outputs(theirs.eval()))
    assert json.loads((tmp_path / 'out/config.json').read_text())['architectures'] == [name]
    assert name in (tmp_path / 'out/README.md').read_text()
    assert not (tmp_path / 'out.partial').exists()


def test_the_exported_tokenizer_gives_the_same_ids(folder, tmp_path):
    loaded = huggingface.load(folder)
    huggingface.save(loaded, tmp_path / 'out')
    texts = ['The Ship and the WAVE.', 'Zoë near 中文 — x', 'a [MASK] moon', '']
    ids = loaded.tokenizer.encode_batch(texts, special=True).ids
    for tokenizer in (
        transformers.AutoTokenizer.from_pretrained(tmp_path / 'out'),
        transformers.BertTokenizer.from_pretrained(tmp_path / 'out'),
    ):
        theirs = tokenizer(texts)
        assert [row[1:-1] for row in theirs['input_ids']] == [list(row) for row in ids]
        assert theirs['input_ids'][0][0] == loaded.tokenizer.cls_id
        assert tokenizer.mask_token_id == loaded.tokenizer.mask_id
        assert set(theirs) == {'input_ids', 'token_type_ids', 'attention_mask'}
    assert tokenizer.model_max_length == published.SIZES['max_position_embeddings']


def test_half_precision_shards_and_old_extras(folder, tmp_path):
    weights = {
        name: array.astype(ml_dtypes.bfloat16 if 'layer.0' in name else np.float16)
        for name, array in load_file(folder / 'model.safetensors').items()
    }
    path = shutil.copytree(folder, tmp_path / 'bert')
    (path / 'model.safetensors').unlink()
    exact = {name: array.astype(np.float32) for name, array in weights.items()}
    weights['bert.embeddings.position_ids'] = np.arange(19)[None]
    weights['cls.predictions.decoder.weight'] = weights['bert.embeddings.word_embeddings.weight']
    for name in [name for name in weights if 'LayerNorm' in name]:
        old = name.replace('Norm.weight', 'Norm.gamma').replace('Norm.bias', 'Norm.beta')
        weights[old] = weights.pop(name)
    names = sorted(weights)
    shards = {'model-1.safetensors': names[::2], 'model-2.safetensors': names[1::2]}
    for shard, its_names in shards.items():
        save_file({name: weights[name] for name in its_names}, path / shard)
    weight_map = {name: shard for shard, its_names in shards.items() for name in its_names}
    index = path / 'model.safetensors.index.json'
    index.write_text(json.dumps({'weight_map': weight_map}))
    loaded = huggingface.load(path)
    save_file(exact, tmp_path / 'model.safetensors')
    shutil.copy(folder / 'config.json', tmp_path)
    assert_same_bits(loaded.params, huggingface.load(tmp_path).params)

    index.write_text(json.dumps({'weight_map': weight_map | {'more': 'model-2.safetensors'}}))
    with pytest.raises(UserError, match='more is in the index but not'):
        huggingface.load(path)
    (path / 'model-2.safetensors').unlink()
    with pytest.raises(UserError, match=r'model-2.safetensors, which is not there'):
        huggingface.load(path)


def test_a_file_of_torch(folder, tmp_path):
    shutil.copy(folder / 'config.json', tmp_path)
    state = published.model().state_dict()
    state['bert.pooler.dense.weight'] = state['bert.pooler.dense.weight'].T.contiguous().T
    torch.save(state, tmp_path / 'pytorch_model.bin')
    assert_same_bits(huggingface.load(tmp_path).params, huggingface.load(folder).params)

    data = (tmp_path / 'pytorch_model.bin').read_bytes()
    (tmp_path / 'pytorch_model.bin').write_bytes(data[: len(data) // 2])
    with pytest.raises(UserError, match='pytorch_model.bin is damaged'):
        huggingface.load(tmp_path)


class _Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), 'w')


def test_a_file_of_torch_runs_nothing(folder, tmp_path):
    shutil.copy(folder / 'config.json', tmp_path)
    torch.save({'x': _Evil(tmp_path / 'harm')}, tmp_path / 'pytorch_model.bin')
    with pytest.raises(UserError, match='asks to run io.open'):
        huggingface.load(tmp_path)
    assert not (tmp_path / 'harm').exists()


def drop(name):
    return lambda weights: weights.pop(name)


def rename(name):
    return lambda weights: weights.update({f'{name}_old': weights.pop(name)})


def put(name, value):
    return lambda weights: weights.update({name: value})


def spoil(weights):
    weights['cls.predictions.bias'][7] = np.nan


TOKEN = 'bert.embeddings.word_embeddings.weight'
QUERY = 'bert.encoder.layer.1.attention.self.query.weight'
DECODER = 'cls.predictions.decoder.weight'
# What is done to the weights → what the line must say.
DAMAGED = {
    'missing': (drop(QUERY), f'lacks the weights {QUERY}'),
    'missing head': (drop('cls.seq_relationship.bias'), 'nsp/head/dense/bias'),
    'renamed': (rename(QUERY), f'no place for the weights {QUERY}_old .and lacks {QUERY}'),
    'left over': (put('classifier.weight', np.ones((2, 20), 'f4')), 'classifier.weight'),
    'a layer more': (
        put('bert.encoder.layer.2.output.dense.bias', np.ones(20, 'f4')),
        'layer.2.output.dense.bias',
    ),
    'NaN': (spoil, 'cls.predictions.bias holds NaN'),
    'shape': (put(TOKEN, np.ones((130, 20), 'f4')), r'\[130, 20\], but by the config \[131, 20\]'),
    'integers': (put(QUERY, np.ones((20, 20), np.int8)), 'is int8'),
    'positions': (put('bert.embeddings.position_ids', np.ones((1, 19), int)), 'position_ids'),
    'untied': (put(DECODER, np.ones((131, 20), 'f4')), f'{DECODER} differs from {TOKEN}'),
}


@pytest.mark.parametrize('name', DAMAGED)
def test_damaged_weights_are_named(name, copy):
    change, word = DAMAGED[name]
    published.edit(copy, change)
    with pytest.raises(UserError, match=word) as caught:
        huggingface.load(copy)
    assert '\n' not in str(caught.value)


def test_truncated_weights_and_none(copy):
    file = copy / 'model.safetensors'
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(UserError, match=r'model.safetensors is damaged'):
        huggingface.load(copy)
    file.unlink()
    with pytest.raises(UserError, match='has no weights'):
        huggingface.load(copy)


# Changes to config.json → what the line must say.
CONFIGS = {
    'model_type': ({'model_type': 'gpt2'}, "unknown model_type 'gpt2'; known: .*bert"),
    'activation': ({'hidden_act': 'relu'}, "hidden_act is 'relu'; known: gelu"),
    'positions': ({'position_embedding_type': 'relative_key'}, "'relative_key'; only 'absolute'"),
    'decoder': ({'is_decoder': True}, 'is_decoder is True; only False'),
    'untied': ({'tie_word_embeddings': False}, 'tie_word_embeddings'),
    'heads': ({'num_attention_heads': 3}, '3 heads'),
    'layers': ({'num_hidden_layers': 3}, 'lacks the weights bert.encoder.layer.2'),
    'no number': ({'hidden_size': '20'}, "hidden_size is '20'"),
    'labels': ({'id2label': {'0': 'a', '1': 'b'}, 'label2id': {'a': 1, 'b': 0}}, 'disagree'),
}


@pytest.mark.parametrize('name', CONFIGS)
def test_a_config_we_cannot_compute_is_refused(name, copy):
    change, word = CONFIGS[name]
    config = json.loads((copy / 'config.json').read_text()) | change
    (copy / 'config.json').write_text(json.dumps(config))
    with pytest.raises(UserError, match=word):
        huggingface.load(copy)


def test_a_config_that_is_none_or_missing(copy):
    (copy / 'config.json').write_text('{')
    with pytest.raises(UserError, match='config.json is no JSON'):
        huggingface.load(copy)
    (copy / 'config.json').unlink()
    with pytest.raises(UserError, match='config.json: No such file'):
        huggingface.load(copy)


def test_a_vocabulary_larger_than_the_embedding(copy):
    with open(copy / 'vocab.txt', 'a') as file:
        file.write('surplus\n')
    with pytest.raises(UserError, match='132 tokens, but the model has embeddings for 131'):
        huggingface.load(copy)


def test_new_heads_only_where_allowed(tmp_path):
    path = published.folder(tmp_path / 'in', 'BertModel')
    with pytest.raises(UserError, match='cls.predictions.bias'):
        huggingface.load(path, heads=('mlm',))
    loaded = huggingface.load(path, heads=('mlm',), allow_missing=('^mlm/',))
    assert loaded.heads == ('mlm',)
    assert set(loaded.fresh) == {
        name for name in pretrained.by_name(loaded.params) if name.startswith('mlm/')
    }
    kernel = loaded.params['mlm']['head']['transform']['kernel']
    assert 0.01 < kernel.std() < 0.03
    assert_same_bits({'encoder': loaded.params['encoder']}, huggingface.load(path).params)


def test_labels_keep_their_order(folder, tmp_path):
    loaded = huggingface.load(folder)
    named = huggingface.Pretrained(**(vars(loaded) | {'labels': ('next', 'random')}))
    huggingface.save(named, tmp_path / 'out')
    assert huggingface.load(tmp_path / 'out').labels == ('next', 'random')
    config = transformers.AutoConfig.from_pretrained(tmp_path / 'out')
    assert config.id2label == {0: 'next', 1: 'random'}


def test_nothing_is_put_in_place_unless_it_gives_the_same_logits(folder, tmp_path, monkeypatch):
    loaded = huggingface.load(folder)
    write = huggingface.weights.write

    def write_otherwise(path, arrays):
        arrays['cls.predictions.bias'] = arrays['cls.predictions.bias'] + 1
        write(path, arrays)

    monkeypatch.setattr(huggingface.weights, 'write', write_otherwise)
    with pytest.raises(UserError, match='mlm_logits of the written model differ'):
        huggingface.save(loaded, tmp_path / 'out')
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_there_is_not_touched(folder):
    before = (folder / 'config.json').read_text()
    with pytest.raises(UserError, match='is there already'):
        huggingface.save(huggingface.load(folder), folder)
    assert (folder / 'config.json').read_text() == before


def test_values_that_are_not_finite_are_not_saved(folder, tmp_path):
    loaded = huggingface.load(folder)
    loaded.params['encoder']['pooler']['bias'][0] = np.inf
    loaded.params['mlm']['head']['norm']['scale'][:] = np.nan
    with pytest.raises(UserError, match='NaN|not finite'):
        huggingface.save(loaded, tmp_path / 'out')
    assert not (tmp_path / 'out').exists()

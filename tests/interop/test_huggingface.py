"""Hugging Face folders: tokenizers, shards, PyTorch files, heads; and refusals to export."""

import dataclasses
import json
import shutil

import ml_dtypes
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.interop import huggingface, huggingface_export, weights
from tests.interop import published
from tests.interop.published import put


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return published.folder(tmp_path_factory.mktemp('published') / 'bert')


@pytest.fixture
def copy(folder, tmp_path):
    """A copy of the folder that a test may damage."""
    return shutil.copytree(folder, tmp_path / 'bert')


def test_the_exported_tokenizer_gives_the_same_ids(folder, tmp_path):
    loaded = huggingface.load(folder)
    huggingface_export.save(loaded, tmp_path / 'out')
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


def test_half_precision_shards_and_weights_of_old_versions_are_read(folder, tmp_path):
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
    published.assert_same_bits(loaded.params, huggingface.load(tmp_path).params)

    index.write_text(json.dumps({'weight_map': weight_map | {'more': 'model-2.safetensors'}}))
    with pytest.raises(UserError, match='more is in the index but not'):
        huggingface.load(path)
    (path / 'model-2.safetensors').unlink()
    with pytest.raises(UserError, match=r'model-2.safetensors, which does not exist'):
        huggingface.load(path)


@pytest.mark.parametrize('is_zip', [True, False], ids=['zip', 'before torch 1.6'])
def test_a_pytorch_file_is_read(folder, tmp_path, is_zip):
    shutil.copy(folder / 'config.json', tmp_path)
    state = published.model().state_dict()
    state['bert.pooler.dense.weight'] = state['bert.pooler.dense.weight'].T.contiguous().T
    path = tmp_path / 'pytorch_model.bin'
    torch.save(state, path, _use_new_zipfile_serialization=is_zip)
    published.assert_same_bits(huggingface.load(tmp_path).params, huggingface.load(folder).params)

    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(UserError, match='pytorch_model.bin is damaged'):
        huggingface.load(tmp_path)


class _Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), 'w')


@pytest.mark.parametrize('is_zip', [True, False], ids=['zip', 'before torch 1.6'])
def test_a_pytorch_file_executes_no_code(folder, tmp_path, is_zip):
    shutil.copy(folder / 'config.json', tmp_path)
    path = tmp_path / 'pytorch_model.bin'
    torch.save({'x': _Evil(tmp_path / 'harm')}, path, _use_new_zipfile_serialization=is_zip)
    with pytest.raises(UserError, match='asks to run io.open'):
        huggingface.load(tmp_path)
    assert not (tmp_path / 'harm').exists()


def test_heads_beyond_those_of_the_class_are_found(copy):
    """The published bert-base-uncased is such a folder."""
    config = json.loads((copy / 'config.json').read_text())
    (copy / 'config.json').write_text(json.dumps(config | {'architectures': ['BertForMaskedLM']}))
    assert huggingface.load(copy).heads == ('mlm', 'nsp')
    published.edit(copy, put('classifier.weight', np.ones((2, 20), 'f4')))
    with pytest.raises(UserError, match='a bert model with mlm, nsp has no place for .*classifier'):
        huggingface.load(copy)


def change_config(path, **changes):
    config = json.loads((path / 'config.json').read_text()) | changes
    (path / 'config.json').write_text(json.dumps(config))


def test_keys_that_change_nothing_are_ignored_and_named(copy, capsys):
    changes = {'emb_size': 7, 'structure': []}
    change_config(copy, **changes, problem_type='regression', label2id={'x': 'y'})
    huggingface.load(copy)
    assert 'ignored keys: emb_size, structure' in capsys.readouterr().err


def test_a_config_without_model_type_is_known_by_its_class(copy):
    change_config(copy, model_type=None)
    assert huggingface.load(copy).family == 'bert'


def test_a_declared_head_without_weights_is_needed_only_if_requested(copy, capsys):
    change_config(copy, architectures=['BertForTokenClassification'])
    assert huggingface.load(copy).heads == ('mlm', 'nsp')
    assert 'no weights of token_classification, which config.json names' in capsys.readouterr().err
    with pytest.raises(UserError, match='lacks the weights classifier'):
        huggingface.load(copy, heads=('token_classification',))


@pytest.mark.parametrize(
    'changes',
    [
        dict(id2label={'0': 'a', '1': 'b'}, label2id={'a': 1, 'b': 0}),
        dict(id2label={'0': 'a', '1': 'b'}, label2id={'a': '0', 'b': '1'}),
        dict(id2label={'0': 'a', '1': 'b'}, label2id=None, num_labels=None),
    ],
)
def test_labels_are_those_of_id2label(copy, changes):
    change_config(copy, **changes)
    assert huggingface.load(copy).labels == ('a', 'b')


def test_a_decoder_of_its_own_is_read_and_written(tmp_path):
    path = published.folder(tmp_path / 'in', 'BertForMaskedLM', tie_word_embeddings=False)
    loaded = huggingface.load(path)
    expected = transformers.BertForMaskedLM.from_pretrained(path)
    expected = published.theirs(expected.eval(), loaded.architecture)['mlm_logits']
    scale = np.abs(expected).max()
    np.testing.assert_allclose(published.ours(loaded)['mlm_logits'], expected, atol=1e-5 * scale)
    huggingface_export.save(loaded, tmp_path / 'out')
    written = transformers.BertForMaskedLM.from_pretrained(tmp_path / 'out').eval()
    written = published.theirs(written, loaded.architecture)['mlm_logits']
    np.testing.assert_allclose(written, expected, atol=1e-6 * scale)


def test_missing_heads_are_initialized_only_if_allowed(tmp_path):
    path = published.folder(tmp_path / 'in', 'BertModel')
    with pytest.raises(UserError, match='cls.predictions.bias'):
        huggingface.load(path, heads=('mlm',))
    loaded = huggingface.load(path, heads=('mlm',), allow_missing=('^mlm/',))
    assert loaded.heads == ('mlm',)
    assert set(loaded.newly_initialized) == {
        name for name in tree_paths.flatten(loaded.params) if name.startswith('mlm/')
    }
    kernel = loaded.params['mlm']['head']['transform']['kernel']
    assert 0.01 < kernel.std() < 0.03
    published.assert_same_bits({'encoder': loaded.params['encoder']}, huggingface.load(path).params)


def test_an_export_with_other_logits_leaves_no_folder(folder, tmp_path, monkeypatch):
    loaded = huggingface.load(folder)
    write = huggingface.weights.write

    def write_otherwise(path, arrays):
        arrays['cls.predictions.bias'] = arrays['cls.predictions.bias'] + 1
        write(path, arrays)

    monkeypatch.setattr(huggingface.weights, 'write', write_otherwise)
    with pytest.raises(UserError, match='mlm_logits of the written model differ'):
        huggingface_export.save(loaded, tmp_path / 'out')
    assert not list(tmp_path.iterdir())


def test_an_existing_folder_is_not_overwritten(folder):
    before = (folder / 'config.json').read_text()
    with pytest.raises(UserError, match='already exists'):
        huggingface_export.save(huggingface.load(folder), folder)
    assert (folder / 'config.json').read_text() == before


def test_a_model_with_nan_or_infinite_values_is_not_exported(folder, tmp_path):
    loaded = huggingface.load(folder)
    loaded.params['encoder']['pooler']['bias'][0] = np.inf
    loaded.params['mlm']['head']['norm']['scale'][:] = np.nan
    with pytest.raises(UserError, match='NaN or infinite'):
        huggingface_export.save(loaded, tmp_path / 'out')
    assert not (tmp_path / 'out').exists()


def test_a_model_without_a_family_is_not_exported(folder, tmp_path):
    loaded = dataclasses.replace(huggingface.load(folder), family=None)
    with pytest.raises(UserError, match='belongs to no published family'):
        huggingface_export.save(loaded, tmp_path / 'out')
    assert not list(tmp_path.iterdir())


def test_weights_have_the_permissions_of_the_files_beside_them(tmp_path):
    weights.write(tmp_path / 'model.safetensors', {'a': np.ones(3, np.float32)})
    (tmp_path / 'config.json').write_text('{}')
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_weights_of_other_parts_can_be_left_out_by_name(copy, capsys):
    expected = published.ours(huggingface.load(copy))
    published.edit(copy, published.put('cls.species.weight', np.ones((6, 20), np.float32)))
    with pytest.raises(UserError, match=r'no place for .*cls.species.weight.*--leave_out'):
        huggingface.load(copy)
    loaded = huggingface.load(copy, leave_out=r'^cls\.species\.')
    assert 'cls.species.weight' in capsys.readouterr().err
    np.testing.assert_equal(published.ours(loaded), expected)
    for wrong, message in (('nothing', 'no weight that matches'), ('(', 'not a valid regular')):
        with pytest.raises(UserError, match=message):
            huggingface.load(copy, leave_out=wrong)
    with pytest.raises(UserError, match='lacks the weights .*LayerNorm'):
        huggingface.load(copy, leave_out='(^cls.species|LayerNorm)')

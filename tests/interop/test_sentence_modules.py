"""Folders of sentence-transformers: `embed` obeys their modules, and exports keep them.

The reference is computed with torch, as the modules of sentence-transformers do.
"""

import json

import numpy as np
import pytest
import torch
import transformers

import bert_jax
from bert_jax.errors import UserError
from bert_jax.interop import huggingface_export, loading
from tests.interop import published

TEXTS = ['The ship near the waves.', 'moon', '', 'the and near . ' * 6]
TYPES = 'sentence_transformers.models.'
TANH = 'torch.nn.modules.activation.Tanh'
RANDOM = np.random.default_rng(0)
DENSE = {
    'linear.weight': RANDOM.standard_normal((7, 20)).astype('f4'),
    'linear.bias': RANDOM.standard_normal(7).astype('f4'),
}


@pytest.fixture(scope='module')
def bare(tmp_path_factory):
    """A BertModel without modules."""
    return published.folder(tmp_path_factory.mktemp('sentence') / 'bert', 'BertModel')


def add_modules(folder, pooling, layers=(), general=None, **settings):
    """Write modules.json and the folders of the modules."""
    names = ['Transformer', 'Pooling', *layers]
    paths = ['', *(f'{number}_{name}' for number, name in enumerate(names[1:], 1))]
    modules = [
        {'idx': number, 'name': str(number), 'path': path, 'type': TYPES + name}
        for number, (name, path) in enumerate(zip(names, paths, strict=True))
    ]
    (folder / 'modules.json').write_text(json.dumps(modules))
    (folder / 'sentence_bert_config.json').write_text(json.dumps(settings))
    (folder / 'config_sentence_transformers.json').write_text(json.dumps(general or {}))
    for path in paths[1:]:
        (folder / path).mkdir(exist_ok=True)
    (folder / '1_Pooling/config.json').write_text(json.dumps(pooling))
    if 'Dense' in layers:
        config = {'in_features': 20, 'out_features': 7, 'bias': True, 'activation_function': TANH}
        (folder / '2_Dense/config.json').write_text(json.dumps(config))
        weights = {name: torch.from_numpy(array) for name, array in DENSE.items()}
        torch.save(weights, folder / '2_Dense/pytorch_model.bin')
    return folder


@pytest.fixture
def folder(bare, tmp_path):
    """A folder whose files are links to those of the encoder."""
    for file in bare.iterdir():
        (tmp_path / file.name).symlink_to(file)
    return tmp_path


def expected(folder, modes, layers=(), length=19, texts=TEXTS):
    """The vectors of sentence-transformers."""
    model = transformers.BertModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    given = tokenizer(texts, padding=True, truncation=True, max_length=length, return_tensors='pt')
    with torch.no_grad():
        states = model(**given).last_hidden_state
    mask = given['attention_mask'][:, :, None].float()
    total, number = (states * mask).sum(1), mask.sum(1)
    pooled = {
        'cls': states[:, 0],
        'max': states.masked_fill(mask == 0, -torch.inf).max(1).values,
        'mean': total / number,
        'mean_sqrt_len_tokens': total / number.sqrt(),
    }
    vectors = torch.cat([pooled[mode] for mode in modes], -1)
    for layer in layers:
        if layer == 'Dense':
            weight, bias = map(torch.from_numpy, DENSE.values())
            vectors = torch.tanh(vectors @ weight.T + bias)
        elif layer == 'Normalize':
            vectors = torch.nn.functional.normalize(vectors)
    return vectors.numpy()


def legacy(mode):
    key = {'cls': 'cls_token', 'max': 'max_tokens', 'mean': 'mean_tokens'}.get(mode, mode)
    return {'word_embedding_dimension': 20, f'pooling_mode_{key}': True}


@pytest.mark.parametrize(
    ('pooling', 'modes', 'layers', 'settings'),
    [
        (legacy('mean'), ['mean'], ['Normalize'], {'max_seq_length': 12}),  # MiniLM
        (legacy('cls'), ['cls'], ['Normalize'], {'do_lower_case': True}),  # BGE
        (legacy('cls'), ['cls'], ['Dense', 'Normalize'], {}),  # LaBSE
        (legacy('max'), ['max'], ['Dropout'], {}),
        (legacy('mean_sqrt_len_tokens'), ['mean_sqrt_len_tokens'], [], {}),
        (legacy('max') | legacy('mean'), ['max', 'mean'], [], {}),
        ({'pooling_mode': ['mean', 'cls']}, ['mean', 'cls'], [], {}),
        ({}, ['mean'], [], {'max_seq_length': 300}),
    ],
)
def test_embed_obeys_the_modules_and_exports_keep_them(
    pooling, modes, layers, settings, folder, tmp_path_factory
):
    add_modules(folder, pooling, layers, **settings)
    length = min(19, settings.get('max_seq_length', 19))
    theirs = expected(folder, modes, layers, length)
    ours = bert_jax.load(folder).embed(TEXTS)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    out = tmp_path_factory.mktemp('export') / 'out'
    huggingface_export.save(loading.load_any(folder), out)
    np.testing.assert_array_equal(bert_jax.load(out).embed(TEXTS), ours)


def test_a_dense_layer_of_another_width_is_refused(folder):
    add_modules(folder, legacy('cls') | legacy('mean'), ['Dense'], max_seq_length=1e30)
    with pytest.raises(UserError, match='Dense has 20 inputs, but gets 40'):
        bert_jax.load(folder).embed(TEXTS)


def test_a_requested_pooling_takes_precedence(folder):
    add_modules(folder, legacy('cls'), ['Dense', 'Normalize'])
    ours = bert_jax.load(folder)
    for mode in ('mean', 'max', 'cls'):
        theirs = expected(folder, [mode], texts=TEXTS[:3])
        np.testing.assert_allclose(ours.embed(TEXTS[:3], mode), theirs, atol=1e-5)
    assert ours.embed([]).shape == (0, ours.embed(['moon']).shape[1])


def test_the_default_prompt_is_prepended_and_kept(folder, tmp_path_factory):
    prompts = {'prompts': {'query': 'near the '}, 'default_prompt_name': 'query'}
    add_modules(folder, legacy('mean'), general=prompts)
    theirs = expected(folder, ['mean'], texts=['near the moon'])
    np.testing.assert_allclose(bert_jax.load(folder).embed(['moon']), theirs, atol=1e-5)
    out = tmp_path_factory.mktemp('export') / 'out'
    huggingface_export.save(loading.load_any(folder), out)
    np.testing.assert_allclose(bert_jax.load(out).embed(['moon']), theirs, atol=1e-5)


def test_texts_are_lowercased_if_the_folder_says_so(folder):
    (folder / 'tokenizer_config.json').write_text('{"do_lower_case": false}')
    add_modules(folder, legacy('mean'), do_lower_case=True)
    upper, lower = bert_jax.load(folder).embed(['THE MOON', 'the moon'])
    np.testing.assert_array_equal(upper, lower)


def test_an_encoder_in_a_folder_of_its_own_is_found(bare, tmp_path):
    add_modules(tmp_path, legacy('cls'))
    (tmp_path / '0_BERT').symlink_to(bare)
    modules = json.loads((tmp_path / 'modules.json').read_text())
    modules[0]['path'] = '0_BERT'
    (tmp_path / 'modules.json').write_text(json.dumps(modules))
    ours = bert_jax.load(tmp_path).embed(TEXTS)
    np.testing.assert_allclose(ours, expected(bare, ['cls']), atol=1e-5)


def test_a_cross_encoder_has_no_modules(folder):
    add_modules(folder, legacy('cls'), general={'model_type': 'CrossEncoder'})
    path = folder / 'modules.json'
    path.write_text(json.dumps(json.loads(path.read_text())[:1]))
    assert loading.load_any(folder).sentence_modules is None


@pytest.mark.parametrize(
    ('pooling', 'layers', 'message'),
    [
        (
            legacy('weightedmean_tokens'),
            (),
            'the pooling mode weightedmean, which is not supported; set pooling',
        ),
        (legacy('mean'), ('CNN',), 'the module CNN'),
    ],
)
def test_unsupported_modules_are_refused_by_embed_alone(pooling, layers, message, folder):
    ours = bert_jax.load(add_modules(folder, pooling, layers))
    with pytest.raises(UserError, match=message):
        ours.embed(TEXTS)
    assert len(ours.embed(TEXTS, 'cls')) == len(TEXTS)


@pytest.mark.parametrize(
    ('name', 'content', 'message'),
    [
        ('modules.json', '{', 'modules.json is not valid JSON'),
        ('modules.json', '{}', 'expected a list'),
        ('modules.json', '[3]', 'with path and type'),
        ('modules.json', '[{"path": "../x", "type": "a"}]', 'is not of a file below'),
        ('sentence_bert_config.json', '{"max_seq_length": "x"}', "max_seq_length is 'x'"),
        ('sentence_bert_config.json', '{"max_seq_length": NaN}', 'max_seq_length is nan'),
        (
            'config_sentence_transformers.json',
            '{"default_prompt_name": "a", "prompts": {"a": 3}}',
            'the prompt a is 3',
        ),
        ('1_Pooling/config.json', '[]', 'expected an object'),
        ('1_Pooling/config.json', '{"pooling_mode": 3}', 'pooling_mode is 3'),
    ],
)
def test_malformed_files_are_a_one_line_error(name, content, message, folder):
    add_modules(folder, legacy('mean'))
    (folder / name).write_text(content)
    with pytest.raises(UserError, match=message):
        loading.load_any(folder)


DENSE_MISTAKES = {
    'more': (
        lambda config, arrays: arrays.update(scale=arrays['linear.bias']),
        'no place for scale',
    ),
    'bias': (
        lambda config, arrays: arrays.pop('linear.bias'),
        'bias is True, but the weights have',
    ),
    'size': (
        lambda config, arrays: config.update(in_features=8),
        'in_features is 8, but the weights',
    ),
}


@pytest.mark.parametrize('mistake', DENSE_MISTAKES)
def test_every_array_of_a_dense_layer_has_a_place(mistake, folder):
    change, message = DENSE_MISTAKES[mistake]
    add_modules(folder, legacy('mean'), ['Dense'])
    path = folder / '2_Dense'
    config, arrays = json.loads((path / 'config.json').read_text()), dict(DENSE)
    change(config, arrays)
    (path / 'config.json').write_text(json.dumps(config))
    torch.save({n: torch.from_numpy(a) for n, a in arrays.items()}, path / 'pytorch_model.bin')
    with pytest.raises(UserError, match=message):
        loading.load_any(folder)


def test_other_first_modules_are_refused(folder):
    modules = [{'idx': 0, 'name': '0', 'path': '', 'type': f'{TYPES}CLIPModel'}]
    (folder / 'modules.json').write_text(json.dumps(modules))
    with pytest.raises(UserError, match='the first module is .*CLIPModel; only Transformer'):
        loading.load_any(folder)


def test_modules_of_a_cross_encoder_are_refused(folder):
    add_modules(folder, legacy('mean'), ['Dense'], {'model_type': 'CrossEncoder'})
    with pytest.raises(UserError, match='a CrossEncoder with the module .*Pooling'):
        loading.load_any(folder)


def test_a_peft_folder_keeps_its_modules(folder, tmp_path_factory):
    """As SentenceTransformer.save writes a model with an adapter."""
    peft = pytest.importorskip('peft')
    tuned = tmp_path_factory.mktemp('tuned')
    model = transformers.BertModel.from_pretrained(folder)
    settings = peft.LoraConfig(task_type='FEATURE_EXTRACTION', target_modules=['query'])
    model = peft.get_peft_model(model, settings)
    model.peft_config['default'].base_model_name_or_path = str(folder)
    model.save_pretrained(tuned)
    add_modules(tuned, legacy('cls'), ['Normalize'])
    found = bert_jax.load(tuned).embed(TEXTS, long_texts='truncate')
    np.testing.assert_allclose(found, expected(folder, ['cls'], ['Normalize']), atol=1e-5)


@pytest.mark.parametrize('has_modules', [True, False])
def test_a_static_model_is_refused_by_its_name(has_modules, tmp_path):
    """The files of a folder that model2vec 0.10 saves."""
    (tmp_path / 'config.json').write_text('{"model_type": "model2vec", "normalize": true}')
    module = {'idx': 0, 'name': '0', 'path': '.'}
    module['type'] = 'sentence_transformers.models.StaticEmbedding'
    if has_modules:
        (tmp_path / 'modules.json').write_text(json.dumps([module]))
    with pytest.raises(UserError, match=r'is a static model \(model2vec\)'):
        loading.load_any(tmp_path)

"""Import and export of every published family and class: same outputs, same bits."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest
import transformers
from safetensors.numpy import load_file

from bert_jax.errors import UserError
from bert_jax.interop import huggingface, huggingface_export
from bert_jax.interop.families import FAMILIES
from bert_jax.loaded import loaded_model
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.models import architectures
from bert_jax.models.architecture_parts import Rotary
from tests.interop import published
from tests.interop.published import put
from tests.parity.agreement import agree_trees

# Changes to the config of a class, besides the sizes.
VARIATIONS = {
    'BertForPreTraining': {'hidden_act': 'gelu_new', 'type_vocab_size': 3},
    'RobertaForMaskedLM': {'pad_token_id': 3, 'hidden_act': 'gelu_new'},
    'ElectraForPreTraining': {'embedding_size': 20},
    'ModernBertForSequenceClassification': {'classifier_pooling': 'mean', 'num_labels': 4},
    'ModernBertForMaskedLM': {
        'layer_types': ['sliding_attention'] * 2 + ['full_attention'],
        'decoder_bias': False,
    },
    'ModernBertForTokenClassification': dict.fromkeys(('attention_bias', 'mlp_bias'), True)
    | {'norm_bias': True},
    'AlbertForMaskedLM': {'num_hidden_layers': 3, 'num_hidden_groups': 2, 'inner_group_num': 2},
    'DistilBertForTokenClassification': {'num_labels': 3, 'activation': 'relu'},
    'AlbertForSequenceClassification': {'num_labels': 1},
    'ModernBertDecoderForCausalLM': {
        'layer_types': ['sliding_attention'] * 2 + ['full_attention'],
        'tie_word_embeddings': False,
    },
    'BartForSequenceClassification': {'decoder_start_token_id': 2},
    'BartForQuestionAnswering': {'decoder_start_token_id': 2},
    'RobertaForTokenClassification': {'num_labels': 5, 'type_vocab_size': 1},
}

# What a default config of transformers lacks.
REQUIRED = {'esm': {'vocab_size': 33, 'pad_token_id': 1}}


def _is_repetition(name: str, model_type: str) -> bool:
    """Whether a class differs from a quickly tested one in names only."""
    heads = ('ForTokenClassification', 'ForQuestionAnswering', 'ForMultipleChoice')
    if model_type not in ('bert', 'modernbert') and name.endswith(heads):
        return True
    return model_type in published.RENAMED and not name.endswith('ForMaskedLM')


@pytest.mark.parametrize(
    'name',
    [
        pytest.param(name, marks=[pytest.mark.slow] * _is_repetition(name, family.model_type))
        for name, (family, _) in published.CLASSES.items()
    ],
)
def test_import_and_export_keep_outputs_and_bits(name, tmp_path):
    family, heads = published.CLASSES[name]
    original = published.model(name, **VARIATIONS.get(name, {}))
    original.save_pretrained(tmp_path / 'in')
    loaded = huggingface.load(tmp_path / 'in')
    assert (loaded.family, loaded.heads) == (family.model_type, heads)
    ours_computed = published.ours(loaded)
    agree_trees(ours_computed, published.theirs(original, loaded.architecture))

    huggingface_export.save(loaded, tmp_path / 'out')
    again = huggingface.load(tmp_path / 'out')
    assert again.architecture == loaded.architecture
    assert again.labels == loaded.labels
    # The vector of a single token type is added to those of the positions.
    architecture, expected, moved = loaded.architecture, loaded, ()
    if architecture.type_vocab_size == 1 and architecture.positions.kind != 'none':
        expected, _ = huggingface_export.publishable(loaded)
        moved = ('position_embeddings.weight', 'token_type_embeddings.weight')
    published.assert_same_bits(again.params, expected.params)
    written = load_file(tmp_path / 'out/model.safetensors')
    for key, array in load_file(tmp_path / 'in/model.safetensors').items():
        skipped = {*family.duplicates(loaded.architecture), family.position_ids}
        is_skipped = {key, family.prefix + key} & skipped or family.is_buffer(key)
        if not is_skipped and not family.is_unused(key) and not key.endswith(moved):
            assert array.tobytes() == written[family.current_name(key)].tobytes(), key

    opened, report = getattr(transformers, name).from_pretrained(
        tmp_path / 'out', output_loading_info=True, attn_implementation='eager'
    )
    assert all(map(family.is_unused, report['missing_keys']))
    assert not any(report[key] for key in ('unexpected_keys', 'mismatched_keys'))
    agree_trees(ours_computed, published.theirs(opened.eval(), loaded.architecture))
    assert json.loads((tmp_path / 'out/config.json').read_text())['architectures'] == [name]
    assert name in (tmp_path / 'out/README.md').read_text()
    assert not (tmp_path / 'out.partial').exists()


# Case → (one of our architectures, its heads, the class of its export, the part that changes).
TRAINED = {
    'bert rtd': ('bert', ('rtd',), 'BertModel', 'rtd is dropped: .* no bert class with rtd'),
    'bert sop': ('bert', ('mlm', 'sop'), 'BertForMaskedLM', 'sop is dropped'),
    'roberta rtd': ('roberta', ('rtd',), 'RobertaModel', 'pooler is newly initialized'),
    'roberta nsp': ('roberta', ('mlm', 'nsp'), 'RobertaForMaskedLM', 'pooler is dropped'),
    'albert nsp': ('albert', ('mlm', 'nsp'), 'AlbertForMaskedLM', 'nsp is dropped'),
    'electra nsp': ('electra', ('nsp', 'rtd'), 'ElectraForPreTraining', 'pooler is dropped'),
    'deberta rtd': ('deberta', ('rtd',), 'DebertaModel', 'rtd is dropped'),
    'modernbert rtd': ('modernbert', ('rtd',), 'ModernBertModel', 'rtd is dropped'),
    'roberta clm': ('roberta', ('clm',), 'RobertaForCausalLM', ''),
    'modernbert clm': ('modernbert', ('clm',), 'ModernBertDecoderForCausalLM', ''),
    'bert clm': ('bert', ('clm',), 'BertLMHeadModel', 'pooler is dropped'),
}


@pytest.mark.parametrize(
    'name',
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name.split()[0] in ('roberta', 'electra')))
        for name in TRAINED
    ],
)
def test_a_trained_model_becomes_the_class_with_most_of_its_heads(name, tmp_path):
    kind, heads, class_name, message = TRAINED[name]
    sizes = dict(vocab_size=131, hidden_size=20, num_layers=2, num_heads=2, intermediate_size=28)
    architecture = architectures.build(kind, **sizes, initializer_range=0.2)
    if {'nsp', 'sop'} & {*heads}:
        architecture = dataclasses.replace(architecture, pooler=True)
    params, _ = loaded_model.fill({}, architecture, heads)
    family = architectures.find(kind).family
    model = LoadedModel(family, architecture, params, is_causal='clm' in heads)
    written, lines = huggingface_export.save(model, tmp_path / 'out')
    assert re.search(message, '; '.join(lines))
    opened = published.open_without_complaints(tmp_path / 'out')
    assert type(opened).__name__ == class_name
    agree_trees(published.ours(written), published.theirs(opened, written.architecture))


@pytest.mark.parametrize(
    ('kind', 'heads'), [('bert', ('mlm', 'nsp')), ('bert', ('nsp',)), ('albert', ('mlm', 'sop'))]
)
def test_a_classifier_of_pairs_without_a_pooler_is_never_exported_as_one_with(
    kind, heads, tmp_path
):
    sizes = dict(vocab_size=131, hidden_size=20, num_layers=2, num_heads=2, intermediate_size=28)
    architecture = architectures.build(kind, **sizes, pooler=False, pair_pooling='first')
    params, _ = loaded_model.fill({}, architecture, heads)
    assert 'pooler' not in params['encoder']
    model = LoadedModel(architectures.find(kind).family, architecture, params)
    written, lines = huggingface_export.save(model, tmp_path / 'out')
    assert written.heads == heads[:-1]
    assert f'{heads[-1]} is dropped: transformers has no class that classifies pairs by' in lines[0]
    assert written.architecture.pair_pooling == 'pooler'


@pytest.mark.parametrize('kind', ['albert', 'deberta_v2', 'distilbert'])
def test_a_causal_model_is_not_exported_as_a_bidirectional_one(kind, tmp_path):
    architecture = architectures.build(kind)
    model = LoadedModel(architectures.find(kind).family, architecture, {}, is_causal=True)
    with pytest.raises(UserError, match=r'causal attention \(clm\), but .* in both directions'):
        huggingface_export.save(model, tmp_path / 'out')


@pytest.mark.parametrize('kind', ['gpt2', 'modernbert_decoder'])
def test_a_bidirectional_model_is_not_exported_as_a_causal_one(kind, tmp_path):
    model = LoadedModel(architectures.find(kind).family, architectures.build(kind), {})
    with pytest.raises(UserError, match='both directions, but .* only to earlier'):
        huggingface_export.save(model, tmp_path / 'out')


def test_architectures_belong_to_families():
    for model_type, family in FAMILIES.items():
        assert family.model_type == model_type
        of_default = FAMILIES[architectures.find(family.architecture).family]
        assert family.table.keys() == of_default.table.keys()
    named = {builder.family for builder in architectures.BUILDERS.values()}
    assert named - {None} < FAMILIES.keys()
    assert architectures.find('spanbert_base').family == 'bert'
    assert architectures.find('xlmr_large').family == 'xlm-roberta'
    assert architectures.find('neobert').family is None


@pytest.mark.parametrize('family', FAMILIES.values(), ids=FAMILIES)
def test_every_key_of_a_default_config_is_known(family):
    """All keys that transformers has, not only those it writes."""
    for name in family.classes:
        required = {**family.required, **REQUIRED.get(family.model_type, {})}
        config = getattr(transformers, name).config_class(**required)
        architecture = family.read_config(config.to_dict())
        assert architecture.vocab_size == config.vocab_size
        assert architecture == family.read_config(config.to_diff_dict())
        assert architecture == family.read_config(required)  # our defaults are theirs


def test_an_early_config_of_modernbert_is_read():
    """As published with the first models, before configs listed the layers."""
    early = {
        'model_type': 'modernbert',
        'num_hidden_layers': 5,
        'global_attn_every_n_layers': 2,
        'local_attention': 32,
        'global_rope_theta': 9000.0,
        'local_rope_theta': 70,
        'layer_norm_eps': 1e-5,
        'position_embedding_type': 'absolute',
        'classifier_pooling': 'mean',
    }
    family = FAMILIES['modernbert']
    architecture = family.read_config(early)
    assert architecture.windows == (None, 16, None, 16, None)
    assert architecture.attention == Rotary(theta=9000.0, local_theta=70.0)
    assert architecture.classifier.pooling == 'mean'
    assert family.read_config(family.write_config(architecture)) == architecture
    of_theirs = transformers.ModernBertConfig(**early).to_dict()
    assert family.read_config(of_theirs) == architecture
    uneven = dataclasses.replace(architecture, windows=(None, 16, None, 8, None))
    with pytest.raises(UserError, match='a modernbert config cannot express'):
        family.write_config(uneven)
    for change, word in [
        ({'layer_types': ['full_attention']}, 'for each layer'),
        ({'rope_scaling': {'type': 'yarn'}}, 'rope_scaling'),
        ({'rope_parameters': {'full_attention': {'rope_type': 'yarn'}}}, 'only rope_type default'),
        ({'classifier_bias': True}, 'classifier_bias is True; only False'),
        ({'mlp_dropout': 0.1}, 'mlp_dropout and embedding_dropout differ'),
    ]:
        with pytest.raises(UserError, match=word):
            family.read_config(early | change)


def test_a_joint_kernel_is_split_into_query_key_and_value(tmp_path):
    published.model('ModernBertModel').save_pretrained(tmp_path)
    name = 'layers.0.attn.Wqkv.weight'
    whole = load_file(tmp_path / 'model.safetensors')[name]
    params = huggingface.load(tmp_path).params['encoder']['layers_0']['attention']
    for part, ours_name in enumerate(('query', 'key', 'value')):
        kernel = params[ours_name]['kernel']
        np.testing.assert_array_equal(kernel.reshape(20, 20).T, whole[20 * part : 20 * part + 20])
    published.edit(tmp_path, put(name, whole[:-1]))
    with pytest.raises(UserError, match=r'Wqkv.weight has the shape \[59, 20\], but'):
        huggingface.load(tmp_path)
    published.edit(tmp_path, lambda weights: weights.pop(name))
    with pytest.raises(UserError, match=r'lacks the weights model.layers.0.attn.Wqkv.weight'):
        huggingface.load(tmp_path)


def test_a_pooler_that_no_head_uses_is_read_but_not_exported(tmp_path):
    """The published roberta-base is a masked language model with a pooler."""
    published.model('RobertaForMaskedLM').save_pretrained(tmp_path / 'in')
    kernel = np.full((20, 20), 0.5, np.float32)
    names = {'roberta.pooler.dense.weight': kernel, 'roberta.pooler.dense.bias': kernel[0]}
    without = huggingface.load(tmp_path / 'in')
    assert not without.architecture.pooler
    published.edit(tmp_path / 'in', lambda weights: weights.update(names))
    loaded = huggingface.load(tmp_path / 'in')
    assert loaded.architecture.pooler
    np.testing.assert_array_equal(loaded.params['encoder']['pooler']['kernel'], kernel)
    _, lines = huggingface_export.save(loaded, tmp_path / 'out')
    assert lines == ['encoder/pooler is dropped: no head uses it']
    published.assert_same_bits(huggingface.load(tmp_path / 'out').params, without.params)


def test_labels_keep_their_order_and_number(tmp_path):
    loaded = huggingface.load(published.folder(tmp_path / 'in'))
    assert loaded.labels == ()
    named = dataclasses.replace(loaded, labels=('next', 'random'))
    huggingface_export.save(named, tmp_path / 'out')
    assert huggingface.load(tmp_path / 'out').labels == ('next', 'random')
    config = transformers.AutoConfig.from_pretrained(tmp_path / 'out')
    assert config.id2label == {0: 'next', 1: 'random'}

    names = {'id2label': {0: 'no', 1: 'yes', 2: 'both'}, 'label2id': {'no': 0, 'yes': 1, 'both': 2}}
    published.model('BertForTokenClassification', **names).save_pretrained(tmp_path / 'three')
    three = huggingface.load(tmp_path / 'three')
    assert three.labels == ('no', 'yes', 'both')
    assert three.params['token_classification']['head']['output']['kernel'].shape == (20, 3)
    with pytest.raises(UserError, match='3 outputs, but there are 2'):
        huggingface_export.save(dataclasses.replace(three, labels=('no', 'yes')), tmp_path / 'two')
    for change, word in [
        ({'num_labels': 2}, r'the shape \[3\], but the config implies \[2\]'),
        (
            {'id2label': {'0': 'no', '1': 'yes'}, 'label2id': {'no': 0, 'yes': 1}},
            r'\[3.*the config implies \[2',
        ),
        ({'id2label': {'0': 'no', '2': 'yes'}, 'label2id': None}, 'id2label has the keys'),
    ]:
        config = json.loads((tmp_path / 'three/config.json').read_text()) | change
        shutil.copytree(tmp_path / 'three', tmp_path / 'bad', dirs_exist_ok=True)
        (tmp_path / 'bad/config.json').write_text(json.dumps(config))
        with pytest.raises(UserError, match=word):
            huggingface.load(tmp_path / 'bad')

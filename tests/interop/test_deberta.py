"""Particulars of DeBERTa's folders; test_families.py covers import and export of all classes."""

import dataclasses
import json

import numpy as np
import pytest
import transformers
from safetensors.numpy import load_file

from bert_jax.errors import UserError
from bert_jax.interop import huggingface, huggingface_export, surgery
from bert_jax.interop.families import FAMILIES
from bert_jax.models import architectures
from tests.interop import published
from tests.parity.agreement import agree_trees

RANDOM = np.random.default_rng(0)


def random(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def test_the_joint_kernel_of_v1_is_split_head_by_head(tmp_path):
    published.model('DebertaModel').save_pretrained(tmp_path)
    weights = load_file(tmp_path / 'model.safetensors')
    joint = weights['encoder.layer.1.attention.self.in_proj.weight']
    attention = huggingface.load(tmp_path).params['encoder']['layers_1']['attention']
    for part, name in enumerate(('query', 'key', 'value')):
        kernel = attention[name]['kernel']  # [D, heads, head_size]
        for head in range(4):
            row = 15 * head + 5 * part
            np.testing.assert_array_equal(kernel[:, head].T, joint[row : row + 5])
    assert attention['key'].keys() == {'kernel'}
    bias = weights['encoder.layer.1.attention.self.v_bias']
    np.testing.assert_array_equal(attention['value']['bias'].ravel(), bias)


def test_the_kernel_of_the_convolution_is_transposed(tmp_path):
    published.model('DebertaV2Model').save_pretrained(tmp_path)
    theirs = load_file(tmp_path / 'model.safetensors')['encoder.conv.conv.weight']
    kernel = huggingface.load(tmp_path).params['encoder']['convolution']['dense']['kernel']
    assert kernel.shape == (3, 20, 20)
    np.testing.assert_array_equal(kernel[2, 7], theirs[:, 7, 2])


def test_a_v3_folder_as_published_by_microsoft(tmp_path, capsys):
    """Such a folder has both heads under their own names, absolute positions for the mask decoder,
    and leftovers of embedding sharing in training."""
    original = published.model('DebertaV2ForMaskedLM', legacy=False, conv_kernel_size=0)
    original.save_pretrained(tmp_path / 'in')
    detection = {
        'mask_predictions.dense.weight': random(20, 20),
        'mask_predictions.dense.bias': random(20),
        'mask_predictions.LayerNorm.weight': random(20),
        'mask_predictions.LayerNorm.bias': random(20),
        'mask_predictions.classifier.weight': random(1, 20),
        'mask_predictions.classifier.bias': random(1),
    }
    position = random(19, 20)
    shared = {'deberta.embeddings.word_embeddings._weight': random(131, 20)}

    def complete(weights):
        assert 'lm_predictions.lm_head.dense.weight' in weights
        weights |= detection | shared | {'deberta.embeddings.position_embeddings.weight': position}

    without = huggingface.load(tmp_path / 'in')
    agree_trees(published.ours(without), published.theirs(original, without.architecture))
    published.edit(tmp_path / 'in', complete)
    loaded = huggingface.load(tmp_path / 'in')
    assert loaded.heads == ('mlm', 'rtd')
    skipped = 'skipped training-only weights: deberta.embeddings.word_embeddings._weight'
    assert skipped in capsys.readouterr().err
    assert loaded.architecture == without.architecture.changed({'positions': 'mask_decoder'})
    np.testing.assert_array_equal(loaded.params['encoder']['embeddings']['position'], position)
    computed, before = published.ours(loaded), published.ours(without)
    assert abs(computed['mlm_logits'] - before['mlm_logits']).max() > 1
    np.testing.assert_array_equal(computed['all_hidden'], before['all_hidden'])

    huggingface_export.save(loaded, tmp_path / 'out')
    again = huggingface.load(tmp_path / 'out')
    assert again.architecture == loaded.architecture
    published.assert_same_bits(again.params, loaded.params)
    written = load_file(tmp_path / 'out/model.safetensors')
    for name, array in detection.items():
        assert written[name].tobytes() == array.tobytes()
    opened, report = transformers.DebertaV2ForMaskedLM.from_pretrained(
        tmp_path / 'out', output_loading_info=True, attn_implementation='eager'
    )
    assert not any(report[key] for key in ('missing_keys', 'unexpected_keys', 'mismatched_keys'))
    # Without the mask decoder, which transformers lacks.
    agree_trees(before, published.theirs(opened.eval(), without.architecture))


def test_more_positions_do_not_change_relative_distances(tmp_path):
    folder = published.folder(tmp_path / 'in', 'DebertaV2ForMaskedLM')
    position = random(19, 20)
    name = 'deberta.embeddings.position_embeddings.weight'
    published.edit(folder, published.put(name, position))
    loaded = huggingface.load(folder)
    longer = dataclasses.replace(loaded.architecture, max_position_embeddings=30)
    with pytest.raises(UserError, match='attention.max_distance is 19 there and 30 here'):
        surgery.fit(loaded, longer, loaded.tokenizer, ['mlm'])
    longer = longer.changed({'attention.max_distance': 19})
    fitted, _ = surgery.fit(loaded, longer, loaded.tokenizer, ['mlm'])
    assert fitted.params['encoder']['embeddings']['position'].shape == (30, 20)
    agree_trees(published.ours(fitted), published.ours(loaded))


def test_the_config_of_every_size_is_written_as_it_is_read():
    for model_type in ('deberta', 'deberta-v2'):
        family = FAMILIES[model_type]
        names = [n for n, b in architectures.BUILDERS.items() if b.family == model_type]
        assert len(names) > 3
        for architecture in map(architectures.build, names):
            config = json.loads(json.dumps(family.write_config(architecture)))
            assert family.read_config(config) == architecture


def test_position_projections_of_their_own_are_read(tmp_path):
    original = published.model(
        'DebertaV2Model',
        share_att_key=False,
        norm_rel_ebd='none',
        position_buckets=-1,
        max_relative_positions=7,
        position_biased_input=True,
        conv_act='gelu',
        type_vocab_size=2,
        pos_att_type=['p2c', 'c2p'],
    )
    original.save_pretrained(tmp_path)
    loaded = huggingface.load(tmp_path)
    architecture = loaded.architecture
    assert architecture.attention.max_distance == 7
    assert architecture.attention.buckets is None
    assert FAMILIES['deberta-v2'].read_config(
        FAMILIES['deberta-v2'].write_config(architecture)
    ) == (architecture)
    agree_trees(published.ours(loaded), published.theirs(original, architecture))


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'pos_att_type': 'c2p|p2p'}, "pos_att_type is 'c2p|p2p'; .* must be c2p, p2c or both"),
        (
            {'pos_att_type': None},
            'pos_att_type is None; it must be c2p, p2c or both with relative_attention',
        ),
        ({'relative_attention': False}, 'pos_att_type is .* empty without'),
        ({'attention_head_size': 3}, 'attention_head_size is 3; only 5 is supported'),
        ({'embedding_size': 12}, 'embedding_size is 12; only 20 is supported'),
        ({'norm_rel_ebd': 'batch_norm'}, "norm_rel_ebd is 'batch_norm'; known: none, layer_norm"),
        ({'conv_groups': 2}, 'conv_groups is 2; only 1 is supported'),
        ({'conv_act': 'mish'}, "conv_act is 'mish'; known: gelu"),
        ({'position_buckets': 1.5}, 'position_buckets is 1.5, expected int'),
        ({'pooler_dropout': 0.1}, 'pooler_dropout is 0.1; only 0 is supported'),
    ],
)
def test_an_unsupported_value_is_named(change, message):
    config = published.config('DebertaV2Model').to_dict() | change
    with pytest.raises(UserError, match=message.replace('|', r'\|')):
        FAMILIES['deberta-v2'].read_config(config)

"""Folders of models whose code lies on the Hub beside them: Nomic's and GTE's (`new`).

transformers 5 has the same models under other names, which are the reference.
"""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from bert_jax.errors import UserError
from bert_jax.interop import huggingface, huggingface_export
from tests.interop import published
from tests.parity.agreement import agree_trees

# Keys of config.json of Alibaba-NLP/gte-multilingual-base besides the sizes.
NEW = {
    'model_type': 'new',
    'architectures': ['NewForMaskedLM'],
    'auto_map': {
        'AutoConfig': 'Alibaba-NLP/new-impl--configuration.NewConfig',
        'AutoModelForMaskedLM': 'Alibaba-NLP/new-impl--modeling.NewForMaskedLM',
    },
    'layer_norm_type': 'layer_norm',
    'logn_attention_clip1': False,
    'logn_attention_scale': False,
    'pack_qkv': True,
    'position_embedding_type': 'rope',
    'rope_theta': 50.0,
    'rope_scaling': {'factor': 3.0, 'type': 'ntk'},
    'unpad_inputs': False,
    'use_memory_efficient_attention': False,
}
# Of nomic-ai/nomic-embed-text-v1.5, with the sizes of `published.SIZES`.
NOMIC = {
    'model_type': 'nomic_bert',
    'architectures': ['NomicBertForMaskedLM'],
    'auto_map': {'AutoModel': 'nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel'},
    'activation_function': 'swiglu',
    'attn_pdrop': 0.0,
    'causal': False,
    'layer_norm_epsilon': 1e-12,
    'max_trained_positions': 2048,
    'mlp_fc1_bias': False,
    'mlp_fc2_bias': False,
    'n_embd': 20,
    'n_head': 2,
    'n_inner': 28,
    'n_layer': 2,
    'n_positions': 19,
    'parallel_block': False,
    'prenorm': False,
    'qkv_proj_bias': False,
    'resid_pdrop': 0.0,
    'rotary_emb_base': 40,
    'rotary_emb_fraction': 1.0,
    'rotary_emb_interleaved': False,
    'rotary_emb_scale_base': None,
    'rotary_scaling_factor': None,
    'type_vocab_size': 2,
    'use_rms_norm': False,
    'vocab_size': 131,
}


def write(folder, made, config, prefixes):
    """Save a model under another prefix and with another config."""
    made.save_pretrained(folder)
    file = folder / 'model.safetensors'
    old, new = prefixes
    arrays = {
        new + name.removeprefix(old) if name.startswith(old) else name: array
        for name, array in load_file(file).items()
    }
    save_file(arrays, file, metadata={'format': 'pt'})
    (folder / 'config.json').write_text(json.dumps(config))
    return folder


def test_a_folder_of_new_is_read_and_becomes_gte(tmp_path):
    rope = {'rope_type': 'default', 'rope_theta': 50.0}
    made = published.model('GteForMaskedLM', type_vocab_size=2, rope_parameters=rope)
    sizes = published.SIZES | {'num_attention_heads': 2, 'type_vocab_size': 2}
    folder = write(tmp_path / 'in', made, NEW | sizes, ('gte.', 'new.'))
    # Fixed NTK with factor s: frequencies (s θ)^(-2j/K) / s^(2/K), for K features of a head.
    size, scale, theta = 10, 3.0, 50.0
    pairs = torch.arange(0, size, 2) / size
    made.gte.rotary_emb.inv_freq = 1 / (scale * theta) ** pairs / scale ** (2 / size)
    loaded = huggingface.load(folder)
    assert (loaded.family, loaded.heads) == ('gte', ('mlm',))
    ours = published.ours(loaded)
    agree_trees(ours, published.theirs(made, loaded.architecture))
    huggingface_export.save(loaded, tmp_path / 'out')
    opened = published.open_without_complaints(tmp_path / 'out')
    agree_trees(ours, published.theirs(opened, loaded.architecture))


def test_a_folder_of_nomic_s_own_code_is_read(tmp_path):
    rope = {'rope_type': 'default', 'rope_theta': 40.0}
    made = published.model('NomicBertForMaskedLM', rope_parameters=rope)
    folder = write(tmp_path, made, NOMIC, ('nomic_bert.', 'bert.'))
    loaded = huggingface.load(folder)
    agree_trees(published.ours(loaded), published.theirs(made, loaded.architecture))


@pytest.mark.parametrize(
    ('config', 'change', 'message'),
    [
        (NEW, {'rope_scaling': {'type': 'yarn', 'factor': 2.0}}, 'only the types default, linear'),
        (NEW, {'auto_map': {'AutoModel': 'other.Model'}}, 'auto_map is .* only None'),
        (NEW, {'layer_norm_type': 'rms_norm'}, 'layer_norm_type'),
        (NOMIC, {'num_experts': 8}, 'num_experts is 8; only 0'),
        (NOMIC, {'rotary_emb_fraction': 0.5}, 'rotary_emb_fraction is 0.5'),
        (NOMIC, {'rotary_emb_base': 'x'}, "rope_theta is 'x'"),
    ],
)
def test_what_the_own_code_can_do_beyond_is_refused(config, change, message, tmp_path):
    sizes = published.SIZES | {'num_attention_heads': 2}
    (tmp_path / 'config.json').write_text(json.dumps(config | sizes | change))
    save_file({'x': np.zeros(1, np.float32)}, tmp_path / 'model.safetensors')
    with pytest.raises(UserError, match=message):
        huggingface.load(tmp_path)

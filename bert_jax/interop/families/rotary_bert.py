"""BERT with rotary positions: Nomic's, GTE (`new` before transformers 5) and Jina's version 3.

As transformers writes them (modeling_nomic_bert.py, modeling_gte.py,
modeling_jina_embeddings_v3.py), with the names of the folders' own code: `modeling_nomic_bert.py`
in nomic-ai/contrastors and Alibaba-NLP's `new-impl`.
"""

import dataclasses
import functools
from collections.abc import Mapping

from bert_jax.interop.families import roberta, rope
from bert_jax.interop.families.family import (
    ACTIVATIONS,
    BERT_KEYS,
    Family,
    Key,
    common_classes,
    with_defaults,
    with_usual_heads,
)
from bert_jax.models.architecture import Architecture
from bert_jax.models.architecture_parts import Rotary
from bert_jax.types import JsonRecord, RecordView


def _complete(theta: float, architecture: Architecture, config: RecordView) -> Architecture:
    rotary = rope.read(config, theta, architecture.head_size)
    return with_usual_heads(dataclasses.replace(architecture, attention=rotary))


def _more_keys(architecture: Architecture) -> JsonRecord:
    assert isinstance(architecture.attention, Rotary)
    return {'rope_parameters': rope.write(architecture.attention)}


def _table(prefix: str, layer: str, names: Mapping[str, str], attention: str) -> dict[str, str]:
    """Return the names of the encoder; one matrix holds queries, keys and values."""
    joint = {
        f'attention/{part}': f'{attention}|{number}/3'
        for number, part in enumerate(('query', 'key', 'value'))
    }
    embeddings = {'token': 'word_embeddings.weight', 'type': 'token_type_embeddings.weight'}
    return {
        f'encoder/embeddings/{ours}': f'{prefix}.embeddings.{name}'
        for ours, name in embeddings.items()
    } | {f'encoder/layers_#/{ours}': f'{layer}.{name}' for ours, name in {**joint, **names}.items()}


def _classes(prefix: str) -> dict[str, tuple[str, ...]]:
    classes = common_classes(prefix)
    del classes[f'{prefix}ForMultipleChoice'], classes[f'{prefix}ForQuestionAnswering']
    return classes


def _without_pooler(prefix: str) -> tuple[str, ...]:
    return tuple(
        name for name in _classes(prefix) if not name.endswith('ForSequenceClassification')
    )


# GPT-2's names, in folders of Nomic's own code.
_NOMIC_OLD = {
    'activation_function': 'hidden_act',
    'attn_pdrop': 'attention_probs_dropout_prob',
    'layer_norm_epsilon': 'layer_norm_eps',
    'n_embd': 'hidden_size',
    'n_head': 'num_attention_heads',
    'n_inner': 'intermediate_size',
    'n_layer': 'num_hidden_layers',
    'n_positions': 'max_position_embeddings',
    'resid_pdrop': 'hidden_dropout_prob',
    'rotary_emb_base': 'rope_theta',
}
# What that code can be told but published models are not; nomic-embed-text-v2-moe has experts.
_NOMIC_FIXED: dict[str, object] = {'num_experts': 0, 'rotary_emb_fraction': 1.0}
_NOMIC_FIXED |= dict.fromkeys(('rotary_emb_scale_base', 'rotary_scaling_factor'))
_NOMIC_FIXED |= dict.fromkeys(
    ('causal', 'parallel_block', 'prenorm', 'qkv_proj_bias', 'rotary_emb_interleaved'), False
)
_NOMIC_FIXED |= dict.fromkeys(('mlp_fc1_bias', 'mlp_fc2_bias', 'use_rms_norm'), False)

NOMIC = Family(
    model_type='nomic_bert',
    architecture='nomic_bert',
    keys=with_defaults(
        BERT_KEYS,
        vocab_size=30528,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=2048,
    )
    | {
        'head_dim': Key('size_per_head', None, kind=int),
        'hidden_act': Key('hidden_act', 'silu', {**ACTIVATIONS, 'swiglu': 'silu'}),
    },
    complete=functools.partial(_complete, 1000.0),
    read_by_complete=rope.READ,
    more_keys=lambda architecture: _more_keys(architecture) | {'head_dim': architecture.head_size},
    fixed=_NOMIC_FIXED,
    old_keys=_NOMIC_OLD,
    old_prefixes=('bert.',),
    remote_code=r'(nomic-ai/nomic-bert-2048--)?(modeling|configuration)_hf_nomic_bert\.\w+',
    table=_table(
        'nomic_bert',
        'nomic_bert.encoder.layers.#',
        {
            'attention/output': 'attn.out_proj',
            'attention_norm': 'norm1',
            'feedforward/input': 'mlp.gated',  # fc12 and fc11, see `joined`
            'feedforward/output': 'mlp.fc2',
            'feedforward_norm': 'norm2',
        },
        'attn.Wqkv',
    )
    | {
        'encoder/embeddings/norm': 'nomic_bert.emb_ln',
        'encoder/pooler': 'nomic_bert.pooler.dense',
        'mlm/head/transform': 'cls.predictions.transform.dense',
        'mlm/head/norm': 'cls.predictions.transform.layer_norm',
        'mlm/head/bias': 'cls.predictions.bias',
        'mlm/head/decoder': 'cls.predictions.decoder.weight',
        'sequence_classification/head/output': 'classifier',
        'token_classification/head/output': 'classifier',
    },
    joined={'mlp.gated.weight': ('mlp.fc12.weight', 'mlp.fc11.weight')},
    prefix='nomic_bert.',
    classes=_classes('NomicBert'),
    without_pooler=_without_pooler('NomicBert'),
    pad_token_id=0,  # the class takes no null
    decoder='cls.predictions.decoder',
)

GTE = Family(
    model_type='gte',
    architecture='gte',
    keys=with_defaults(
        BERT_KEYS,
        vocab_size=250_048,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=8192,
        type_vocab_size=1,
    ),
    complete=functools.partial(_complete, 160_000.0),
    read_by_complete=rope.READ,
    more_keys=_more_keys,
    table=_table(
        'gte',
        'gte.encoder.layer.#',
        {
            'attention/output': 'attention.o_proj',
            'attention_norm': 'attn_ln',
            'feedforward/input': 'mlp.up_gate_proj|0/1 swapped',  # the value, then the gate
            'feedforward/output': 'mlp.down_proj',
            'feedforward_norm': 'mlp_ln',
        },
        'attention.qkv_proj',
    )
    | {
        'encoder/embeddings/norm': 'gte.embeddings.LayerNorm',
        'encoder/pooler': 'gte.pooler.dense',
        'mlm/head/transform': 'lm_head.dense',
        'mlm/head/norm': 'lm_head.norm',
        'mlm/head/bias': 'lm_head.decoder.bias',
        'mlm/head/decoder': 'lm_head.decoder.weight',
        'sequence_classification/head/output': 'classifier',
        'token_classification/head/output': 'classifier',
    },
    prefix='gte.',
    classes=_classes('Gte'),
    without_pooler=_without_pooler('Gte'),
    decoder='lm_head.decoder',
)
# The same model in folders of its own code; it is written as `gte`.
NEW = dataclasses.replace(
    GTE,
    keys=with_defaults(GTE.keys, vocab_size=30528, max_position_embeddings=2048, type_vocab_size=2),
    complete=functools.partial(_complete, 10_000.0),
    fixed={
        'layer_norm_type': 'layer_norm',
        'logn_attention_scale': False,
        'pack_qkv': True,
        'position_embedding_type': 'rope',
    },
    old_prefixes=('new.',),
    old_classes=('New', 'Gte'),
    remote_code=r'(Alibaba-NLP/new-impl--)?(modeling|configuration)\.New\w+',
)

_JINA_CLASSES = common_classes('JinaEmbeddingsV3')
del _JINA_CLASSES['JinaEmbeddingsV3ForMultipleChoice']
_LIKE_ROBERTA = {
    ours: name
    for ours, name in roberta.ROBERTA.table.items()
    if not ours.startswith(('encoder/', 'multiple_choice/'))
}
JINA_V3 = Family(
    model_type='jina_embeddings_v3',
    architecture='jina_v3',
    keys=with_defaults(
        BERT_KEYS,
        vocab_size=250_002,
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        max_position_embeddings=8194,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
    ),
    complete=functools.partial(_complete, 20_000.0),
    read_by_complete=rope.READ,
    more_keys=_more_keys,
    table=_table(
        'roberta',
        'roberta.encoder.layers.#',
        {
            'attention/output': 'mixer.out_proj',
            'attention_norm': 'norm1',
            'feedforward/input': 'mlp.fc1',
            'feedforward/output': 'mlp.fc2',
            'feedforward_norm': 'norm2',
        },
        'mixer.Wqkv',
    )
    | _LIKE_ROBERTA
    | {'encoder/embeddings/norm': 'roberta.emb_ln', 'encoder/pooler': 'roberta.pooler.dense'},
    prefix='roberta.',
    classes=_JINA_CLASSES,
    without_pooler=tuple(name for name in _JINA_CLASSES if not name.endswith('Model')),
    token_keys=roberta.ROBERTA.token_keys,
    decoder='lm_head.decoder',
)

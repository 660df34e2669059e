"""DeBERTa v1 (modeling_deberta.py of transformers), v2 and v3 (modeling_deberta_v2.py)."""

import dataclasses
from collections.abc import Mapping

from bert_jax.errors import UserError
from bert_jax.interop.families.family import (
    ACTIVATIONS,
    BERT_KEYS,
    Family,
    Key,
    bert_like,
    common_classes,
    with_defaults,
)
from bert_jax.models.architecture import Architecture
from bert_jax.models.architecture_parts import (
    ConvolutionOptions,
    Disentangled,
    LearnedPositions,
    NoPositions,
    PositionTerm,
    Standard,
)
from bert_jax.types import JsonRecord, JsonView, RecordView

_TERMS: dict[str, PositionTerm] = {
    'c2p': 'content_to_position',
    'p2c': 'position_to_content',
}
# Keys that `_complete` and `_complete_v2` read, and their types.
_READ = {
    'attention_head_size': int,
    'embedding_size': int,
    'max_relative_positions': int,
    'pooler_hidden_size': int,
    'pos_att_type': list | str,
    'relative_attention': bool,
}
_READ_V2 = _READ | {
    'conv_act': str,
    'conv_kernel_size': int,
    'norm_rel_ebd': str,
    'position_buckets': int,
    'share_att_key': bool,
}


def _complete(architecture: Architecture, config: JsonView) -> Architecture:
    """Add the fields of absolute and relative positions."""
    widths = {
        'attention_head_size': architecture.head_size,
        'embedding_size': architecture.hidden_size,
        'pooler_hidden_size': architecture.hidden_size,
    }
    for name, width in widths.items():
        if config.get(name, width) != width:
            raise UserError(f'{name} is {config[name]!r}; only {width} is supported')
    terms = config.get('pos_att_type') or []
    if isinstance(terms, str):
        terms = [term.strip() for term in terms.lower().split('|')]
    relative = config.get('relative_attention', False)
    if bool(terms) != relative or any(term not in list(_TERMS) for term in terms):
        raise UserError(
            f'pos_att_type is {config.get("pos_att_type")!r}; it must be c2p, p2c or both with '
            'relative_attention, and empty without'
        )
    if not relative:
        return dataclasses.replace(architecture, attention=Standard())
    attention = Disentangled(
        terms=tuple(ours for theirs, ours in _TERMS.items() if theirs in terms),
        max_distance=_positive(config, 'max_relative_positions'),
    )
    return dataclasses.replace(architecture, attention=attention)


def _complete_v2(architecture: Architecture, config: RecordView) -> Architecture:
    """Add the buckets and projections of relative positions, and the convolution."""
    norm = config.get('norm_rel_ebd', 'none')
    if norm not in ('none', 'layer_norm'):
        raise UserError(f'norm_rel_ebd is {norm!r}; known: none, layer_norm')
    activation = config.get('conv_act', 'tanh')
    if activation not in ACTIVATIONS:
        raise UserError(f'conv_act is {activation!r}; known: {", ".join(ACTIVATIONS)}')
    architecture = _complete(architecture, config)
    attention = architecture.attention
    if attention.kind == 'disentangled':
        attention = dataclasses.replace(
            attention,
            buckets=_positive(config, 'position_buckets'),
            shared_projections=bool(config.get('share_att_key', False)),
            norm=norm == 'layer_norm',
        )
    elif norm == 'layer_norm':
        raise UserError('norm_rel_ebd is layer_norm, but relative_attention is not set')
    width = _positive(config, 'conv_kernel_size')
    return dataclasses.replace(
        architecture,
        attention=attention,
        convolution=ConvolutionOptions(width, ACTIVATIONS[activation]) if width else None,
    )


def _positive(config: JsonView, name: str) -> int | None:
    """A positive value; None if the key is absent, 0 or negative, which all mean "none"."""
    value = config.get(name, -1)
    return value if value > 0 else None


def _more_keys(architecture: Architecture) -> JsonRecord:
    attention = architecture.attention
    keys: JsonRecord = {'relative_attention': False, 'pos_att_type': []}
    if attention.kind == 'disentangled':
        keys = {
            'relative_attention': True,
            'pos_att_type': [their for their, our in _TERMS.items() if our in attention.terms],
            'max_relative_positions': attention.max_distance or -1,
        }
    return keys | {'pooler_hidden_size': architecture.hidden_size}


def _more_keys_v2(architecture: Architecture) -> JsonRecord:
    activations = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    attention, keys = architecture.attention, _more_keys(architecture)
    if attention.kind == 'disentangled':
        keys |= {
            'position_buckets': attention.buckets or -1,
            'share_att_key': attention.shared_projections,
            'norm_rel_ebd': 'layer_norm' if attention.norm else 'none',
        }
    convolution = architecture.convolution or ConvolutionOptions(1)
    return keys | {
        'conv_kernel_size': convolution.width if architecture.convolution else 0,
        'conv_act': activations[convolution.activation],
    }


def _table(attention: Mapping[str, str]) -> dict[str, str]:
    names = {f'attention/{ours}': f'attention.self.{name}' for ours, name in attention.items()}
    return bert_like('deberta', 'deberta.encoder.layer.#', names) | {
        'encoder/relative_positions/embedding': 'deberta.encoder.rel_embeddings.weight',
        'encoder/relative_positions/norm': 'deberta.encoder.LayerNorm',
        'encoder/convolution/dense': 'deberta.encoder.conv.conv',
        'encoder/convolution/norm': 'deberta.encoder.conv.LayerNorm',
        'mlm/head/transform': 'cls.predictions.transform.dense',
        'mlm/head/norm': 'cls.predictions.transform.LayerNorm',
        'mlm/head/bias': 'cls.predictions.bias',
        'mlm/head/decoder': 'cls.predictions.decoder.weight',
        'rtd/head/transform': 'mask_predictions.dense',
        'rtd/head/norm': 'mask_predictions.LayerNorm',
        'rtd/head/output': 'mask_predictions.classifier',
        'sequence_classification/head/transform': 'pooler.dense',
        'multiple_choice/head/transform': 'pooler.dense',
    }


_KEYS = with_defaults(BERT_KEYS, vocab_size=50265, type_vocab_size=0, layer_norm_eps=1e-7) | {
    'position_biased_input': Key(
        'positions', True, {True: LearnedPositions(), False: NoPositions()}
    ),
    'cls_dropout': Key('classifier.dropout', None),
    'pooler_hidden_act': Key('classifier.activation', 'gelu', ACTIVATIONS),
}
del _KEYS['classifier_dropout']
_V1_CLASSES, _V2_CLASSES = common_classes('Deberta'), common_classes('DebertaV2')
del _V1_CLASSES['DebertaForMultipleChoice']

V1 = Family(
    model_type='deberta',
    architecture='deberta',
    keys=_KEYS,
    complete=_complete,
    more_keys=_more_keys,
    fixed={'pooler_dropout': 0, 'talking_head': False},
    read_by_complete=_READ,
    # One kernel holds the query, key and value of every head, head by head.
    table=_table(
        {
            'query/kernel': 'in_proj.weight|0/3 by head',
            'key/kernel': 'in_proj.weight|1/3 by head',
            'value/kernel': 'in_proj.weight|2/3 by head',
            'query/bias': 'q_bias',
            'value/bias': 'v_bias',
            'position_key': 'pos_proj',
            'position_query': 'pos_q_proj',
        }
    ),
    prefix='deberta.',
    classes=_V1_CLASSES,
    old_names={'lm_predictions.lm_head.bias': 'cls.predictions.bias'}
    | {
        f'lm_predictions.lm_head.{weight}': f'cls.predictions.transform.{weight}'
        for weight in ('dense.weight', 'dense.bias', 'LayerNorm.weight', 'LayerNorm.bias')
    },
    decoder='cls.predictions.decoder',
)

V2 = dataclasses.replace(
    V1,
    model_type='deberta-v2',
    architecture='deberta_v2',
    keys=with_defaults(
        _KEYS,
        vocab_size=128100,
        hidden_size=1536,
        num_hidden_layers=24,
        num_attention_heads=24,
        intermediate_size=6144,
    ),
    complete=_complete_v2,
    more_keys=_more_keys_v2,
    fixed={'pooler_dropout': 0, 'conv_groups': 1},
    read_by_complete=_READ_V2,
    table=_table(
        {
            'query': 'query_proj',
            'key': 'key_proj',
            'value': 'value_proj',
            'position_key': 'pos_key_proj',
            'position_query': 'pos_query_proj',
        }
    ),
    classes=_V2_CLASSES,
    optional_heads={'DebertaV2ForMaskedLM': ('rtd',)},
    # Differences from the generator's embeddings; `weight` already contains them.
    training_only=(
        'deberta.embeddings.position_embeddings._weight',
        'deberta.embeddings.word_embeddings._weight',
    ),
)

"""ALBERT as transformers writes it (modeling_albert.py)."""

from bert_jax.interop.families.family import (
    BERT_FIXED,
    BERT_KEYS,
    Family,
    Key,
    bert_like,
    common_classes,
    with_defaults,
)
from bert_jax.models.architecture import Architecture
from bert_jax.types import JsonRecord, JsonView

_LAYER = 'albert.encoder.albert_layer_groups.#group.albert_layers.#member'
_KEYS = {name: key for name, key in BERT_KEYS.items() if name != 'classifier_dropout'}


def _complete(architecture: Architecture, config: JsonView) -> Architecture:
    """Count all layers: num_hidden_layers counts a group of inner_group_num layers as one."""
    inner = config.get('inner_group_num', 1)
    layers = architecture.num_layers * inner
    return architecture.changed({'num_layers': layers, 'sharing.layers_per_group': inner})


def _more_keys(architecture: Architecture) -> JsonRecord:
    inner = architecture.sharing.layers_per_group if architecture.sharing else 1
    return {'inner_group_num': inner, 'num_hidden_layers': architecture.num_layers // inner}


FAMILY = Family(
    model_type='albert',
    architecture='albert',
    keys=with_defaults(
        _KEYS,
        vocab_size=30000,
        hidden_size=4096,
        num_attention_heads=64,
        intermediate_size=16384,
        hidden_act='gelu_new',
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    | {
        'embedding_size': Key('embedding_size', 128),
        'num_hidden_groups': Key('sharing.groups', 1),
        'classifier_dropout_prob': Key('classifier.dropout', 0.1),
    },
    complete=_complete,
    read_by_complete={'inner_group_num': int},
    more_keys=_more_keys,
    fixed=BERT_FIXED
    | {
        # Keys of the original code.
        'down_scale_factor': 1,
        'gap_size': 0,
        'net_structure_type': 0,
        'num_memory_blocks': 0,
        'layers_to_keep': [],
    },
    table=bert_like(
        'albert',
        _LAYER,
        {
            'attention/query': 'attention.query',
            'attention/key': 'attention.key',
            'attention/value': 'attention.value',
            'attention/output': 'attention.dense',
            'attention_norm': 'attention.LayerNorm',
            'feedforward/input': 'ffn',
            'feedforward/output': 'ffn_output',
            'feedforward_norm': 'full_layer_layer_norm',
        },
    )
    | {
        'encoder/embeddings/projection': 'albert.encoder.embedding_hidden_mapping_in',
        'encoder/pooler': 'albert.pooler',
        'mlm/head/transform': 'predictions.dense',
        'mlm/head/norm': 'predictions.LayerNorm',
        'mlm/head/bias': 'predictions.bias',
        'mlm/head/decoder': 'predictions.decoder.weight',
        'sop/head/dense': 'sop_classifier.classifier',
    },
    prefix='albert.',
    classes=common_classes('Albert') | {'AlbertForPreTraining': ('mlm', 'sop')},
    without_pooler=(
        'AlbertForMaskedLM',
        'AlbertForTokenClassification',
        'AlbertForQuestionAnswering',
    ),
    token_keys={'pad_token_id': 'pad_id', 'bos_token_id': 'cls_id', 'eos_token_id': 'sep_id'},
    decoder='predictions.decoder',
)

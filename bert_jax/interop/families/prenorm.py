"""RoBERTa and BERT with norms before the layers, as transformers writes them.

modeling_roberta_prelayernorm.py, modeling_xlm_roberta_xl.py, modeling_megatron_bert.py.
"""

import dataclasses
from collections.abc import Mapping

from bert_jax.interop.families import bert, roberta
from bert_jax.interop.families.family import Family, renamed, with_defaults


def _normed(family: Family, names: Mapping[str, str]) -> Family:
    """Return a family with other names of norms: those of a layer, and `final_norm`."""
    layer = family.table['encoder/layers_#/feedforward/output'].removesuffix('.output.dense')
    prefix = family.prefix.removesuffix('.')
    norms = {
        'encoder/layers_#/attention_norm': f'{layer}.{names["attention_norm"]}',
        'encoder/layers_#/feedforward_norm': f'{layer}.{names["feedforward_norm"]}',
        'encoder/final_norm': f'{prefix}.{names["final_norm"]}',
    }
    return dataclasses.replace(family, table={**family.table, **norms})


def _without_embedding_norm(family: Family) -> Family:
    table = {ours: name for ours, name in family.table.items() if ours != 'encoder/embeddings/norm'}
    return dataclasses.replace(family, table=table)


ROBERTA = _normed(
    renamed(
        roberta.ROBERTA,
        'roberta-prelayernorm',
        'RobertaPreLayerNorm',
        'roberta_prelayernorm.',
        architecture='roberta_prelayernorm',
    ),
    {
        'attention_norm': 'attention.LayerNorm',
        'feedforward_norm': 'intermediate.LayerNorm',
        'final_norm': 'LayerNorm',
    },
)
_XL_SIZES = dict(hidden_size=2560, num_hidden_layers=36, num_attention_heads=32)
XLM_R_XL = _without_embedding_norm(
    _normed(
        renamed(
            roberta.ROBERTA,
            'xlm-roberta-xl',
            'XLMRobertaXL',
            architecture='xlmr_xl',
            keys=with_defaults(
                roberta.ROBERTA.keys,
                vocab_size=250880,
                intermediate_size=10240,
                max_position_embeddings=514,
                type_vocab_size=1,
                layer_norm_eps=1e-5,
                **_XL_SIZES,
            ),
        ),
        {
            'attention_norm': 'attention.self_attn_layer_norm',
            'feedforward_norm': 'LayerNorm',
            'final_norm': 'encoder.LayerNorm',
        },
    )
)
MEGATRON = _without_embedding_norm(
    _normed(
        renamed(
            bert.FAMILY,
            'megatron-bert',
            'MegatronBert',
            architecture='megatron_bert',
            causal_class='MegatronBertForCausalLM',
            keys=with_defaults(
                bert.FAMILY.keys,
                vocab_size=29056,
                hidden_size=1024,
                num_hidden_layers=24,
                num_attention_heads=16,
                intermediate_size=4096,
            ),
        ),
        {
            'attention_norm': 'attention.ln',
            'feedforward_norm': 'ln',
            'final_norm': 'encoder.ln',
        },
    )
)

"""Models that only code on the Hub opens: NeoBERT, Jina's embeddings version 2, and MosaicBERT.

Their folders are read, but not written. Sources: `model.py` in chandar-lab/NeoBERT on the Hub and
`src/neobert/model` on GitHub; jinaai/jina-bert-implementation `modeling_bert.py`; mosaicml/examples
`examples/benchmarks/bert/src/bert_layers.py`.
"""

import dataclasses

from bert_jax.interop.families import bert
from bert_jax.interop.families.family import BERT_KEYS, Family, Key, common_classes, with_defaults
from bert_jax.models.architecture import Architecture
from bert_jax.types import JsonView

_NEO = 'model.transformer_encoder.#'


def _complete_neobert(architecture: Architecture, _: JsonView) -> Architecture:
    """Count the features between the projections: two thirds, rounded up to a multiple of 8."""
    inner = -(-int(2 * architecture.intermediate_size / 3) // 8) * 8
    changes = {'prediction.tied': False, 'prediction.transform': False, 'biases.others': True}
    return architecture.changed({'intermediate_size': inner, **changes})


NEOBERT = Family(
    model_type='neobert',
    architecture='neobert',
    keys={
        'vocab_size': Key('vocab_size', 30522),
        'hidden_size': Key('hidden_size', 768),
        'num_hidden_layers': Key('num_layers', 28),
        'num_attention_heads': Key('num_heads', 12),
        'intermediate_size': Key('intermediate_size', 3072),
        'max_length': Key('max_position_embeddings', 1024),
        'norm_eps': Key('layer_norm_eps', 1e-6),
        'decoder_init_range': Key('initializer_range', 0.02),
        'classifier_dropout': Key('classifier.dropout', 0.1),
    },
    complete=_complete_neobert,
    read_by_complete={'classifier_init_range': float, 'embedding_init_range': float},
    fixed={'hidden_act': 'SwiGLU', 'ngpt': False, 'rms_norm': True, 'rope': True},
    remote_code=r'(chandar-lab/NeoBERT--)?model\.NeoBERT\w*',
    table={
        'encoder/embeddings/token': 'model.encoder.weight',
        'encoder/layers_#/attention/query': f'{_NEO}.qkv|0/3 by head in pairs',
        'encoder/layers_#/attention/key': f'{_NEO}.qkv|1/3 by head in pairs',
        'encoder/layers_#/attention/value': f'{_NEO}.qkv|2/3 by head',
        'encoder/layers_#/attention/output': f'{_NEO}.wo',
        'encoder/layers_#/attention_norm': f'{_NEO}.attention_norm',
        'encoder/layers_#/feedforward/input': f'{_NEO}.ffn.w12',
        'encoder/layers_#/feedforward/output': f'{_NEO}.ffn.w3',
        'encoder/layers_#/feedforward_norm': f'{_NEO}.ffn_norm',
        'encoder/final_norm': 'model.layer_norm',
        'mlm/head/decoder': 'decoder.weight',
        'mlm/head/bias': 'decoder.bias',
        'sequence_classification/head/transform': 'dense',
        'sequence_classification/head/output': 'classifier',
    },
    prefix='model.',
    classes={
        'NeoBERT': (),
        'NeoBERTLMHead': ('mlm',),
        'NeoBERTForSequenceClassification': ('sequence_classification',),
    },
    decoder='decoder',
    joined={'ffn.w12.weight': ('ffn.w1.weight', 'ffn.w2.weight')},
    buffers=r'(model\.)?freqs_(cis|cos|sin)',
    is_written=False,
)

# BERT with ALiBi and gated feed-forward layers.
_LAYER = 'bert.encoder.layer.#'
_GATED = {
    'encoder/layers_#/feedforward/input': f'{_LAYER}.mlp.gated_layers',
    'encoder/layers_#/feedforward/output': f'{_LAYER}.mlp.wo',
    'encoder/layers_#/feedforward_norm': f'{_LAYER}.mlp.layernorm',
}
_BERT = dataclasses.replace(
    bert.FAMILY,
    architecture='mosaicbert',
    keys=with_defaults(BERT_KEYS, attention_probs_dropout_prob=0.0),
    table={
        ours: name
        for ours, name in {**bert.FAMILY.table, **_GATED}.items()
        if ours != 'encoder/embeddings/position'
    },
    causal_class='',
    is_written=False,
)
JINA_V2 = dataclasses.replace(
    _BERT,
    classes=common_classes('JinaBert'),
    without_pooler=tuple(
        f'JinaBertFor{head}' for head in ('MaskedLM', 'TokenClassification', 'QuestionAnswering')
    ),
    fixed={'position_embedding_type': 'alibi', 'feed_forward_type': 'geglu'},
    read_by_complete={'emb_pooler': str, 'model_max_length': int},
    remote_code=r'jinaai/jina-bert-implementation--(modeling|configuration)_bert\.JinaBert\w+',
)
MOSAIC = dataclasses.replace(
    _BERT,
    table={
        **_BERT.table,
        **{
            f'encoder/layers_#/attention/{part}': f'{_LAYER}.attention.self.Wqkv|{number}/3'
            for number, part in enumerate(('query', 'key', 'value'))
        },
    },
    read_by_complete={'alibi_starting_size': int},
    remote_code=r'(mosaicml/mosaic-bert-base\S*--)?(bert_layers|configuration_bert)\.\w+',
)

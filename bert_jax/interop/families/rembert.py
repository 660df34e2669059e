"""RemBERT as transformers writes it (modeling_rembert.py)."""

import dataclasses

from bert_jax.interop.families import bert
from bert_jax.interop.families.family import (
    BERT_KEYS,
    Key,
    bert_like,
    common_classes,
    with_defaults,
)

_KEYS = with_defaults(
    BERT_KEYS,
    vocab_size=250_300,
    hidden_size=1152,
    num_hidden_layers=32,
    num_attention_heads=18,
    intermediate_size=4608,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
del _KEYS['classifier_dropout']
_HEADS = {ours: name for ours, name in bert.FAMILY.table.items() if '/head/' in ours}

FAMILY = dataclasses.replace(
    bert.FAMILY,
    model_type='rembert',
    architecture='rembert',
    keys=_KEYS
    | {
        'input_embedding_size': Key('embedding_size', 256),
        'output_embedding_size': Key('prediction.width', 1664),
        'classifier_dropout_prob': Key('classifier.dropout', 0.1),
        'tie_word_embeddings': Key('prediction.tied', False),
    },
    table=bert_like('rembert', 'rembert.encoder.layer.#')
    | {ours: name for ours, name in _HEADS.items() if not ours.startswith(('mlm/', 'nsp/'))}
    | {
        'encoder/embeddings/projection': 'rembert.encoder.embedding_hidden_mapping_in',
        'encoder/pooler': 'rembert.pooler.dense',
        'mlm/head/transform': 'cls.predictions.dense',
        'mlm/head/norm': 'cls.predictions.LayerNorm',
        'mlm/head/bias': 'cls.predictions.decoder.bias',
        'mlm/head/decoder': 'cls.predictions.decoder.weight',
    },
    prefix='rembert.',
    classes=common_classes('RemBert'),
    without_pooler=(
        'RemBertForMaskedLM',
        'RemBertForTokenClassification',
        'RemBertForQuestionAnswering',
    ),
    causal_class='RemBertForCausalLM',
    token_keys={'pad_token_id': 'pad_id', 'bos_token_id': 'cls_id', 'eos_token_id': 'sep_id'},
)

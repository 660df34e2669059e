"""RoBERTa and XLM-R as transformers writes them (modeling_roberta.py, modeling_xlm_roberta.py)."""

import dataclasses
from typing import Any

from bert_jax.interop.families.family import BERT_KEYS, Family, Key, bert_like, common_classes
from bert_jax.models.architecture import Architecture

_CLASSES = common_classes('Roberta')


def _more_keys(architecture: Architecture) -> dict[str, Any]:
    return {'pad_token_id': architecture.first_position - 1}


ROBERTA = Family(
    model_type='roberta',
    architectures=('roberta', 'roberta_base', 'roberta_large'),
    # Position ids start after the id of the padding token.
    keys=BERT_KEYS
    | {'vocab_size': Key('vocab_size', 50265), 'pad_token_id': Key('pad_token_id', 1)},
    more_keys=_more_keys,
    table=bert_like('roberta', 'roberta.encoder.layer.#')
    | {
        'encoder/pooler': 'roberta.pooler.dense',
        'mlm/head/transform': 'lm_head.dense',
        'mlm/head/norm': 'lm_head.layer_norm',
        'mlm/head/bias': 'lm_head.bias',
        'sequence_classification/head/transform': 'classifier.dense',
        'sequence_classification/head/output': 'classifier.out_proj',
        'multiple_choice/head/transform': 'classifier.dense',
    },
    prefix='roberta.',
    classes=_CLASSES,
    without_pooler=tuple(
        name for name in _CLASSES if not name.endswith(('Model', 'ForMultipleChoice'))
    ),
    token_keys={'pad_token_id': 'pad_id', 'bos_token_id': 'cls_id', 'eos_token_id': 'sep_id'},
    duplicates={
        'lm_head.decoder.weight': 'roberta.embeddings.word_embeddings.weight',
        'lm_head.decoder.bias': 'lm_head.bias',
    },
    buffers=('roberta.embeddings.position_ids',),
)

XLM_R = dataclasses.replace(
    ROBERTA,
    model_type='xlm-roberta',
    architectures=('xlmr_base', 'xlmr_large'),
    keys=ROBERTA.keys | {'vocab_size': Key('vocab_size', 30522)},
    classes={f'XLM{name}': heads for name, heads in ROBERTA.classes.items()},
    without_pooler=tuple(f'XLM{name}' for name in ROBERTA.without_pooler),
)
